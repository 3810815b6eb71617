"""``python -m ort_mlx``: the command line."""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import onnxruntime

import ort_mlx
from ort_mlx import corpus
from ort_mlx.inputs import InputError, load_npz, make_inputs, parse_dims
from ort_mlx.report import RunFailed, examine


def positive(text: str) -> int:
    """An argument that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="ort_mlx", description="Run ONNX models on MLX.")
    commands = top.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a model and say what ran where, how right and how fast")
    run.add_argument("model", type=Path)
    run.add_argument("--inputs", type=Path, help="an .npz with one array an input; random values if left out")
    run.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="size of a symbolic dimension (1)")
    run.add_argument("--claim", default="all", choices=["auto", "all", "none"], help="claim policy (all)")
    run.add_argument("--device", default=None, choices=["auto", "gpu", "cpu"], help="device (auto)")
    run.add_argument("--repeat", type=positive, default=20, metavar="N", help="steady runs to take the median of (20)")
    run.add_argument("--nodes", action="store_true", help="list every node, not only what was left and why")
    run.add_argument("--explain", action="store_true", help="list the nodes that each fused kernel replaces, and how clusters run")
    run.add_argument("--json", action="store_true", help="print the report as JSON")
    check = commands.add_parser(
        "check",
        help="check folders of models against the right answers beside them",
        description="Runs every model.onnx below the folders. Beside it lie inputs.npz and expected.npz (arrays by the names of "
        "inputs and outputs), or ONNX's test_data_set_*/input_*.pb and output_*.pb.",
    )
    check.add_argument("folders", type=Path, nargs="+")
    check.add_argument("--claim", default="all", choices=["auto", "all", "none"], help="claim policy (all)")
    check.add_argument("--device", default=None, choices=["auto", "gpu", "cpu"], help="device (auto)")
    check.add_argument("--left", action="store_true", help="list the operators that were left to onnxruntime")
    check.add_argument("--fused", action="store_true", help="list what ran in place of several nodes, and in how many models")
    devices = commands.add_parser("devices", help="list the devices that MLX offers to onnxruntime")
    devices.add_argument("--all", action="store_true", help="list the other providers' devices too")
    return top


def main(arguments: list[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        if args.command == "devices":
            return devices(every=args.all)
        return check(args) if args.command == "check" else run(args)
    except (InputError, ort_mlx.LibraryNotFound, ort_mlx.OrtTooOld) as error:
        print(f"error: {error}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - onnxruntime raises a class per status code
        print(f"error: {str(error).strip()}", file=sys.stderr)
    return 1


def run(args: argparse.Namespace) -> int:
    if not args.model.is_file():
        raise InputError(f"{args.model} is not a file")
    if args.inputs and args.dim:
        raise InputError("--dim sizes inputs that are made up, and --inputs gives them: use one of the two")
    feeds = load_npz(args.inputs) if args.inputs else make_inputs(args.model, parse_dims(args.dim))
    try:
        report = examine(args.model, feeds, claim=args.claim, device=args.device, repeat=args.repeat)
    except RunFailed as error:
        if args.inputs:
            raise
        raise InputError(
            f"{error}\nThe inputs were made up, which not every model takes: give real ones by --inputs, or sizes by --dim"
        ) from error
    if args.json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        print(report.text(every_node=args.nodes, explain=args.explain))
    return 0 if report.agrees else 1


def devices(every: bool) -> int:
    """Prints MLX's devices, or those of every provider that onnxruntime knows."""
    ours = ort_mlx.register()
    for device in onnxruntime.get_ep_devices() if every else ours:
        about = ", ".join(f"{name} {value}" for name, value in device.ep_metadata.items() if "path" not in name)
        print(f"{device.ep_name}: {device.device.type.name}" + (f" ({about})" if about else ""))
    return 0


def check(args: argparse.Namespace) -> int:
    found = [case for folder in args.folders for case in corpus.cases(folder)]
    if not found:
        raise InputError(f"no model.onnx below {', '.join(map(str, args.folders))}")
    wrong, clusters, left, fused, models = 0, 0, Counter(), Counter(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case in found:
            outcome = corpus.check(case, Path(folder) / "trace.jsonl", claim=args.claim, device=args.device)
            clusters += len(outcome.placement.clusters)
            for op, reason, count in outcome.placement.left():
                left[op, reason] += count
            for kernel, count, _ in outcome.placement.kernels():
                fused[kernel] += count
                models[kernel] += 1
            wrong += bool(outcome.problems)
            for problem in outcome.problems:
                print(f"WRONG {case.folder.name}: {problem}", flush=True)
    if args.left:
        for (op, reason), count in left.most_common():
            print(f"left {count:>5} {op}: {reason}")
    if args.fused:
        for kernel, count in fused.most_common():
            print(f"fused {count:>4} {kernel}: in {models[kernel]} models")
    print(f"{len(found) - wrong} of {len(found)} models right, {clusters} clusters, {sum(left.values())} nodes left")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
