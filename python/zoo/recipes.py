"""Steps that derive one model from another: ``step(source, target, model)``."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper, version_converter


def random_weights(source: Path, target: Path, model) -> None:
    """Replaces the ConstantOfShape filler weights of onnx's light models, which make every output the same."""
    proto = onnx.load(source)
    graph, rng = proto.graph, np.random.default_rng(7)
    initializers = {i.name: i for i in graph.initializer}
    readers = defaultdict(list)
    for node in graph.node:
        for index, name in enumerate(node.input):
            readers[name].append((node, index))
    kept, shapes = [], set()
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in initializers:
            kept.append(node)
            continue
        shape = numpy_helper.to_array(initializers[node.input[0]]).tolist()
        weights = _weights(rng, shape, *_reader(readers, node.output[0]))
        graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), node.output[0]))
        shapes.add(node.input[0])
    del graph.node[:]
    graph.node.extend(kept)
    unused = shapes - {name for node in kept for name in node.input}
    _remove(graph.initializer, unused)
    # Since IR 4 an initializer that is no input is a constant that nobody may override.
    _remove(graph.input, unused | {i.name for i in graph.initializer})
    proto.ir_version = 8
    _spread_logits(proto, model)
    onnx.save(proto, target)


def _reader(readers, name: str) -> tuple[str, int]:
    """The operator that uses a weight, past an Unsqueeze, and as which input."""
    node, index = readers[name][0]
    if node.op_type == "Unsqueeze":
        node, index = readers[node.output[0]][0]
    return node.op_type, index


def _weights(rng: np.random.Generator, shape: list[int], op: str, index: int) -> np.ndarray:
    if len(shape) >= 2:
        return rng.standard_normal(shape) * (2.0 / max(1, np.prod(shape[1:]))) ** 0.5
    if op == "Mul" or (op == "BatchNormalization" and index in (1, 4)):
        return rng.uniform(0.8, 1.2, shape)
    return rng.standard_normal(shape) * 0.05


def _remove(items, names: set[str]) -> None:
    for item in [item for item in items if item.name in names]:
        items.remove(item)


def _spread_logits(proto: onnx.ModelProto, model) -> None:
    """Scales the classifier so that its logits spread by about 2: neither saturated nor flat."""
    graph = proto.graph
    last = graph.node[-1]
    if last.op_type != "Softmax":
        return
    probe = onnx.ModelProto()
    probe.CopyFrom(proto)
    probe.graph.output.append(helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    spread = float(session.run([last.input[0]], model.feeds())[0].std())
    makers = {name: node for node in graph.node for name in node.output}
    classifier = makers[last.input[0]]
    while classifier.op_type not in ("Gemm", "Conv"):
        classifier = makers[classifier.input[0]]
    factor = float(f"{2.0 / spread:.2g}") if spread > 0 else 1.0
    for initializer in graph.initializer:
        if initializer.name in classifier.input[1:]:
            scaled = (numpy_helper.to_array(initializer) * factor).astype(np.float32)
            initializer.CopyFrom(numpy_helper.from_array(scaled, initializer.name))


def _to_opset(opset: int):
    def step(source: Path, target: Path, model) -> None:
        onnx.save(version_converter.convert_version(onnx.load(source), opset), target)

    return step


def half_precision(source: Path, target: Path, model) -> None:
    """float16 inside, float32 at the border."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def dynamic_int8(source: Path, target: Path, model) -> None:
    """int8 weights, activations quantised at run time. MatMul only: an embedding row of -inf quantises to NaN."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType.QUInt8, op_types_to_quantize=["MatMul"])


def quantize_dequantize(source: Path, target: Path, model) -> None:
    """int8 weights and activations as QuantizeLinear/DequantizeLinear pairs."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter([model.feeds(seed) for seed in range(100, 104)])

        def get_next(self):
            return next(self.feeds, None)

    quantize_static(
        source,
        target,
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )


def fused_by_onnxruntime(source: Path, target: Path, model) -> None:
    """What onnxruntime's extended optimisations make of the model: com.microsoft operators."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


STEPS = {
    "rand": random_weights,
    "opset13": _to_opset(13),
    "opset21": _to_opset(21),
    "fp16": half_precision,
    "dynint8": dynamic_int8,
    "qdq": quantize_dequantize,
    "ortfuse": fused_by_onnxruntime,
}
