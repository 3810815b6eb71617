"""What the tests of the operator domain share: models of one node, runs, and comparisons."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_mlx

DOMAIN = "ai.ortmlx"
# Errors relative to the largest value of an output.
TOLERANCE = {TensorProto.FLOAT: 1e-5, TensorProto.FLOAT16: 4e-3, TensorProto.BFLOAT16: 3e-2}


def node_model(op, axes, inputs, outputs, element=TensorProto.FLOAT, shapes=(), types=(), **attributes) -> bytes:
    """One node, its values with these axes; "" leaves one out.

    The graph takes and gives float32, and casts if ``element`` is another type; ``types`` says which values have a type of
    their own, and stay as they are.
    """
    shapes, types = dict(shapes), dict(types)

    def casts(name):
        return element != TensorProto.FLOAT and name not in types

    def info(name):
        return helper.make_tensor_value_info(name, types.get(name, TensorProto.FLOAT), shapes.get(name, list(axes[name])))

    def inner(name):
        return name and (f"{name}_cast" if casts(name) else name)

    given, made = [n for n in inputs if n], [n for n in outputs if n]
    nodes = [helper.make_node("Cast", [n], [inner(n)], to=element) for n in given if casts(n)]
    nodes.append(helper.make_node(op, map(inner, inputs), map(inner, outputs), "node", domain=DOMAIN, **attributes))
    nodes += [helper.make_node("Cast", [inner(n)], [n], to=TensorProto.FLOAT) for n in made if casts(n)]
    graph = helper.make_graph(nodes, "domain", [info(n) for n in given], [info(n) for n in made])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def rounded(feeds: dict, element) -> dict:
    """What is left of float32 values in a type of 16 bits, as float64."""
    dtype = helper.tensor_dtype_to_np_dtype(element)
    return {
        name: value.astype(dtype).astype(np.float64) if value.dtype == np.float32 else value
        for name, value in feeds.items()
    }


def run(model: bytes, feeds, claim="none") -> dict[str, np.ndarray]:
    """The outputs by name."""
    session = ort_mlx.session(model, claim=claim, device="cpu")
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


def near(got: dict, wanted: dict, element=TensorProto.FLOAT) -> None:
    """Compares what is in ``got``."""
    for name, value in got.items():
        assert value.shape == wanted[name].shape, name
        finite = np.isfinite(wanted[name])
        assert np.array_equal(value[~finite], wanted[name][~finite]), name
        limit = TOLERANCE[element] * max(np.abs(wanted[name][finite]).max(initial=0), 1e-30)
        assert np.abs(value[finite] - wanted[name][finite]).max(initial=0) <= limit, name


def refused(model: bytes, wanted: str, claim="none") -> None:
    """The model does not load, and the reason matches ``wanted``."""
    with pytest.raises(Exception, match=wanted):
        ort_mlx.session(model, claim=claim, device="cpu")


claims = pytest.mark.parametrize("claim", ["none", "all"])
