"""Inputs and outputs: what is copied, what is used where it lies, and that nobody's memory is touched."""

import ctypes
import json
import mmap
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import make_model
from onnx import TensorProto, helper

import ort_mlx

node = helper.make_node


def traffic(trace) -> list[dict]:
    """What each run of a cluster moved, from the trace."""
    lines = map(json.loads, trace.read_text().splitlines())
    return [line for line in lines if line["event"] == "run"]


def within_pages(shape, seed=0) -> np.ndarray:
    """Random float32 numbers that begin 64 bytes into a page of 4096, as MLX's CPU back end can use them."""
    size = int(np.prod(shape)) * 4
    memory = np.zeros(size + 2 * 4096, np.uint8)
    start = -memory.ctypes.data % 4096 + 64
    values = memory[start : start + size].view(np.float32).reshape(shape)
    values[...] = np.random.default_rng(seed).standard_normal(shape)
    return values


# One chain for each way in which MLX reuses memory: one operand, two, three, copies, reductions along the way.
CHAINS = {
    "unary": [node("Neg", ["x"], ["a"]), node("Relu", ["a"], ["b"]), node("Exp", ["b"], ["y"])],
    "binary": [node("Add", ["x", "x"], ["a"]), node("Mul", ["x", "a"], ["y"])],
    "select": [node("Greater", ["x", "zero"], ["c"]), node("Where", ["c", "x", "zero"], ["y"])],
    "softmax": [node("Softmax", ["x"], ["y"], axis=-1)],
    "cumulate": [node("CumSum", ["x", "axis"], ["y"])],
    "update": [node("ScatterND", ["x", "place", "row"], ["a"]), node("Neg", ["a"], ["y"])],
    "identity": [node("Identity", ["x"], ["y"])],
    "reshape": [node("Reshape", ["x", "flat"], ["y"])],
    "transpose": [node("Transpose", ["x"], ["y"], perm=[1, 0])],
    "slice": [node("Slice", ["x", "first", "last"], ["y"])],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_inputs_are_read_in_place_and_stay_as_they_are(chain, tmp_path):
    model = make_model(
        CHAINS[chain],
        [("x", TensorProto.FLOAT, ["N", 64])],
        [("y", TensorProto.FLOAT, ["A"] if chain == "reshape" else ["A", "B"])],
        {
            "zero": np.float32(0),
            "axis": np.int64(0),
            "place": np.array([[1]]),
            "row": np.full((1, 64), 7, np.float32),
            "flat": np.array([-1]),
            "first": np.array([1, 2]),
            "last": np.array([1000, 60]),
        },
    )
    trace = tmp_path / "trace.jsonl"
    ours = ort_mlx.session(model, claim="all", device="cpu", trace=str(trace))
    reference = ort_mlx.session(model, claim="none")
    x = within_pages((1025, 64))
    kept = x.copy()
    (wanted,) = reference.run(None, {"x": x})
    (first,) = ours.run(None, {"x": x})
    assert np.array_equal(x, kept)
    # What came out does not depend on the input's memory.
    x[...] = np.nan
    np.testing.assert_allclose(first, wanted, rtol=1e-5, atol=1e-5)
    x[...] = kept
    (second,) = ours.run(None, {"x": x})
    np.testing.assert_array_equal(second, first)
    for run in traffic(trace):
        assert run["read_in_place"] == x.nbytes and run["copied_in"] < 1024, run
        assert run["copied_out"] == wanted.nbytes, run


def test_an_input_may_be_an_output_too():
    """As decoders do that update their cache in place: what is a view of the old values stays what it was."""
    model = make_model(
        [node("Neg", ["x"], ["y"]), node("Reshape", ["x", "flat"], ["z"])],
        [("x", TensorProto.FLOAT, [512, 64])],
        [("y", TensorProto.FLOAT, [512, 64]), ("z", TensorProto.FLOAT, [512 * 64])],
        {"flat": np.array([-1])},
    )
    session = ort_mlx.session(model, claim="all", device="cpu")
    x = within_pages((512, 64))
    kept = x.copy()
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("z", "cpu")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(x, -kept)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], kept.ravel())


def test_inputs_wherever_they_lie():
    """Every distance to the ends of pages, small and large: the same answers whether copied or not."""
    model = make_model(
        [node("Mul", ["x", "two"], ["y"])],
        [("x", TensorProto.FLOAT, ["N"])],
        [("y", TensorProto.FLOAT, ["N"])],
        {"two": np.float32(2)},
    )
    session = ort_mlx.session(model, claim="all", device="cpu")
    memory = np.arange(40_000, dtype=np.float32)
    for start in [0, 1, 3, 16, 1000, 1023]:
        for count in [0, 1, 4095, 4096, 8191, 8192 - 20, 8192 + 1000, 30_000]:
            x = memory[start : start + count]
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], 2 * x)


