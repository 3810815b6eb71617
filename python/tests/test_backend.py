"""ONNX's own backend tests of single operators, through onnxruntime with everything claimed."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ort_mlx
from ort_mlx.compare import difference
from ort_mlx.corpus import cpu_session

DATA = Path(onnx.__file__).parent / "backend/test/data/node"
CASES = sorted(folder.name for folder in DATA.iterdir() if (folder / "model.onnx").is_file())


def values(folder: Path, kind: str, declared) -> list:
    """The values of one data set: arrays, lists for sequences, ``None`` for empty optionals."""
    read = []
    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda f: int(f.stem.rsplit("_", 1)[1]))
    for file, value in zip(files, declared):
        data = file.read_bytes()
        if value.type.startswith("tensor"):
            read.append(numpy_helper.to_array(onnx.TensorProto.FromString(data)))
        elif value.type.startswith("seq"):
            read.append(numpy_helper.to_list(onnx.SequenceProto.FromString(data)))
        else:
            read.append(numpy_helper.to_optional(onnx.OptionalProto.FromString(data)))
    return read


def agrees(got, wanted) -> bool:
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(agrees, got, wanted))
    if wanted is None or got is None:
        return got is wanted
    if wanted.dtype.kind in "OSU":
        return np.array_equal(np.asarray(got, dtype=object), np.asarray(wanted, dtype=object))
    relative, absolute = (1e-3, 1e-5) if wanted.dtype != np.float16 else (1e-2, 2e-3)
    return difference(got, wanted, relative, absolute).agrees


def run(session, folder: Path):
    """(got, wanted) for every data set, or the error."""
    pairs = []
    for data in sorted(folder.glob("test_data_set_*")):
        given = values(data, "input", session.get_inputs())
        feeds = {i.name: v for i, v in zip(session.get_inputs(), given)}
        pairs.append((session.run(None, feeds), values(data, "output", session.get_outputs())))
    return pairs


@pytest.mark.parametrize("name", CASES)
def test_node(name):
    """Right by ONNX's data, or equal to onnxruntime's CPU provider where that one differs or fails."""
    folder = DATA / name
    try:
        ours = run(ort_mlx.session(folder / "model.onnx", claim="all", device="cpu"), folder)
    except Exception as error:  # noqa: BLE001 - onnxruntime raises a class per status code
        ours = error
    if not isinstance(ours, Exception) and all(len(g) == len(w) and all(map(agrees, g, w)) for g, w in ours):
        return
    try:
        reference = run(cpu_session(folder / "model.onnx"), folder)
    except Exception as error:  # noqa: BLE001
        assert isinstance(ours, Exception), f"onnxruntime refuses ({error}), ours gives something else than the data"
        return
    assert not isinstance(ours, Exception), ours
    for (got, _), (wanted, _) in zip(ours, reference):
        assert all(map(agrees, got, wanted)), f"{got} for {wanted}"
