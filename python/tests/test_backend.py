"""ONNX's own backend tests of single operators, through onnxruntime with everything claimed."""

import warnings

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx.backend.test.case.node import collect_testcases

import ort_mlx
from ort_mlx import values
from ort_mlx.compare import difference
from ort_mlx.reference import quiet

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    CASES = {case.name: case for case in collect_testcases(None)}


def agrees(got, wanted) -> bool:
    if isinstance(wanted, list | tuple):
        return len(got) == len(wanted) and all(map(agrees, got, wanted))
    if wanted is None or got is None:
        return got is wanted
    wanted = np.asarray(wanted)
    if wanted.dtype.kind in "OSUT":
        return np.array_equal(np.asarray(got, dtype=object), wanted.astype(object))
    if wanted.dtype.itemsize <= 2 and wanted.dtype.kind not in "iub":
        got, wanted = np.asarray(got, np.float32), wanted.astype(np.float32)
        return difference(got, wanted, 1e-2, 1e-2).agrees
    return difference(got, wanted, 1e-3, 1e-5).agrees


def run(session, given) -> list:
    """Outputs for inputs by position, each in the type that the session declares."""
    outputs = values.run(session, dict(zip([i.name for i in session.get_inputs()], given)))
    declared = [o.type for o in session.get_outputs()]
    return [y.astype(ml_dtypes.bfloat16) if type == values.BFLOAT16 else y for y, type in zip(outputs, declared)]


def results(make_session, case):
    """(got, wanted) for every data set, or the error."""
    try:
        session = make_session(case.model.SerializeToString())
        return [(run(session, given), wanted) for given, wanted in case.data_sets]
    except Exception as error:  # noqa: BLE001 - onnxruntime raises a class per status code
        return error


def reference(model: bytes) -> onnxruntime.InferenceSession:
    options = quiet()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", CASES)
def test_node(name):
    """Right by ONNX's data, or equal to onnxruntime's CPU provider where that one differs or fails."""
    case = CASES[name]
    ours = results(lambda model: ort_mlx.session(model, quiet(), claim="all", device="cpu"), case)
    if not isinstance(ours, Exception) and all(agrees(got, list(wanted)) for got, wanted in ours):
        return
    theirs = results(reference, case)
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), f"onnxruntime refuses ({theirs}), ours differs from the data"
        return
    assert not isinstance(ours, Exception), ours
    for (got, _), (wanted, _) in zip(ours, theirs):
        assert agrees(got, wanted), f"{got} for {wanted}"
