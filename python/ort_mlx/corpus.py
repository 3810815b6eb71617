"""Folders of models with their right answers, in the two layouts that people use.

- ``model.onnx`` with ``inputs.npz`` and ``expected.npz``, and more pairs such as ``inputs_alt.npz``, ``expected_alt.npz``
- ``model.onnx`` with ``test_data_set_*/input_*.pb`` and ``output_*.pb``: ONNX's backend tests. A ``case.json`` beside the
  model may set ``form`` (``run``, ``sequence``: all sets in one session, or ``error``: the run must fail),
  ``tolerance`` ([relative, absolute]) and ``open`` (outputs of which only shape and type are fixed)
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import ort_mlx
from ort_mlx import values
from ort_mlx.compare import ABSOLUTE_OF_SCALE, RELATIVE, difference
from ort_mlx.inputs import InputError, load_npz
from ort_mlx.reference import quiet
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
        try:
            s = json.loads(settings.read_text())
        except ValueError as error:
            raise InputError(f"{settings} is not JSON: {error}") from error
        tolerance = tuple(s["tolerance"]) if s.get("tolerance") else None
        return cls(folder, s.get("form", "run"), tolerance, tuple(s.get("open") or ()))

    @property
    def model(self) -> Path:
        return self.folder / "model.onnx"

    def computes_in_half(self) -> bool:
        """Whether weights or inputs are 16-bit floats."""
        graph = _onnx().load(self.model, load_external_data=False).graph
        half = {_onnx().TensorProto.FLOAT16, _onnx().TensorProto.BFLOAT16}
        inputs = {value.type.tensor_type.elem_type for value in graph.input}
        return bool(half & (inputs | {tensor.data_type for tensor in graph.initializer}))

    def data(self, session) -> Iterator[tuple[str, Callable[[], tuple[dict, dict | None]]]]:
        """The name of every data set, and how to read it: inputs and expected outputs, ``None`` where the run must fail.

        Reading raises :class:`InputError` for what is missing or broken.
        """
        inputs = [i.name for i in [*session.get_inputs(), *session.get_overridable_initializers()]]
        outputs = [o.name for o in session.get_outputs()]
        for given in sorted(self.folder.glob("inputs*.npz")):
            wanted = given.with_name(given.name.replace("inputs", "expected", 1))
            yield given.name, lambda given=given, wanted=wanted: (load_npz(given), load_npz(wanted))
        for folder in sorted(self.folder.glob("test_data_set_*"), key=_number):
            yield folder.name, lambda folder=folder: (
                _protobufs(folder, "input", inputs),
                _protobufs(folder, "output", outputs) or None,
            )


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
    try:
        session = ort_mlx.session(case.model, quiet(), trace=str(trace), **options)
    except Exception as error:  # noqa: BLE001 - onnxruntime raises a class per status code
        if case.form != "error":
            outcome.problems.append(f"does not load: {error}")
        return outcome
    outcome.placement = Placement.read(trace)
    sets = list(case.data(session))
    if not sets:
        outcome.problems.append("no data beside the model: neither inputs*.npz nor test_data_set_*")
    for name, read in sets:
        try:
            given, wanted = read()
        except InputError as error:
            outcome.problems.append(f"{name}: {error}")
            continue
        outcome.problems += [f"{name}: {p}" for p in _run(case, session, given, wanted)]
    return outcome


def _run(case: Case, session, given: dict, wanted: dict | None) -> list[str]:
    must_fail = case.form == "error" or wanted is None
    try:
        names = [o.name for o in session.get_outputs()]
        got = dict(zip(names, values.run(session, given)))
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


def _onnx():
    try:
        import onnx
    except ImportError as error:
        raise InputError("checking needs the package onnx: pip install onnx") from error
    return onnx


def _number(path: Path) -> tuple[int, str]:
    """Sorts ``input_10`` after ``input_9``, and anything without a number last."""
    number = path.stem.rsplit("_", 1)[-1]
    return (int(number) if number.isdecimal() else 1 << 31, path.name)


def _protobufs(folder: Path, kind: str, names: list[str]) -> dict:
    onnx = _onnx()
    read = {}
    for name, file in zip(names, sorted(folder.glob(f"{kind}_*.pb"), key=_number)):
        try:
            tensor = onnx.TensorProto()
            tensor.ParseFromString(file.read_bytes())
            array = onnx.numpy_helper.to_array(tensor)
            read[name] = array.astype(np.float32) if tensor.data_type == onnx.TensorProto.BFLOAT16 else array
        except Exception as error:  # noqa: BLE001 - protobuf's own classes, and numpy's for sizes that lie
            raise InputError(f"{file.name} is not a tensor: {error}") from error
    return read
