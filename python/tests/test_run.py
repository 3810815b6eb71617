"""Runs: dynamic and empty shapes, threads, many sessions, forks, and other copies of MLX in the process."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from conftest import make_model
from onnx import TensorProto, helper

import ort_mlx
from ort_mlx.report import Placement

DEPS = Path(__file__).parent.parent.parent / ".deps"


def flatten_model() -> bytes:
    """Shape arithmetic as exporters write it: (B, L, H, D) to (B, L, H*D) by Shape, Gather, Concat, Reshape."""
    node = helper.make_node
    return make_model(
        [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "zero"], ["b"]),
            node("Gather", ["shape", "one"], ["l"]),
            node("Unsqueeze", ["b", "axes"], ["b1"]),
            node("Unsqueeze", ["l", "axes"], ["l1"]),
            node("Concat", ["b1", "l1", "rest"], ["target"], axis=0),
            node("Mul", ["x", "two"], ["doubled"]),
            node("Reshape", ["doubled", "target"], ["flat"]),
            node("Softmax", ["flat"], ["y"], axis=-1),
        ],
        [("x", TensorProto.FLOAT, ["B", "L", "H", "D"])],
        [("y", TensorProto.FLOAT, ["B", "L", "F"])],
        {
            "zero": np.int64(0),
            "one": np.int64(1),
            "axes": np.array([0]),
            "rest": np.array([-1]),
            "two": np.float32(2),
        },
    )


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True, initial=-np.inf))
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_trace_that_cannot_be_written_is_no_reason_to_leave_nodes(tmp_path):
    """onnxruntime hears of an error while nodes are claimed, and goes on without the provider."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    session = ort_mlx.session(flatten_model(), options, claim="all", device="cpu", trace="/dev/full")
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], softmax(2 * x.reshape(1, 2, 12)), rtol=1e-5)
    events = json.loads(Path(session.end_profiling()).read_text())
    assert {e["args"]["provider"] for e in events if "provider" in e["args"]} == {ort_mlx.EP_NAME}


FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
# Inputs, attributes, and types and last sizes of outputs.
UNREAD = {
    "EyeLike": (["x"], {}, [(FLOAT, 4)]),
    "Dropout": (["x"], {}, [(FLOAT, 4), (BOOL, 4)]),
    "LayerNormalization": (["x", "scale"], {}, [(FLOAT, 4), (FLOAT, 1), (FLOAT, 1)]),
    "Max": (["x", "x"], {}, [(FLOAT, 4)]),
    "MaxPool": (["x"], {"kernel_shape": [2]}, [(FLOAT, 3), (INT64, 3)]),
    "Mean": (["x", "x"], {}, [(FLOAT, 4)]),
    "Min": (["x", "x"], {}, [(FLOAT, 4)]),
    "RMSNormalization": (["x", "scale"], {}, [(FLOAT, 4)]),
    "Sum": (["x", "x"], {}, [(FLOAT, 4)]),
    "Split": (["x"], {"num_outputs": 2, "axis": -1}, [(FLOAT, 2), (FLOAT, 2)]),
    "TopK": (["x", "two"], {}, [(FLOAT, 2), (INT64, 2)]),
}