def guarded(values: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy as near to the start or the end of pages as memory is lent, between pages that nobody may touch."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, (values.nbytes // page + 4) * page)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for forbidden in (first, first + len(memory) - page):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(forbidden), ctypes.c_size_t(page), 0) == 0
    start = len(memory) - page - 64 - values.nbytes if at_end else page + 8
    copy = np.frombuffer(memory, values.dtype, values.size, start).reshape(values.shape)
    copy[...] = values
    return copy


@pytest.mark.skipif(sys.platform == "win32", reason="protects pages")
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("element", [np.float32, np.float16, np.int64, np.int32, np.uint8])
def test_nothing_is_read_outside_the_pages(element, at_end):
    """It would end the process. Sizes are odd, so that loops over vectors have tails."""
    element = np.dtype(element)
    kind = helper.np_dtype_to_tensor_dtype(element)
    model = make_model(
        [
            node("Add", ["x", "x"], ["sum"]),
            node("Cast", ["x"], ["cast"], to=TensorProto.FLOAT),
            node("Transpose", ["x"], ["turned"], perm=[1, 0]),
            node("Concat", ["x", "x"], ["both"], axis=1),
            node("Slice", ["x", "first", "last"], ["part"]),
            node("Gather", ["x", "rows"], ["picked"]),
            node("Greater", ["x", "limit"], ["above"]),
            node("Where", ["above", "x", "limit"], ["clipped"]),
            node("ReduceSum", ["cast", "axes"], ["sums"]),
            node("MatMul", ["cast", "weights"], ["product"]),
            node("Identity", ["x"], ["same"]),
        ],
        [("x", kind, ["N", "M"])],
        [
            *((name, kind, ["A", "B"]) for name in ("sum", "turned", "both", "part", "picked", "clipped", "same")),
            *((name, TensorProto.FLOAT, ["C", "D"]) for name in ("cast", "sums", "product")),
        ],
        {
            "first": np.array([5, 3]),
            "last": np.array([300, 200]),
            "rows": np.array([0, 328, 7]),
            "limit": element.type(9),
            "axes": np.array([1]),
            "weights": np.ones((203, 2), np.float32),
        },
    )
    ours = ort_mlx.session(model, claim="all", device="cpu")
    reference = ort_mlx.session(model, claim="none")
    values = np.random.default_rng(0).integers(0, 100, (329, 203)).astype(element)
    x = guarded(values, at_end)
    for got, wanted in zip(ours.run(None, {"x": x}), reference.run(None, {"x": values})):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    np.testing.assert_array_equal(x, values)


def test_threads_lend_their_own_memory():
    model = make_model(
        [node("Sin", ["x"], ["a"]), node("Mul", ["a", "x"], ["y"])],
        [("x", TensorProto.FLOAT, ["N", 64])],
        [("y", TensorProto.FLOAT, ["N", 64])],
    )
    session = ort_mlx.session(model, claim="all", device="cpu")
    inputs = [within_pages((128 + 8 * i, 64), seed=i) for i in range(8)]
    wanted = [session.run(None, {"x": x})[0] for x in inputs]
    outcomes = Counter()

    def work(i: int) -> None:
        for _ in range(60):
            x = inputs[i].copy()
            (y,) = session.run(None, {"x": x})
            x[...] = np.nan
            del x
            outcomes[np.array_equal(y, wanted[i])] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {True: 480}, outcomes


RESIDENT = """
import os, sys
import numpy as np
import ort_mlx
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
small, large = sys.argv[1:]
ort_mlx.session(small, claim="all", device="cpu").run(None, {"x": np.zeros((1, 8), np.float32)})
start = resident()
one = ort_mlx.session(large, claim="all", device="cpu")
held = resident()
two = ort_mlx.session(large, claim="all", device="cpu")
both = resident()
x = np.linspace(-1, 1, 1024, dtype=np.float32).reshape(1, 1024)
assert np.array_equal(one.run(None, {"x": x})[0], two.run(None, {"x": x})[0])
print(held - start, both - start)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("external", [False, True])
def test_weights_are_held_once_however_many_sessions_there_are(external, tmp_path):
    """Not by ONNX Runtime any more, and by MLX once for sessions with equal ones."""

    def write(name: str, width: int, layers: int) -> Path:
        rng = np.random.default_rng(0)
        weights = {f"w{i}": rng.standard_normal((width, width)).astype(np.float32) for i in range(layers)}
        names = ["x", *(f"h{i}" for i in range(1, layers)), "y"]
        nodes = [node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(layers)]
        float32 = TensorProto.FLOAT
        model = make_model(nodes, [("x", float32, ["N", width])], [("y", float32, ["N", width])], weights)
        model = onnx.load_from_string(model)
        onnx.save(model, tmp_path / name, save_as_external_data=external, location=f"{name}.bin")
        return tmp_path / name

    small, large = write("small.onnx", 8, 1), write("large.onnx", 1024, 20)
    command = [sys.executable, "-c", RESIDENT, small, large]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    one, two = map(int, done.stdout.split())
    weights = 20 * 4 << 20
    assert one < 1.2 * weights and two < 1.2 * weights, (one / weights, two / weights)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_sessions_leave_nothing_behind():
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    float32 = TensorProto.FLOAT
    x = np.ones((4, 256), np.float32)

    def use(i: int) -> None:
        weights = {"w": np.full((256, 512), i, np.float32)}
        model = make_model(
            [node("MatMul", ["x", "w"], ["y"])], [("x", float32, ["N", 256])], [("y", float32, ["N", 512])], weights
        )
        (y,) = ort_mlx.session(model, claim="all", device="cpu").run(None, {"x": x})
        assert y[0, 0] == 256 * i

    for i in range(40):
        use(i)
    before = resident()
    for i in range(200):
        use(i)
    # A session that stayed would keep half a megabyte of weights.
    assert resident() - before < 16 << 20
