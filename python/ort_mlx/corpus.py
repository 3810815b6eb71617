"""Folders of models with their right answers, in the two layouts that people use.

- ``model.onnx`` with ``inputs.npz`` and ``expected.npz``, and more pairs such as ``inputs_alt.npz``, ``expected_alt.npz``
- ``model.onnx`` with ``test_data_set_*/input_*.pb`` and ``output_*.pb``: ONNX's backend tests. A ``case.json`` beside the
  model may set ``form`` (``run``, ``sequence``: all sets in one session, or ``error``: the run must fail),
  ``tolerance`` ([relative, absolute]) and ``open`` (outputs of which only shape and type are fixed)
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime

import ort_mlx
from ort_mlx.compare import ABSOLUTE_OF_SCALE, RELATIVE, difference
from ort_mlx.report import Placement


# onnxruntime's own float16 results move by about 1e-3 between its optimisation levels.
HALF_TOLERANCE = (1e-2, 5e-3)


@dataclass
class Case:
    """One model with its data."""

    folder: Path
    form: str = "run"
    tolerance: tuple[float, float] | None = None
    open: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: Path) -> "Case":
        settings = folder / "case.json"
        if not settings.is_file():
            return cls(folder)
        s = json.loads(settings.read_text())
        tolerance = tuple(s["tolerance"]) if s.get("tolerance") else None
        return cls(folder, s.get("form", "run"), tolerance, tuple(s.get("open") or ()))

    @property
    def model(self) -> Path:
        return self.folder / "model.onnx"

    def computes_in_half(self) -> bool:
        """Whether weights or inputs are 16-bit floats."""
        import onnx

        graph = onnx.load(self.model, load_external_data=False).graph
        half = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
        inputs = {value.type.tensor_type.elem_type for value in graph.input}
        return bool(half & (inputs | {tensor.data_type for tensor in graph.initializer}))

    def data(self, session) -> list[tuple[dict, dict | None]]:
        """Pairs of inputs and expected outputs; ``None`` where a run must fail."""
        inputs = [i.name for i in [*session.get_inputs(), *session.get_overridable_initializers()]]
        outputs = [o.name for o in session.get_outputs()]
        pairs = []
        for given in sorted(self.folder.glob("inputs*.npz")):
            wanted = given.with_name(given.name.replace("inputs", "expected", 1))
            pairs.append((_npz(given), _npz(wanted)))
        for folder in sorted(self.folder.glob("test_data_set_*"), key=lambda f: int(f.name.rsplit("_", 1)[1])):
            given = _protobufs(folder, "input", inputs)
            wanted = _protobufs(folder, "output", outputs)
            pairs.append((given, wanted or None))
        return pairs


@dataclass
class Outcome:
    """What became of one case."""

    case: Case
    placement: Placement
    problems: list[str] = field(default_factory=list)


def cases(folder: Path) -> list[Case]:
    """Every case below ``folder``."""
    return [Case.of(model.parent) for model in sorted(Path(folder).rglob("model.onnx"))]


def check(case: Case, trace: Path, **options: str) -> Outcome:
    """Runs one case on MLX; ``trace`` is a file to use in between."""
    trace.unlink(missing_ok=True)
    outcome = Outcome(case, Placement())
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    try:
        session = ort_mlx.session(case.model, quiet, trace=str(trace), **options)
    except Exception as error:  # noqa: BLE001 - onnxruntime raises a class per status code
        if case.form != "error":
            outcome.problems.append(f"does not load: {error}")
        return outcome
    outcome.placement = Placement.read(trace)
    for number, (given, wanted) in enumerate(case.data(session)):
        outcome.problems += [f"data {number}: {p}" for p in _run(case, session, given, wanted)]
    return outcome


def _run(case: Case, session, given: dict, wanted: dict | None) -> list[str]:
    must_fail = case.form == "error" or wanted is None
    try:
        names = [o.name for o in session.get_outputs()]
        got = dict(zip(names, session.run(names, given)))
    except Exception as error:  # noqa: BLE001
        return [] if must_fail else [f"does not run: {error}"]
    if must_fail:
        return ["runs, but must fail"]
    problems = []
    for name, value in wanted.items():
        if name in case.open:
            if np.asarray(got[name]).shape != value.shape or np.asarray(got[name]).dtype != value.dtype:
                problems.append(f"{name}: {got[name].dtype}{list(got[name].shape)}")
            continue
        relative, absolute = _tolerance(case, value)
        found = difference(got[name], value, relative, absolute)
        if not found.agrees:
            problems.append(f"{name}: {found.detail}")
    return problems


def _tolerance(case: Case, value: np.ndarray) -> tuple[float, float]:
    if case.tolerance is not None:
        relative, absolute = case.tolerance
        finite = value[np.isfinite(value)] if np.issubdtype(value.dtype, np.floating) else value
        scale = float(np.max(np.abs(finite), initial=0)) or 1.0
        # A case's absolute tolerance is absolute; `difference` takes it as a part of the scale.
        return relative, absolute / scale
    return HALF_TOLERANCE if case.computes_in_half() else (RELATIVE, ABSOLUTE_OF_SCALE)


def _npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _protobufs(folder: Path, kind: str, names: list[str]) -> dict:
    import onnx
    from onnx import numpy_helper

    values = {}
    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda f: int(f.stem.rsplit("_", 1)[1]))
    for name, file in zip(names, files):
        data = file.read_bytes()
        tensor = onnx.TensorProto()
        tensor.ParseFromString(data)
        values[name] = numpy_helper.to_array(tensor)
    return values


def cpu_session(model: Path) -> onnxruntime.InferenceSession:
    """onnxruntime's CPU provider with optimisations off: the reference."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
