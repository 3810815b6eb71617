"""Inputs for a model: read from a file or made up."""

from pathlib import Path

import numpy as np
import onnxruntime


class InputError(ValueError):
    """Something in a request that the user can put right."""


_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(bool)": np.bool_,
    "tensor(int8)": np.int8,
    "tensor(int16)": np.int16,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
}


def parse_dims(pairs: list[str]) -> dict[str, int]:
    """``["batch=2"]`` as ``{"batch": 2}``."""
    dims = {}
    for pair in pairs:
        name, _, size = pair.rpartition("=")
        if not name or not size.isdecimal():
            raise InputError(f"'{pair}' is not NAME=SIZE")
        dims[name] = int(size)
    return dims


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` by name."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def make_inputs(model: Path, dims: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded values for every input of a model: normal floats, integers 0 and 1; symbolic dimensions from ``dims``, else 1."""
    rng = np.random.default_rng(seed)
    feeds = {}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    for declared in session.get_inputs():
        dtype = _NUMPY.get(declared.type)
        if dtype is None:
            raise InputError(f"no values can be made up for input '{declared.name}' of {declared.type}: give --inputs")
        shape = [d if isinstance(d, int) else dims.get(d, 1) for d in declared.shape]
        if np.issubdtype(dtype, np.floating):
            feeds[declared.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feeds[declared.name] = rng.integers(0, 2, shape).astype(dtype)
    return feeds
