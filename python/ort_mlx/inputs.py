"""Inputs for a model: read from a file or made up."""

import zipfile
from pathlib import Path

import numpy as np

from ort_mlx.reference import cpu_session
from ort_mlx.values import BFLOAT16


class InputError(ValueError):
    """Something in a request that the user can put right."""


_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    BFLOAT16: np.float32,
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
    """The arrays of an ``.npz`` by name.

    Raises:
        InputError: if it is not one, or holds anything but plain arrays.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InputError(f"{path} holds one array without a name: save it with np.savez(path, NAME=array)")
        with archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not an .npz of plain arrays: {error}") from error


def make_inputs(model: Path, dims: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded values for every input of a model: normal floats, integers 0 and 1; symbolic dimensions from ``dims``, else 1.

    Raises:
        InputError: if ``dims`` names what no input has, or there are no values of an input's type.
    """
    rng = np.random.default_rng(seed)
    feeds = {}
    declared = cpu_session(model, optimise=False).get_inputs()
    symbols = {d for value in declared for d in value.shape if isinstance(d, str)}
    for name in dims:
        if name not in symbols:
            known = ", ".join(sorted(symbols)) or "none"
            raise InputError(f"no input has a dimension '{name}'; the model's symbolic dimensions: {known}")
    for value in declared:
        dtype = _NUMPY.get(value.type)
        if dtype is None:
            raise InputError(f"no values can be made up for input '{value.name}' of {value.type}: give --inputs")
        shape = [d if isinstance(d, int) else dims.get(d, 1) for d in value.shape]
        if np.issubdtype(dtype, np.floating):
            feeds[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feeds[value.name] = rng.integers(0, 2, shape).astype(dtype)
    return feeds
