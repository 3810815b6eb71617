"""The operator domain ``ai.ortmlx``: values, types, optional parts, what is refused, and how sessions get it."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from domain import claims, near, refused, rounded, run
from onnx import TensorProto
from scans import AXES, GRAD, GRADS, SCAN, loss, scan, scan_grad, scan_inputs, scan_model

import ort_mlx

DEPS = Path(__file__).parent.parent.parent / ".deps"
directions = pytest.mark.parametrize("reverse", [0, 1])


@claims
@directions
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (37, 3, 5, 16), (130, 1, 9, 7)])
def test_scan(claim, reverse, sizes):
    feeds = scan_inputs(SCAN, *sizes)
    near(run(scan_model(reverse=reverse), feeds, claim), scan(**feeds, reverse=reverse))


@claims
@directions
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (37, 3, 5, 16)])
def test_grad(claim, reverse, sizes):
    feeds = scan_inputs(GRAD, *sizes)
    model = scan_model("SelectiveScanGrad", GRAD, GRADS, reverse=reverse)
    near(run(model, feeds, claim), scan_grad(**feeds, reverse=reverse))


@directions
def test_the_reference_gradient_is_that_of_the_reference(reverse):
    feeds = {k: v.astype(np.float64) for k, v in scan_inputs(GRAD, 4, 2, 2, 3).items()}
    feeds["A"] /= 20
    grads, step = scan_grad(**feeds, reverse=reverse), 1e-5
    for name in SCAN:
        for at in np.ndindex(feeds[name].shape):
            sides = []
            for sign in (1, -1):
                moved = {**feeds, name: feeds[name].copy()}
                moved[name][at] += sign * step
                sides.append(loss(**moved, reverse=reverse))
            assert grads[f"d{name}"][at] == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-5, abs=1e-7)


@claims
@pytest.mark.parametrize("element", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_16_bit_types(claim, element):
    feeds = scan_inputs(GRAD, 24, 2, 5, 8)
    exact = rounded(feeds, element)
    forward = {name: feeds[name] for name in SCAN}
    wanted = scan(**{name: exact[name] for name in SCAN})
    near(run(scan_model(element=element), forward, claim), wanted, element)
    model = scan_model("SelectiveScanGrad", GRAD, GRADS, element)
    near(run(model, feeds, claim), scan_grad(**exact), element)


@claims
@pytest.mark.parametrize("empty", range(4))
def test_sizes_of_zero(claim, empty):
    sizes = [5, 2, 3, 4]
    sizes[empty] = 0
    feeds = scan_inputs(GRAD, *sizes)
    near(run(scan_model(), {name: feeds[name] for name in SCAN}, claim), scan(**{n: feeds[n] for n in SCAN}))
    near(run(scan_model("SelectiveScanGrad", GRAD, GRADS), feeds, claim), scan_grad(**feeds))


@claims
@pytest.mark.parametrize("inputs", [SCAN[:5], [*SCAN[:5], ""]])
@pytest.mark.parametrize("outputs", [["y"], ["y", ""], ["y", "h"]])
def test_parts_of_a_scan_may_be_left_out(claim, inputs, outputs):
    feeds = scan_inputs(inputs, 6, 2, 3, 4)
    got = run(scan_model(inputs=inputs, outputs=outputs), feeds, claim)
    assert list(got) == [name for name in outputs if name]
    near(got, scan(**feeds))


@claims
@pytest.mark.parametrize("left_out", [("h0",), ("dh",), ("h0", "dh")])
@pytest.mark.parametrize("outputs", [["ddt"], ["", "", "db"], ["", "", "", "", "", "dh0"], GRADS])
def test_parts_of_a_gradient_may_be_left_out(claim, left_out, outputs):
    inputs = ["" if name in left_out else name for name in GRAD]
    feeds = scan_inputs(inputs, 6, 2, 3, 4)
    got = run(scan_model("SelectiveScanGrad", inputs, outputs), feeds, claim)
    assert list(got) == [name for name in outputs if name]
    near(got, scan_grad(**feeds))


@claims
def test_sizes_may_change_in_one_session(claim):
    session = ort_mlx.session(scan_model(), claim=claim, device="cpu")
    for sizes in [(3, 2, 4, 5), (9, 1, 4, 5), (0, 3, 1, 1), (3, 2, 4, 5)]:
        feeds = scan_inputs(SCAN, *sizes)
        near(dict(zip(["y", "h"], session.run(None, feeds))), scan(**feeds))


def test_threads_share_a_session():
    session = ort_mlx.session(scan_model(), claim="none")
    feeds = [scan_inputs(SCAN, 20 + i, 2, 3, 4, seed=i) for i in range(4)]
    wanted = [session.run(None, f) for f in feeds]
    failures = []

    def work(i: int) -> None:
        for _ in range(20):
            if not all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds[i]), wanted[i])):
                failures.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_shapes_are_inferred():
    """From the inputs: the declared shapes of the outputs are taken away."""
    model = onnx.load_from_string(scan_model("SelectiveScanGrad", GRAD, GRADS, shapes={"A": [8, "N"]}))
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    session = ort_mlx.session(model.SerializeToString(), claim="none")
    sizes = {"T": "T", "B": "B", "D": 8, "N": "N"}
    for output in session.get_outputs():
        assert output.shape == [sizes[axis] for axis in AXES[output.name]], output.name


def test_sizes_without_a_name_stay_apart():
    """Two unknown sizes are not the same size, and the rank is known."""
    model = onnx.load_from_string(scan_model(outputs=["y"]))
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    model.graph.output[0].type.tensor_type.ClearField("shape")
    session = ort_mlx.session(model.SerializeToString(), claim="none")
    assert len(set(session.get_outputs()[0].shape)) == 3
    feeds = scan_inputs(SCAN, 3, 3, 2, 3)
    near(dict(zip(["y"], session.run(None, feeds))), scan(**feeds))


def test_inputs_of_unknown_rank_are_checked_when_they_run():
    model = onnx.load_from_string(scan_model())
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.ClearField("shape")
    session = ort_mlx.session(model.SerializeToString(), claim="none")
    feeds = scan_inputs(SCAN, 3, 2, 4, 5)
    near(dict(zip(["y", "h"], session.run(None, feeds))), scan(**feeds))
    for name, value, wanted in [
        ("A", feeds["A"][0], r"node 'node': input 'A' \(D, N\) has 2 axes, but its shape is \[5\] with 1"),
        ("c", feeds["c"][..., 1:], r"'c' \(T, B, N\) has the shape \[3, 2, 4\], so N is 4, but input 'b' says 5"),
        ("x", feeds["x"][:, :0], r"'x' \(T, B, D\) has the shape \[3, 0, 4\], so B is 0, but input 'dt' says 2"),
    ]:
        with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match=wanted):
            session.run(None, {**feeds, name: value})


@claims
@pytest.mark.parametrize(
    ("name", "shape"),
    [("A", [5]), ("A", [4, 1]), ("c", [3, 2, 1]), ("dt", [3, 1, 4]), ("x", []), ("b", [1, 2, 5]), ("h0", [1, 4, 5])],
)
def test_inputs_are_not_broadcast(name, shape, claim):
    model = onnx.load_from_string(scan_model())
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.ClearField("shape")
    session = ort_mlx.session(model.SerializeToString(), claim=claim)
    session.disable_fallback()
    feeds = scan_inputs(SCAN, 3, 2, 4, 5)
    near(dict(zip(["y", "h"], session.run(None, feeds))), scan(**feeds))
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument):
        session.run(None, {**feeds, name: np.ones(shape, np.float32)})


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [
        ({"c": ["T", "B", 7], "A": ["D", 4]}, r"'A' \(D, N\) has the shape \[D, 4\], so N is 4, but input 'c' says 7"),
        ({"b": ["T", "N"]}, r"'b' \(T, B, N\) has 3 axes, but its shape is \[T, N\] with 2: Reshape"),
        ({"h0": [1, "D", "N"], "x": ["T", 2, "D"]}, "so B is 1, but input 'x' says 2"),
    ],
)
def test_declared_shapes_that_do_not_fit_are_refused_at_load(shapes, wanted):
    refused(scan_model(shapes=shapes), rf"ai\.ortmlx\.SelectiveScan node 'node': .*{wanted}")


@claims
def test_a_value_that_an_attribute_does_not_have_is_refused(claim):
    wanted = "'node': attribute 'reverse' is 2: give 0 to take the steps from first to last, 1"
    refused(scan_model(reverse=2), wanted, claim)
    for value in [1.0, "backwards", [1], [1.0]]:
        refused(scan_model(reverse=value), "'node': attribute 'reverse' is no integer: give 0", claim)


@claims
def test_missing_inputs_are_refused(claim):
    refused(scan_model(inputs=SCAN[:4]), "SelectiveScan.* has input size 4 not in range", claim)
    refused(scan_model(inputs=["dt", "x", "", "c", "A"]), "SelectiveScan", claim)
    refused(scan_model("SelectiveScanGrad", [*SCAN, "", "dh"], GRADS), "SelectiveScanGrad", claim)


@claims
def test_types_that_do_not_fit_are_refused(claim):
    wanted = "'c' is float16, but 'dt' is float: give both the same type"
    refused(scan_model(types={"c": TensorProto.FLOAT16}), wanted, claim)
    model = onnx.load_from_string(scan_model())
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    refused(model.SerializeToString(), r"tensor\(double\).*SelectiveScan", claim)


def test_onnx_checks_models_of_the_domain():
    model = onnx.load_from_string(scan_model())
    onnx.checker.check_model(model, full_check=True)


def plain_session(model: bytes, options=None) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def test_a_session_without_our_devices_gets_the_domain_from_the_library():
    with pytest.raises(Exception, match="SelectiveScan.*not a registered function/op"):
        plain_session(scan_model())
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(ort_mlx.library_path()))
    feeds = scan_inputs(SCAN, 5, 2, 3, 4)
    for _ in range(2):
        session = plain_session(scan_model(), options)
        near(dict(zip(["y", "h"], session.run(None, feeds))), scan(**feeds))


def test_both_ways_at_once_work_if_the_library_comes_first():
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(ort_mlx.library_path()))
    feeds = scan_inputs(SCAN, 5, 2, 3, 4)
    session = ort_mlx.session(scan_model(), options, claim="none")
    near(dict(zip(["y", "h"], session.run(None, feeds))), scan(**feeds))


def test_sessions_outlive_their_options():
    options = onnxruntime.SessionOptions()
    session = ort_mlx.session(scan_model(), options, claim="none")
    del options
    feeds = scan_inputs(SCAN, 5, 2, 3, 4)
    near(dict(zip(["y", "h"], session.run(None, feeds))), scan(**feeds))


def test_a_scan_of_constants_is_folded():
    """ONNX Runtime's optimizer runs the kernel while the model loads."""
    feeds = scan_inputs(SCAN, 5, 2, 3, 4)
    model = onnx.load_from_string(scan_model())
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in feeds.items())
    del model.graph.input[:]
    near(run(model.SerializeToString(), {}), scan(**feeds))