@pytest.mark.parametrize("op", UNREAD)
def test_outputs_that_nobody_reads_do_no_harm(op):
    """None of a node's outputs is read, or one of several."""
    inputs, attributes, outputs = UNREAD[op]
    names = [f"{op}{i}" for i in range(len(outputs))]
    node = helper.make_node(op, inputs, names, **attributes)
    constants = {"scale": np.full(4, 2, np.float32), "two": np.array([2], np.int64)}
    # Pools want three axes, EyeLike two.
    before = [] if op == "EyeLike" else ["B"]

    def model(nodes, y, element, last):
        taken = [("x", FLOAT, [*before, "N", 4])]
        return make_model(nodes, taken, [(y, element, [*before, "N", last])], constants, opset=23)

    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    x = x[0] if op == "EyeLike" else x
    beside = model([node, helper.make_node("Neg", ["x"], ["y"])], "y", FLOAT, 4)
    np.testing.assert_array_equal(ort_mlx.session(beside, claim="all", device="cpu").run(None, {"x": x})[0], -x)
    for name, (element, last) in zip(names, outputs) if len(outputs) > 1 else []:
        one = model([node, helper.make_node("Identity", [name], ["z"])], "z", element, last)
        reference = onnxruntime.InferenceSession(one, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        ours = ort_mlx.session(one, claim="all", device="cpu").run(None, {"x": x})[0]
        np.testing.assert_allclose(ours, reference, rtol=1e-5)


def test_shape_arithmetic_stays_in_one_cluster(tmp_path):
    trace = tmp_path / "trace.jsonl"
    ort_mlx.session(flatten_model(), claim="all", device="cpu", trace=str(trace))
    placement = Placement.read(trace)
    assert len(placement.clusters) == 1 and not placement.left(), placement


def test_shapes_may_change_in_one_session():
    session = ort_mlx.session(flatten_model(), claim="all", device="cpu")
    rng = np.random.default_rng(0)
    for shape in [(1, 2, 3, 4), (2, 5, 1, 7), (1, 1, 1, 1), (4, 3, 2, 2), (1, 2, 3, 4)]:
        x = rng.standard_normal(shape).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        wanted = softmax(2 * x.reshape(shape[0], shape[1], -1))
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def test_sizes_of_zero_are_normal():
    """No batch, no length: the same answers as onnxruntime's CPU provider, between runs that are not empty."""
    node = helper.make_node
    model = make_model(
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("Relu", ["h"], ["r"]),
            node("Concat", ["r", "r"], ["c"], axis=1),
            node("Transpose", ["c"], ["t"], perm=[1, 0, 2]),
            node("Softmax", ["t"], ["y"], axis=-1),
            node("ReduceSum", ["y", "axes"], ["s"], keepdims=0),
        ],
        [("x", TensorProto.FLOAT, ["B", "L", 3])],
        [("y", TensorProto.FLOAT, ["M", "B", 5]), ("s", TensorProto.FLOAT, ["B", 5])],
        {"w": np.arange(15, dtype=np.float32).reshape(3, 5), "axes": np.array([0])},
    )
    ours = ort_mlx.session(model, claim="all", device="cpu")
    reference = ort_mlx.session(model, claim="none")
    for shape in [(2, 4, 3), (0, 4, 3), (2, 0, 3), (0, 0, 3), (1, 1, 3)]:
        x = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        for got, wanted in zip(ours.run(None, {"x": x}), reference.run(None, {"x": x})):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_threads_share_a_session():
    session = ort_mlx.session(flatten_model(), claim="all", device="cpu")
    rng = np.random.default_rng(1)
    # Sizes of both kinds: copied, and lent from each thread's own memory.
    inputs = [rng.standard_normal((2, 3 + 40 * i, 4, 5)).astype(np.float32) for i in range(8)]
    wanted = [session.run(None, {"x": x})[0] for x in inputs]
    failures = []
    end = time.monotonic() + 2

    def work(i: int) -> None:
        runs = 0
        while runs < 50 or time.monotonic() < end:
            (y,) = session.run(None, {"x": inputs[i].copy()})
            runs += 1
            if not np.array_equal(y, wanted[i]):
                failures.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_sessions_come_and_go_while_another_runs(add_model):
    kept = ort_mlx.session(add_model, claim="all", device="cpu")
    x = np.zeros((1, 3), np.float32)
    for _ in range(50):
        other = ort_mlx.session(flatten_model(), claim="all", device="cpu")
        other.run(None, {"x": np.ones((1, 1, 2, 2), np.float32)})
        del other
        assert kept.run(None, {"x": x})[0].tolist() == [[1, 1, 1]]


def _in_child(work, queue) -> None:
    try:
        queue.put(work())
    except Exception as error:  # noqa: BLE001
        queue.put(str(error))


