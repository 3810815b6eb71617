"""The package ``ort_mlx``: finding, registering, choosing, and the errors that a user will meet."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from conftest import make_model
from onnx import TensorProto, helper

import ort_mlx


def test_registration_is_idempotent():
    assert ort_mlx.register() is not None
    assert [d.ep_name for d in ort_mlx.register()] == [d.ep_name for d in ort_mlx.devices()]
    assert {d.ep_name for d in ort_mlx.devices()} == {ort_mlx.EP_NAME}


def test_a_session_lists_the_provider_and_runs(add_model):
    session = ort_mlx.session(add_model, claim="all", device="cpu")
    assert session.get_providers()[0] == ort_mlx.EP_NAME
    (y,) = session.run(None, {"x": np.zeros((2, 3), np.float32)})
    np.testing.assert_array_equal(y, np.ones((2, 3), np.float32))


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("ORT_MLX_LIBRARY", str(tmp_path / "nowhere.so"))
    with pytest.raises(ort_mlx.LibraryNotFound, match="nowhere.so"):
        ort_mlx.library_path()
    monkeypatch.delenv("ORT_MLX_LIBRARY")
    with pytest.raises(ort_mlx.LibraryNotFound, match="cargo build --release -p ep-plugin"):
        ort_mlx.library_path()


def test_an_old_onnxruntime_is_named(monkeypatch):
    monkeypatch.setattr(onnxruntime, "__version__", "1.23.2")
    with pytest.raises(ort_mlx.OrtTooOld, match="1.23.2 is too old.*onnxruntime>=1.24"):
        ort_mlx.register()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"devise": "gpu"}, "unknown option 'devise'.*device.*claim"),
        ({"claim": "everything"}, "'claim'.*'everything'.*auto, all or none"),
        ({"device": "tpu"}, "'device'.*'tpu'.*auto, gpu or cpu"),
    ],
)
def test_a_wrong_option_is_refused(add_model, options, wanted):
    with pytest.raises(Exception, match=wanted):
        ort_mlx.session(add_model, **options)


def test_the_environment_overrides_options(add_model):
    program = (
        "import ort_mlx, sys\n"
        "try:\n"
        "    ort_mlx.session(sys.stdin.buffer.read(), claim='all')\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "ORT_MLX_CLAIM": "everything"}
    done = subprocess.run([sys.executable, "-c", program], input=add_model, env=environment, capture_output=True)
    assert b"'everything'" in done.stdout, done.stdout + done.stderr


def test_an_empty_environment_variable_counts_as_unset(monkeypatch, add_model):
    monkeypatch.setenv("ORT_MLX_CLAIM", "")
    session = ort_mlx.session(add_model, claim="all", device="cpu")
    assert session.get_providers()[0] == ort_mlx.EP_NAME


def test_session_options_serve_many_sessions(add_model):
    options = onnxruntime.SessionOptions()
    for _ in range(3):
        session = ort_mlx.session(add_model, options, claim="all", device="cpu")
        assert session.get_providers()[0] == ort_mlx.EP_NAME
        assert session.run(None, {"x": np.zeros((1, 3), np.float32)})[0].tolist() == [[1, 1, 1]]
    with pytest.raises(ValueError, match="carry MLXExecutionProvider with .*'all'.* already.*'none'"):
        ort_mlx.session(add_model, options, claim="none", device="cpu")


def test_a_shape_beyond_mlx_is_said_to_be(shape_model):
    session = ort_mlx.session(shape_model, claim="all", device="cpu")
    for shape in [[3_000_000_000, 0], [1 << 40, 1]]:
        with pytest.raises(Exception, match=r"ConstantOfShape node #0: shape \[.*\] is beyond MLX, whose sizes end at") as error:
            session.run(None, {"shape": np.array(shape)})
        assert "bug" not in str(error.value)


@pytest.fixture(scope="module")
def shape_model() -> bytes:
    """ConstantOfShape, from a node without a name."""
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"])
    return make_model([node], [("shape", np.int64, [2])], [("y", np.float32, ["A", "B"])])


def test_malformed_models_are_errors(tmp_path, add_model):
    for name, data in {"empty": b"", "noise": bytes(range(256)), "cut": add_model[: len(add_model) // 2]}.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(data)
        with pytest.raises(Exception, match="(?i)parse|protobuf|load|invalid|graph|model|ORT"):
            ort_mlx.session(path, claim="all")
    with pytest.raises(Exception, match="(?i)exist|such file"):
        ort_mlx.session(tmp_path / "missing.onnx", claim="all")


def test_wrong_inputs_are_errors(add_model):
    session = ort_mlx.session(add_model, claim="all", device="cpu")
    with pytest.raises(Exception, match="(?i)type"):
        session.run(None, {"x": np.zeros((2, 3), np.float64)})
    with pytest.raises(Exception, match="(?i)dimension|rank|shape"):
        session.run(None, {"x": np.zeros((2, 4), np.float32)})
    with pytest.raises(Exception, match="(?i)x"):
        session.run(None, {"z": np.zeros((2, 3), np.float32)})
    (y,) = session.run(None, {"x": np.ones((1, 3), np.float32)})
    np.testing.assert_array_equal(y, np.full((1, 3), 2, np.float32))


def test_a_misfit_leaves_an_ordinary_session_on_the_provider():
    """onnxruntime's Python layer gives a provider up for good at the status EP_FAIL: a user's mistake must not be one."""
    model = make_model(
        [helper.make_node("Add", ["x", "z"], ["y"])],
        [("x", TensorProto.FLOAT, ["A", 2]), ("z", TensorProto.FLOAT, ["B", 2])],
        [("y", TensorProto.FLOAT, ["C", 2])],
    )
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(ort_mlx.devices()[:1], {"claim": "all", "device": "cpu"})
    session = onnxruntime.InferenceSession(model, options)
    with pytest.raises(Exception, match="Add"):
        session.run(None, {"x": np.zeros((5, 2), np.float32), "z": np.zeros((3, 2), np.float32)})
    assert session.get_providers()[0] == ort_mlx.EP_NAME
    (y,) = session.run(None, {"x": np.ones((5, 2), np.float32), "z": np.ones((5, 2), np.float32)})
    np.testing.assert_array_equal(y, np.full((5, 2), 2, np.float32))


def test_what_memory_cannot_hold_is_an_error():
    model = make_model(
        [helper.make_node("ConstantOfShape", ["s"], ["c"]), helper.make_node("Exp", ["c"], ["y"])],
        [("s", TensorProto.INT64, [2])],
        [("y", TensorProto.FLOAT, ["A", "B"])],
    )
    session = ort_mlx.session(model, claim="all", device="cpu")
    with pytest.raises(Exception, match="more than the .* that MLX may use"):
        session.run(None, {"s": np.array([10**6, 10**6])})
    assert session.run(None, {"s": np.array([1, 2])})[0].tolist() == [[1, 1]]
