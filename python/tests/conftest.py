"""What the end-to-end tests share. They run through stock onnxruntime; ``cargo xtask test`` says where the plugin is."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ort_mlx


@pytest.fixture(scope="session", autouse=True)
def plugin():
    """Registers the plugin once; without it nothing here means anything."""
    assert ort_mlx.register(), "the plugin offers no device"


def make_model(nodes, inputs, outputs, initializers=(), opset=17, functions=()) -> bytes:
    """Bytes of a checked model. ``inputs`` and ``outputs`` are (name, numpy type or TensorProto type, shape)."""

    def info(name, dtype, shape):
        element = dtype if isinstance(dtype, int) else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, element, shape)

    graph = helper.make_graph(
        nodes,
        "test",
        [info(*i) for i in inputs],
        [info(*o) for o in outputs],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in dict(initializers).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()


@pytest.fixture(scope="session")
def add_model() -> bytes:
    """y = x + 1 for x (N, 3)."""
    return make_model(
        [helper.make_node("Add", ["x", "one"], ["y"])],
        [("x", TensorProto.FLOAT, ["N", 3])],
        [("y", TensorProto.FLOAT, ["N", 3])],
        {"one": np.float32(1)},
    )