def in_fork(work):
    """What ``work`` returns or raises in the child of a fork."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(work, queue))
    child.start()
    try:
        return queue.get(timeout=60)
    finally:
        child.kill()
        child.join(timeout=60)


def run_zeros(session) -> list:
    return session.run(None, {"x": np.zeros((1, 3), np.float32)})[0].tolist()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_fork_old_sessions_say_what_to_do_and_new_ones_work(add_model):
    session = ort_mlx.session(add_model, claim="all", device="cpu")
    assert run_zeros(session) == [[1, 1, 1]]
    assert "spawn" in in_fork(lambda: run_zeros(session))
    anew = in_fork(lambda: run_zeros(ort_mlx.session(add_model, claim="all", device="cpu")))
    assert anew == [[1, 1, 1]], anew
    limited = in_fork(lambda: run_zeros(ort_mlx.session(add_model, claim="all", device="cpu", memory_cache=64)))
    assert "memory_cache" in limited, limited


@pytest.mark.parametrize("first", ["mlx", "ours"])
def test_a_users_mlx_of_another_version_lives_beside_ours(first, add_model):
    """Both import orders: a second libmlx in the process must not take our symbols, nor ours its."""
    theirs = "import mlx.core as mx\nassert mx.__version__ == '0.32.4', mx.__version__\n"
    ours = (
        "import numpy as np, ort_mlx\n"
        "session = ort_mlx.session(model, claim='all', device='cpu')\n"
        "assert session.run(None, {'x': np.zeros((1, 3), np.float32)})[0].tolist() == [[1, 1, 1]]\n"
    )
    use = "assert (mx.array([1.0, 2.0]) @ mx.array([3.0, 4.0])).item() == 11\n"
    body = theirs + use + ours if first == "mlx" else ours + theirs + use
    program = f"import sys\nmodel = sys.stdin.buffer.read()\n{body}{use}print('both work')"
    package = Path(__file__).parent.parent
    path = os.pathsep.join([str(DEPS / "python/mlx-0.32.4"), str(package)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", program], input=add_model, env=environment, capture_output=True)
    assert b"both work" in done.stdout, done.stderr.decode()


@pytest.mark.parametrize("version", ["1.24.4", "1.28.0"])
def test_older_onnxruntimes_work(version, add_model):
    program = (
        "import sys, numpy as np, onnxruntime, ort_mlx\n"
        f"assert onnxruntime.__version__ == '{version}', onnxruntime.__version__\n"
        "model = sys.stdin.buffer.read()\n"
        "session = ort_mlx.session(model, claim='all', device='cpu')\n"
        "assert session.run(None, {'x': np.zeros((1, 3), np.float32)})[0].tolist() == [[1, 1, 1]]\n"
        "try:\n"
        "    ort_mlx.session(model, devise='cpu')\n"
        "except Exception as error:\n"
        "    assert 'unknown option' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('an unknown option was taken')\n"
        "kind = onnxruntime.OrtDeviceMemoryType.HOST_ACCESSIBLE\n"
        "assert ort_mlx.devices()[0].memory_info(kind).name == 'MLX'\n"
        "try:\n"
        "    x, y = ort_mlx.empty([2, 3]), ort_mlx.empty([2, 3])\n"
        "except ort_mlx.OrtTooOld:\n"
        "    assert onnxruntime.__version__ == '1.24.4'\n"
        "else:\n"
        "    x.numpy()[...] = 4\n"
        "    binding = session.io_binding()\n"
        "    binding.bind_ortvalue_input('x', x)\n"
        "    binding.bind_ortvalue_output('y', y)\n"
        "    session.run_with_iobinding(binding)\n"
        "    assert (y.numpy() == 5).all()\n"
        "print('works')\n"
    )
    package = Path(__file__).parent.parent
    path = os.pathsep.join([str(DEPS / f"python/onnxruntime-{version}"), str(package)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", program], input=add_model, env=environment, capture_output=True)
    assert b"works" in done.stdout, done.stderr.decode()
