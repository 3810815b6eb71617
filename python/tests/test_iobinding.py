"""Tensors in MLX's memory: bound to inputs and outputs they are not copied, and with CUDA never pass through the host.

On a machine with a GPU the same file shows it for the GPU: ``python -m pytest python/tests/test_iobinding.py``.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from conftest import make_model
from onnx import TensorProto, helper

import ort_mlx

node = helper.make_node
SIZE = 256


def step_model(weights: np.ndarray, bias: np.ndarray) -> bytes:
    """y = tanh(x w + b), and how many of y are positive in each row."""
    return make_model(
        [
            node("MatMul", ["x", "w"], ["h"]),
            node("Add", ["h", "b"], ["s"]),
            node("Tanh", ["s"], ["y"]),
            node("Greater", ["y", "zero"], ["positive"]),
        ],
        [("x", TensorProto.FLOAT, ["N", SIZE])],
        [("y", TensorProto.FLOAT, ["N", SIZE]), ("positive", TensorProto.BOOL, ["N", SIZE])],
        {"w": weights, "b": bias, "zero": np.float32(0)},
    )


def runs(trace) -> list[dict]:
    lines = map(json.loads, trace.read_text().splitlines())
    return [line for line in lines if line["event"] == "run"]


def has_cuda() -> bool:
    """Whether MLX's memory is a GPU's that is reached over a bus."""
    return ort_mlx.empty([1]).device_name() != "cpu" and sys.platform != "darwin"


def test_a_chain_of_runs_leaves_its_tensors_where_they_are(tmp_path):
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal((SIZE, SIZE)) / (2 * np.sqrt(SIZE))).astype(np.float32)
    bias = rng.standard_normal(SIZE).astype(np.float32)
    start = rng.standard_normal((64, SIZE)).astype(np.float32)
    wanted = start.astype(np.float64)
    for _ in range(100):
        wanted = np.tanh(wanted @ weights + bias)

    trace = tmp_path / "trace.jsonl"
    session = ort_mlx.session(step_model(weights, bias), claim="all", trace=str(trace))
    here, there = ort_mlx.empty(start.shape), ort_mlx.empty(start.shape)
    positive = ort_mlx.empty(start.shape, bool)
    here.numpy()[...] = start
    for _ in range(100):
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", here)
        binding.bind_ortvalue_output("y", there)
        binding.bind_ortvalue_output("positive", positive)
        session.run_with_iobinding(binding)
        here, there = there, here
    np.testing.assert_allclose(here.numpy(), wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(positive.numpy(), here.numpy() > 0)
    moved = runs(trace)
    assert len(moved) == 100
    written = 0 if has_cuda() else start.nbytes + start.size
    for run in moved:
        assert run["copied_in"] == 0 and run["read_in_place"] == start.nbytes, run
        assert run["copied_out"] == written, run


def test_bools_and_small_tensors_stay_there_too(tmp_path):
    model = make_model(
        [node("Not", ["x"], ["y"])], [("x", TensorProto.BOOL, ["N"])], [("y", TensorProto.BOOL, ["N"])]
    )
    trace = tmp_path / "trace.jsonl"
    session = ort_mlx.session(model, claim="all", trace=str(trace))
    x, y = ort_mlx.empty([1000], bool), ort_mlx.empty([1000], bool)
    x.numpy()[...] = np.arange(1000) % 3 == 0
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y.numpy(), np.arange(1000) % 3 != 0)
    (run,) = runs(trace)
    assert run["copied_in"] == 0 and run["read_in_place"] == 1000, run


def test_parts_of_a_tensor_can_be_bound(add_model):
    """By address, as slices of a cache are: they begin somewhere in the memory of another tensor."""
    session = ort_mlx.session(add_model, claim="all")
    whole = ort_mlx.empty([100, 3])
    whole.numpy()[...] = np.arange(300).reshape(100, 3)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, [10, 3], whole.data_ptr() + 20 * 12)
    binding.bind_output("y", "cpu", 0, np.float32, [10, 3], whole.data_ptr() + 60 * 12)
    session.run_with_iobinding(binding)
    wanted = np.arange(300, dtype=np.float32).reshape(100, 3)
    wanted[60:70] = wanted[20:30] + 1
    np.testing.assert_array_equal(whole.numpy(), wanted)


def test_tensors_are_copied_to_and_from_the_hosts_memory():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    host = onnxruntime.OrtValue.ortvalue_from_numpy(values.copy())
    ours, other = ort_mlx.empty([3, 4]), ort_mlx.empty([3, 4])
    onnxruntime.copy_tensors([host], [ours])
    onnxruntime.copy_tensors([ours], [other])
    host.numpy()[...] = 0
    onnxruntime.copy_tensors([other], [host])
    np.testing.assert_array_equal(host.numpy(), values)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_given_back():
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(20):
        ort_mlx.empty([4 << 20]).numpy()[...] = 1
    before = resident()
    for _ in range(200):
        ort_mlx.empty([4 << 20]).numpy()[...] = 1
    assert resident() - before < 64 << 20


def test_too_much_memory_is_an_error():
    with pytest.raises(MemoryError, match="no memory"):
        ort_mlx.empty([1 << 50])
    assert ort_mlx.empty([0, 3]).numpy().shape == (0, 3)
