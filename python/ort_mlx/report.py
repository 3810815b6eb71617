"""Runs a model on MLX and on onnxruntime's CPU provider and tells what happened."""

import json
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import ort_mlx
from ort_mlx import values
from ort_mlx.compare import ABSOLUTE_OF_SCALE, RELATIVE, Difference, difference
from ort_mlx.reference import cpu_session, quiet

# bfloat16 has 8 bits; both providers round after every node, and onnxruntime fuses some away.
BFLOAT16_TOLERANCE = (3e-2, 1.5e-2)


class RunFailed(RuntimeError):
    """A session was made, but does not run on the inputs."""


@dataclass
class Placement:
    """Which nodes went to MLX, from the provider's trace."""

    claims: list[dict] = field(default_factory=list)
    clusters: list[dict] = field(default_factory=list)
    fused: list[dict] = field(default_factory=list)
    modes: list[dict] = field(default_factory=list)

    @classmethod
    def read(cls, trace: Path) -> "Placement":
        placement = cls()
        if trace.is_file():
            for line in trace.read_text().splitlines():
                event = json.loads(line)
                if event.get("again") and not event["claimed"]:
                    continue
                kinds = {
                    "claim": placement.claims,
                    "cluster": placement.clusters,
                    "fused": placement.fused,
                    "mode": placement.modes,
                }
                kinds.get(event["event"], []).append(event)
        return placement

    @property
    def total(self) -> int:
        return len(self.claims)

    @property
    def on_mlx(self) -> int:
        return sum(c["claimed"] for c in self.claims)

    def kernels(self) -> list[tuple[str, int, int]]:
        """(kernel, how often, nodes that it replaces in all) of what runs fused, most frequent first."""
        counts = Counter(f["kernel"] for f in self.fused)
        replaced = Counter()
        for f in self.fused:
            replaced[f["kernel"]] += len(f["nodes"])
        return [(kernel, count, replaced[kernel]) for kernel, count in counts.most_common()]

    def names(self, fused: dict) -> list[str]:
        """The nodes that a kernel replaces, as ``operator name``."""
        graph = {c["index"]: c for c in self.claims if c["graph"] == fused["graph"] and not c.get("again")}
        nodes = [graph[index] for index in fused["nodes"] if index in graph]
        return [f"{c['op']} {c['node'] or '#' + str(c['index'])}" for c in nodes]

    def mode(self) -> list[str]:
        """How each cluster runs and why, as its last new shapes were decided about."""
        last = {m["cluster"]: m for m in self.modes}
        lines = []
        for cluster, m in last.items():
            values = f", also by the values of {', '.join(m['values'])}" if m["values"] else ""
            lines.append(f"{cluster} is {m['mode']}{values}: {m['why']}")
        return lines

    def left(self) -> list[tuple[str, str, int]]:
        """(op, reason, count) of what was left to onnxruntime, most frequent first."""
        counts = Counter((c["op"], c["reason"]) for c in self.claims if not c["claimed"])
        return [(op, reason, count) for (op, reason), count in counts.most_common()]


@dataclass
class Latency:
    """Milliseconds of the first run and the median of the later ones."""

    first: float
    steady: float


@dataclass
class Report:
    """What :func:`examine` found."""

    model: str
    placement: Placement
    differences: dict[str, Difference]
    mlx: Latency
    cpu: Latency

    @property
    def agrees(self) -> bool:
        return all(d.agrees for d in self.differences.values())

    @property
    def error(self) -> float:
        return max((d.error for d in self.differences.values()), default=0.0)

    def as_dict(self) -> dict:
        return {
            "model": self.model,
            "nodes": self.placement.total,
            "on_mlx": self.placement.on_mlx,
            "clusters": len(self.placement.clusters),
            "fused": [{"kernel": k, "count": count, "nodes": nodes} for k, count, nodes in self.placement.kernels()],
            "left": [{"op": op, "reason": reason, "count": count} for op, reason, count in self.placement.left()],
            "claims": self.placement.claims,
            "modes": self.placement.modes,
            "agrees": self.agrees,
            "error": self.error,
            "mlx_ms": vars(self.mlx),
            "ort_cpu_ms": vars(self.cpu),
        }

    def text(self, every_node: bool = False, explain: bool = False) -> str:
        p = self.placement
        lines = [f"{self.model}: {p.on_mlx} of {p.total} nodes on MLX in {len(p.clusters)} clusters"]
        lines += [f"  {count} x {kernel} in place of {nodes} nodes" for kernel, count, nodes in p.kernels()]
        if explain:
            lines += [f"    {fused['kernel']}: {', '.join(p.names(fused))}" for fused in p.fused]
            lines += [f"  {line}" for line in p.mode()]
        if every_node:
            for c in p.claims:
                name = c["node"] or f"#{c['index']}"
                lines.append(f"  {'MLX' if c['claimed'] else 'ORT'}  {c['op']:<24} {name}  {c['reason'] or ''}".rstrip())
        elif p.left():
            lines.append("  left to onnxruntime:")
            lines += [f"    {count:>4} {op}: {reason}" for op, reason, count in p.left()]
        lines.append(f"  error against onnxruntime's CPU provider (of each output's scale): {self.error:.1e}")
        lines += [f"    WRONG {name}: {d.detail}" for name, d in self.differences.items() if not d.agrees]
        for label, latency in (("MLX", self.mlx), ("ORT CPU", self.cpu)):
            lines.append(f"  {label:<8} first run {latency.first:9.2f} ms   then {latency.steady:9.2f} ms")
        lines.append(f"  ratio ORT CPU / MLX, steady: {self.cpu.steady / self.mlx.steady:.2f}")
        return "\n".join(lines)


def examine(
    model: Path,
    feeds: dict[str, np.ndarray],
    *,
    claim: str = "all",
    device: str | None = None,
    repeat: int = 20,
    tolerance: tuple[float, float] = (RELATIVE, ABSOLUTE_OF_SCALE),
) -> Report:
    """Runs ``model`` on both providers with the same inputs; see :func:`difference` for ``tolerance``.

    Raises:
        RunFailed: if a provider does not run on ``feeds``.
    """
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        mlx_session = ort_mlx.session(model, quiet(), claim=claim, device=device, trace=str(trace))
        got, mlx = _time(mlx_session, feeds, repeat)
        placement = Placement.read(trace)
    reference = cpu_session(model)
    wanted, cpu = _time(reference, feeds, repeat)
    differences = {}
    for output, g, w in zip(reference.get_outputs(), got, wanted):
        allowed = BFLOAT16_TOLERANCE if output.type == values.BFLOAT16 else tolerance
        differences[output.name] = difference(g, w, *allowed)
    return Report(Path(model).name, placement, differences, mlx, cpu)


def _time(session, feeds: dict[str, np.ndarray], repeat: int) -> tuple[list[np.ndarray], Latency]:
    start = time.perf_counter()
    try:
        outputs = values.run(session, feeds)
    except Exception as error:  # noqa: BLE001 - onnxruntime raises a class per status code
        raise RunFailed(str(error).strip()) from error
    first = time.perf_counter() - start
    steady = []
    for _ in range(repeat):
        start = time.perf_counter()
        values.run(session, feeds)
        steady.append(time.perf_counter() - start)
    return outputs, Latency(first * 1e3, statistics.median(steady) * 1e3)
