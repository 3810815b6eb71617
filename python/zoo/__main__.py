"""``python -m zoo demo|table|bench``: models through onnxruntime with MLX."""

import argparse
import sys

import ort_mlx
from ort_mlx.report import examine
from zoo import bench
from zoo.models import load, table

# A CNN, an OCR detector, a transformer encoder, a recurrent audio model inside an If, and text recognition.
DEMO = ["squeezenet_rand", "ppocr4_det", "ppocr4_rec", "rxnmap", "silero_vad_v6"]


def demo(claim: str, repeat: int) -> int:
    """Prints one report a model."""
    print(f"plugin: {ort_mlx.library_path().name}, devices: {[d.ep_metadata for d in ort_mlx.register()]}\n")
    wrong = 0
    for id in DEMO:
        model = load(id)
        report = examine(model.file(), model.feeds(), claim=claim, repeat=repeat, tolerance=model.tolerance)
        print(f"{model.family}\n{report.text()}\n", flush=True)
        wrong += not report.agrees
    print(f"{len(DEMO) - wrong} of {len(DEMO)} models agree with onnxruntime's CPU provider")
    return wrong


def markdown(claim: str, repeat: int) -> int:
    """Prints the README's table."""
    print("| model | kind | nodes | on MLX | clusters | error | MLX ms | ORT CPU ms |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    wrong = 0
    for model in table():
        r = examine(model.file(), model.feeds(), claim=claim, repeat=repeat, tolerance=model.tolerance)
        wrong += not r.agrees
        error = f"{r.error:.0e}" if r.agrees else f"**{r.error:.0e}**"
        print(
            f"| {model.id} | {model.family} | {r.placement.total} | {r.placement.on_mlx} | {len(r.placement.clusters)} "
            f"| {error} | {r.mlx.steady:.1f} | {r.cpu.steady:.1f} |",
            flush=True,
        )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="zoo", description=__doc__)
    parser.add_argument("what", choices=["demo", "table", "bench"])
    parser.add_argument("--claim", default="all", choices=["auto", "all", "none"])
    parser.add_argument("--repeat", type=int, default=10)
    args = parser.parse_args()
    if args.what == "bench":
        bench.run(max(args.repeat, 30))
        return 0
    return 1 if {"demo": demo, "table": markdown}[args.what](args.claim, args.repeat) else 0


if __name__ == "__main__":
    sys.exit(main())