OLDER = """
import sys, numpy as np, onnxruntime, ort_mlx
from scans import SCAN, GRAD, scan_inputs
assert onnxruntime.__version__ == sys.argv[1], onnxruntime.__version__
forward, gradient = np.load(sys.argv[2], allow_pickle=True)["models"]
ort_mlx.register()
if sys.argv[3] == "twice":
    onnxruntime.register_execution_provider_library("again", str(ort_mlx.library_path()))
    assert len(ort_mlx.devices()) == 2
for model, names in [(forward, SCAN), (gradient, [n for n in GRAD if n != "h0"])]:
    session = ort_mlx.session(model, claim="none")
    outputs = session.run(None, scan_inputs(names, 5, 2, 3, 4))
    np.savez(sys.argv[2] + "." + session.get_outputs()[0].name, *outputs)
print("works")
"""


@pytest.mark.parametrize("times", ["once", "twice"])
@pytest.mark.parametrize("version", ["1.24.4", "1.28.0", onnxruntime.__version__])
def test_every_onnxruntime_has_the_domain(version, times, tmp_path):
    """Also where the plugin is registered under two names, which gives each session two devices to choose from."""
    inputs = ["" if name == "h0" else name for name in GRAD]
    models = [scan_model(), scan_model("SelectiveScanGrad", inputs, ["ddt", "", "db"])]
    data = tmp_path / "models.npz"
    np.savez(data, models=np.array(models, dtype=object))
    here = Path(__file__).parent
    path = [str(DEPS / f"python/onnxruntime-{version}"), str(here), str(here.parent)]
    done = subprocess.run(
        [sys.executable, "-c", OLDER, version, str(data), times],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
    )
    assert b"works" in done.stdout, done.stderr.decode()
    for name, inputs, reference, outputs in [
        ("y", SCAN, scan, ["y", "h"]),
        ("ddt", [n for n in GRAD if n != "h0"], scan_grad, ["ddt", "db"]),
    ]:
        with np.load(f"{data}.{name}.npz") as got:
            near(dict(zip(outputs, got.values())), reference(**scan_inputs(inputs, 5, 2, 3, 4)))
