"""Writes the models of this folder with the Python package `onnx` (made with 1.23): python make.py"""

import math
import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h

OPSETS = [h.make_opsetid("", 17), h.make_opsetid("com.example", 1)]


def model(name, graph, functions=(), ir_version=10, **kwargs):
    m = h.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=ir_version,
                     producer_name="make.py", producer_version="1", **kwargs)
    onnx.save(m, name)
    return m


def elements():
    """Every element type twice: in its typed field as `helper` lays it out, and as raw bytes by `numpy_helper`."""
    tensors = []
    for number, name in sorted((v, k) for k, v in T.DataType.items()):
        if name in ("UNDEFINED", "STRING", "FLOAT6E2M3", "FLOAT6E3M2"):
            continue
        dtype = h.tensor_dtype_to_np_dtype(number)
        values = np.array([0, 1, -1, 1, 0, -1, 1], np.float32)
        if "UINT" in name or name in ("BOOL", "FLOAT8E8M0"):
            values = np.array([1, 0, 2, 3, 1, 1, 2], np.float32)
        if name == "BOOL":
            values = values != 0
        array = values.astype(dtype)
        tensors.append(h.make_tensor(f"{name.lower()}_typed", number, array.shape, array.tolist()))
        raw = onnx.numpy_helper.from_array(array, f"{name.lower()}_raw")
        assert raw.data_type == number and raw.HasField("raw_data")
        tensors.append(raw)
    graph = h.make_graph([], "elements", [], [], tensors)
    model("elements.onnx", graph, ir_version=14)


def structure():
    """Optional inputs, symbols, nested bodies, strings, sequences and an initializer that may be overridden."""
    info = h.make_tensor_value_info
    inner = h.make_graph(
        [h.make_node("Add", ["x", "shift"], ["inner_y"])], "inner", [], [info("inner_y", T.FLOAT, None)])
    then = h.make_graph(
        [h.make_node("If", ["flag2"], ["then_y"], then_branch=inner, else_branch=h.make_graph(
            [h.make_node("Identity", ["x"], ["inner_z"])], "inner_else", [], [info("inner_z", T.FLOAT, None)]))],
        "then", [], [info("then_y", T.FLOAT, None)])
    other = h.make_graph(
        [h.make_node("Mul", ["x", "local"], ["else_y"])], "else", [], [info("else_y", T.FLOAT, None)],
        [h.make_tensor("local", T.FLOAT, [], [3.0])])
    nodes = [
        h.make_node("Clip", ["x", "", "shift"], ["clipped"], name="clip"),
        h.make_node("If", ["flag"], ["y"], name="if", then_branch=then, else_branch=other),
        h.make_node("SequenceConstruct", ["clipped", "y"], ["seq"]),
        h.make_node("Fancy", ["words"], ["fancy", ""], domain="com.example", f=0.5, i=-3, s="text", fs=[1.0, 2.0],
                    ints=[4, 5], ss=["a", "b"], t=h.make_tensor("t", T.INT64, [2], [7, 8]),
                    st=h.make_tensor("st", T.STRING, [1], [b"s"]), ty=h.make_tensor_type_proto(T.FLOAT, [])),
    ]
    graph = h.make_graph(
        nodes, "structure",
        [info("x", T.FLOAT, ["N", 3, None]), info("flag", T.BOOL, []), info("flag2", T.BOOL, []),
         info("shift", T.FLOAT, [])],
        [h.make_tensor_sequence_value_info("seq", T.FLOAT, None), info("fancy", T.INT32, [1])],
        [h.make_tensor("shift", T.FLOAT, [], [1.5]), h.make_tensor("words", T.STRING, [2], [b"a", b"bc"])],
        value_info=[info("y", T.FLOAT, ["N", 3, None])])
    model("structure.onnx", graph)


def reference(name, of):
    attribute = h.make_attribute_ref(name, onnx.AttributeProto.FLOAT)
    attribute.ref_attr_name = of
    return attribute


def functions():
    """Calls that call, defaults and references of attributes, omitted parameters, bodies; and what onnx makes of them."""
    info = h.make_tensor_value_info
    leaky = h.make_node("LeakyRelu", ["a"], ["t"])
    leaky.attribute.append(reference("alpha", "slope"))
    inner = h.make_function(
        "com.example", "Inner", ["a", "low"], ["r"],
        [leaky, h.make_node("Clip", ["t", "low"], ["r"])], [h.make_opsetid("", 17)],
        attributes=[], attribute_protos=[h.make_attribute("slope", 0.25)])
    branch = h.make_graph([h.make_node("Neg", ["t"], ["n"])], "negate", [], [info("n", T.FLOAT, None)])
    keep = h.make_graph([h.make_node("Identity", ["p"], ["k"])], "keep", [], [info("k", T.FLOAT, None)])
    call = h.make_node("Inner", ["p"], ["t"], domain="com.example")
    call.attribute.append(reference("slope", "steep"))
    outer = h.make_function(
        "com.example", "Outer", ["p", "c"], ["q", "unused"],
        [call, h.make_node("If", ["c"], ["q"], then_branch=branch, else_branch=keep),
         h.make_node("Relu", ["t"], ["unused"])],
        [h.make_opsetid("", 17), h.make_opsetid("com.example", 1)], attributes=["steep"])
    nodes = [
        h.make_node("Outer", ["x", "flag"], ["u", "ignored"], domain="com.example", steep=0.5),
        h.make_node("Outer", ["u", "flag"], ["v", ""], domain="com.example"),
        h.make_node("Inner", ["v", "x"], ["y"], domain="com.example"),
    ]
    graph = h.make_graph(nodes, "functions", [info("x", T.FLOAT, []), info("flag", T.BOOL, [])],
                         [info("y", T.FLOAT, [])])
    m = model("functions.onnx", graph, [inner, outer])
    onnx.checker.check_model(m)
    from onnx import inliner
    onnx.save(inliner.inline_local_functions(m), "functions_inlined.onnx")


def external():
    """A weight in a file of its own."""
    weight = onnx.numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3) / 4, "w")
    x = h.make_tensor_value_info("x", T.FLOAT, ["N", 2])
    y = h.make_tensor_value_info("y", T.FLOAT, ["N", 3])
    graph = h.make_graph([h.make_node("MatMul", ["x", "w"], ["y"])], "external", [x], [y], [weight])
    m = h.make_model(graph, opset_imports=OPSETS, ir_version=10)
    pathlib.Path("external.bin").unlink(missing_ok=True)
    onnx.save(m, "external.onnx", save_as_external_data=True, location="external.bin", size_threshold=0)


def old():
    """IR 3: the initializer has to be an input too."""
    info = h.make_tensor_value_info
    graph = h.make_graph([h.make_node("Add", ["x", "w"], ["y"])], "old", [info("x", T.FLOAT, []), info("w", T.FLOAT, [])],
                         [info("y", T.FLOAT, [])], [h.make_tensor("w", T.FLOAT, [], [math.pi])])
    model("old.onnx", graph, ir_version=3)


for make in (elements, structure, functions, external, old):
    make()
