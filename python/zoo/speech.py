"""A synthetic speech enhancer: Mamba-1 blocks over time and over frequency, each forward and reverse, as exporters write them.

The shape is that of published dual-path enhancers; the weights are random. Its selective scans are ONNX ``Scan`` nodes.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STATES = 16
# Four scans a layer: time forward, time reverse, frequency forward, frequency reverse.
SCANS_PER_LAYER = 4


class _Builder:
    """Collects nodes and weights."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes) -> str | list[str]:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"{op}_{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, values: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def constant(self, values: list[int]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def normal(self, *shape: int) -> str:
        return self.weight(self.rng.normal(0.0, shape[0] ** -0.5, shape))


def _body(channels: int) -> onnx.GraphProto:
    """One step of the recurrence: states h, A; scan inputs dt, b, c, x."""
    node, info = helper.make_node, helper.make_tensor_value_info

    def f32(name: str, *dims) -> onnx.ValueInfoProto:
        return info(name, TensorProto.FLOAT, dims)

    last, middle, first = (numpy_helper.from_array(np.array([axis]), name) for name, axis in [("last", -1), ("middle", 1), ("first", 0)])
    nodes = [
        node("Unsqueeze", ["dt", "last"], ["dt_col"]),
        node("Unsqueeze", ["A", "first"], ["A_row"]),
        node("Mul", ["dt_col", "A_row"], ["log_decay"]),
        node("Exp", ["log_decay"], ["decay"]),
        node("Unsqueeze", ["x", "last"], ["x_col"]),
        node("Mul", ["dt_col", "x_col"], ["dt_x"]),
        node("Unsqueeze", ["b", "middle"], ["b_row"]),
        node("Mul", ["dt_x", "b_row"], ["u"]),
        node("Mul", ["decay", "h"], ["kept"]),
        node("Add", ["kept", "u"], ["h_next"]),
        node("Unsqueeze", ["c", "middle"], ["c_row"]),
        node("Mul", ["h_next", "c_row"], ["weighed"]),
        node("ReduceSum", ["weighed", "last"], ["y"], keepdims=0),
        node("Identity", ["A"], ["A_next"]),
    ]
    inputs = [f32("h", "S", channels, STATES), f32("A", channels, STATES), f32("dt", "S", channels)]
    inputs += [f32("b", "S", STATES), f32("c", "S", STATES), f32("x", "S", channels)]
    outputs = [f32("h_next", "S", channels, STATES), f32("A_next", channels, STATES), f32("y", "S", channels)]
    return helper.make_graph(nodes, "selective_scan_step", inputs, outputs, [last, middle, first])


def _scan(b: _Builder, sequence: str, channels: int, reverse: bool) -> str:
    """The selective scan of ``sequence`` (T, S, channels), with its projections, skip and gate."""
    x = b.node("MatMul", sequence, b.normal(channels, channels))
    rate = b.node("Softplus", b.node("Add", b.node("MatMul", x, b.normal(channels, channels)), b.weight(np.full(channels, -3.0))))
    row, column = b.node("MatMul", x, b.normal(channels, STATES)), b.node("MatMul", x, b.normal(channels, STATES))
    decay = b.weight(-np.tile(np.arange(1.0, STATES + 1), (channels, 1)))
    batch = b.node("Slice", b.node("Shape", x), *(b.constant(v) for v in ([1], [2])))
    shape = b.node("Concat", batch, b.constant([channels, STATES]), axis=0)
    zero = b.node("ConstantOfShape", shape, value=numpy_helper.from_array(np.zeros(1, np.float32)))
    way = [int(reverse)]
    _, _, y = b.node(
        "Scan", zero, decay, rate, row, column, x,
        outputs=3, body=_body(channels), num_scan_inputs=4, scan_input_directions=way * 4, scan_output_directions=way,
    )  # fmt: skip
    y = b.node("Add", y, b.node("Mul", x, b.weight(np.ones(channels))))
    gate = b.node("MatMul", sequence, b.normal(channels, channels))
    y = b.node("Mul", y, b.node("Mul", gate, b.node("Sigmoid", gate)))
    return b.node("MatMul", y, b.normal(channels, channels))


def model(layers: int = 30, channels: int = 16, seed: int = 0) -> bytes:
    """The model: input x (frames, bands, channels), output y of the same shape. It has 4 * ``layers`` scans."""
    b = _Builder(seed)
    x = "x"
    for _ in range(layers):
        for axis in ("time", "frequency"):
            sequence = x if axis == "time" else b.node("Transpose", x, perm=[1, 0, 2])
            both = b.node("Add", _scan(b, sequence, channels, False), _scan(b, sequence, channels, True))
            both = both if axis == "time" else b.node("Transpose", both, perm=[1, 0, 2])
            x = b.node("LayerNormalization", b.node("Add", x, both), b.weight(np.ones(channels)), b.weight(np.zeros(channels)))
    b.nodes.append(helper.make_node("Identity", [x], ["y"], "last"))
    sizes = ["frames", "bands", channels]
    graph = helper.make_graph(
        b.nodes,
        "speech",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)],
        b.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def one_scan(channels: int = 256) -> bytes:
    """A single Scan and nothing else: inputs dt, x (T, S, channels), b, c (T, S, 16), A (channels, 16), h (S, channels, 16)."""
    names = ["h", "A", "dt", "b", "c", "x"]
    dims = [["S", channels, STATES], [channels, STATES], ["T", "S", channels]]
    dims += [["T", "S", STATES], ["T", "S", STATES], ["T", "S", channels]]
    scan = helper.make_node("Scan", names, ["h_last", "A_last", "y"], "scan", body=_body(channels), num_scan_inputs=4)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in zip(names, dims)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["T", "S", channels])]
    graph = helper.make_graph([scan], "one_scan", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def one_scan_feeds(steps: int, batch: int, channels: int = 256, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of :func:`one_scan` of the sizes that trained models have."""
    rng = np.random.default_rng(seed)
    feeds = {
        "h": np.zeros((batch, channels, STATES)),
        "A": -np.tile(np.arange(1.0, STATES + 1), (channels, 1)),
        "dt": np.exp(rng.uniform(np.log(1e-3), np.log(1e-1), (steps, batch, channels))),
        "b": rng.standard_normal((steps, batch, STATES)),
        "c": rng.standard_normal((steps, batch, STATES)),
        "x": rng.standard_normal((steps, batch, channels)),
    }
    return {name: value.astype(np.float32) for name, value in feeds.items()}
