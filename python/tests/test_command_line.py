"""``python -m ort_mlx``: what it prints, and what it says to mistakes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import make_model
from onnx import TensorProto, helper, numpy_helper

from ort_mlx.__main__ import main
from ort_mlx.values import from_bfloat16, to_bfloat16


@pytest.fixture
def model(tmp_path, add_model) -> Path:
    path = tmp_path / "add.onnx"
    path.write_bytes(add_model)
    return path


@pytest.fixture
def command(capfd):
    """Runs the command line in this process: (exit status, standard output, standard error)."""

    def run(*arguments) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            status = main([str(a) for a in arguments])
        except SystemExit as error:
            status = error.code
        return (status, *capfd.readouterr())

    return run


def test_a_model_is_reported(model):
    line = [sys.executable, "-m", "ort_mlx", "run", str(model), "--dim", "N=5", "--device", "cpu"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 nodes on MLX in 1 clusters" in done.stdout


def test_a_report_as_json(command, model):
    status, out, _ = command("run", model, "--json", "--device", "cpu", "--repeat", "1")
    assert status == 0 and json.loads(out)["agrees"]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--dim", "NOPE=3"], "no input has a dimension 'NOPE'; the model's symbolic dimensions: N"),
        (["--dim", "N"], "'N' is not NAME=SIZE"),
        (["--dim", "N=2", "--inputs", "x.npz"], "use one of the two"),
        (["--repeat", "0"], "'0' is not a positive number"),
        (["--repeat", "-5"], "'-5' is not a positive number"),
    ],
)
def test_wrong_arguments_are_refused(command, model, arguments, wanted):
    status, _, errors = command("run", model, *arguments)
    assert status != 0 and wanted in errors


def test_a_missing_model_is_named(command, tmp_path):
    status, _, errors = command("run", tmp_path / "none.onnx")
    assert status == 1 and "none.onnx is not a file" in errors


def test_inputs_that_are_no_archive_are_named(command, model, tmp_path):
    np.save(tmp_path / "plain.npy", np.zeros((1, 3), np.float32))
    (tmp_path / "noise.npz").write_bytes(b"PK\x03\x04 and then nothing")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.savez(tmp_path / "objects.npz", x=np.array([{}, None]))
    np.savez(tmp_path / "cut.npz", x=np.zeros((50, 3), np.float32))
    whole = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    for file, wanted in {
        "plain.npy": "one array without a name",
        "noise.npz": "not an .npz of plain arrays",
        "empty.npz": "not an .npz of plain arrays",
        "objects.npz": "not an .npz of plain arrays",
        "cut.npz": "not an .npz of plain arrays",
        "nowhere.npz": "nowhere.npz",
    }.items():
        status, _, errors = command("run", model, "--inputs", tmp_path / file)
        assert status == 1 and wanted in errors and "Traceback" not in errors, (file, errors)


def gather_model() -> bytes:
    return make_model(
        [helper.make_node("Gather", ["x", "i"], ["y"])],
        [("x", np.float32, ["N"]), ("i", np.int64, [8])],
        [("y", np.float32, [8])],
    )


def test_made_up_inputs_that_fail_hint_at_real_ones(command, tmp_path):
    """Of two made-up indices, 0 and 1, the second lies outside an axis of one element. The error is said once."""
    path = tmp_path / "gather.onnx"
    path.write_bytes(gather_model())
    status, _, errors = command("run", path, "--device", "cpu")
    assert status == 1 and "give real ones by --inputs, or sizes by --dim" in errors
    assert errors.count("out of range") == 1 and "\x1b" not in errors, errors
    status, _, errors = command("run", path, "--device", "cpu", "--dim", "N=2", "--repeat", "1")
    assert status == 0, errors
    np.savez(tmp_path / "bad.npz", x=np.zeros(1, np.float32), i=np.full(8, 5))
    status, _, errors = command("run", path, "--device", "cpu", "--inputs", tmp_path / "bad.npz")
    assert status == 1 and "out of range" in errors and "--inputs" not in errors


def bfloat16_model() -> bytes:
    return make_model(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16), helper.make_node("Identity", ["b"], ["c"])],
        [("x", TensorProto.FLOAT, ["N"]), ("b", TensorProto.BFLOAT16, ["N"])],
        [("y", TensorProto.BFLOAT16, ["N"]), ("c", TensorProto.BFLOAT16, ["N"])],
    )


def test_bfloat16_goes_in_and_out(command, tmp_path):
    path = tmp_path / "half.onnx"
    path.write_bytes(bfloat16_model())
    for size in (9, 0):
        status, out, errors = command("run", path, "--device", "cpu", "--dim", f"N={size}", "--repeat", "1")
        assert status == 0 and "WRONG" not in out, out + errors


def test_bfloat16_rounds_to_even():
    import ml_dtypes

    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    x = np.concatenate([x, [0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1.00390625, 1.01171875]]).astype(np.float32)
    with np.errstate(over="ignore"):
        wanted = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(from_bfloat16(to_bfloat16(x)), wanted)


def test_data_sets_are_checked(command, tmp_path, add_model):
    """Right, wrong, broken and missing data, in both layouts: each is told, and none keeps the next from being checked."""
    x, y = np.zeros((1, 3), np.float32), np.ones((1, 3), np.float32)

    def case(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.onnx").write_bytes(add_model)
        return folder

    def protobuf(folder: Path, x: bytes, y: bytes) -> None:
        (folder / "test_data_set_0").mkdir()
        (folder / "test_data_set_0/input_0.pb").write_bytes(x)
        (folder / "test_data_set_0/output_0.pb").write_bytes(y)

    def tensor(value: np.ndarray) -> bytes:
        return numpy_helper.from_array(value).SerializeToString()

    np.savez(case("a_right") / "inputs.npz", x=x)
    np.savez(tmp_path / "a_right/expected.npz", y=y)
    protobuf(case("b_right"), tensor(x), tensor(y))
    status, out, errors = command("check", tmp_path, "--device", "cpu")
    assert status == 0 and "2 of 2 models right" in out, out + errors

    case("c_none")
    np.savez(case("d_broken") / "inputs.npz", x=x)
    (tmp_path / "d_broken/expected.npz").write_bytes(b"nothing")
    np.savez(case("e_half") / "inputs.npz", x=x)
    protobuf(case("f_broken"), b"\xff\xff\xff", tensor(y))
    size_lies = onnx.TensorProto(data_type=TensorProto.FLOAT, dims=[7, 7], raw_data=b"1234").SerializeToString()
    protobuf(case("g_size"), size_lies, tensor(y))
    protobuf(case("h_wrong"), tensor(x), tensor(x))
    status, out, errors = command("check", tmp_path, "--device", "cpu")
    assert status == 1 and "2 of 8 models right" in out, out + errors
    for wanted in [
        "WRONG c_none: no data beside the model",
        "WRONG d_broken: inputs.npz: ",
        "WRONG e_half: inputs.npz: ",
        "WRONG f_broken: test_data_set_0: input_0.pb is not a tensor",
        "WRONG g_size: test_data_set_0: input_0.pb is not a tensor",
        "WRONG h_wrong: test_data_set_0: y: 100.00% of the values differ",
    ]:
        assert wanted in out, (wanted, out)
