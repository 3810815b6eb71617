"""Attention as TensorFlow, Keras, optimum and models by hand spell it, and what is nearly attention, through stock onnxruntime,
which finds the shapes. The ways in which PyTorch's exporters write it are tested in ep-core."""

import numpy as np
import onnx.parser
import pytest
from spelled_attention import ADDED, ATTENTION, END, HEADS, NEAR_MISSES, NUMBERS, SEEN, each

import ort_mlx
from ort_mlx.compare import difference
from ort_mlx.reference import cpu_session, quiet
from ort_mlx.report import Placement

KERNEL = "attention/host"


def model(nodes: str, opset: int = 18) -> bytes:
    text = f"""<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        g (float[B,L,32] x, float[32,32] wq, float[32,32] wk, float[32,32] wv, int64[B,L] mask, float[1,4,L,L] positions, float[L,1] rows)
        => (float[B,L,32] y) {{ {NUMBERS} {nodes} }}"""
    parsed = onnx.parser.parse_model(text)
    triangle = np.tril(np.ones((1, 1, 16, 16), np.float32))
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(triangle, "triangle"))
    temperature = np.array([0.3, -0.5, 1.5, 2.5], np.float32).reshape(4, 1, 1)
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(temperature, "temperature"))
    return parsed.SerializeToString()


def kernels(tmp_path, model: bytes, tolerance: float = 1e-4) -> list[str]:
    """What runs in place of nodes; the numbers are onnxruntime's."""
    trace = tmp_path / "trace.jsonl"
    trace.unlink(missing_ok=True)
    ours = ort_mlx.session(model, quiet(), device="cpu", claim="all", trace=str(trace))
    theirs = cpu_session(model, optimise=False)
    rng = np.random.default_rng(7)
    for batch, length in [(2, 5), (1, 12)]:
        mask = np.arange(length) < rng.integers(2, length + 1, (batch, 1))
        feed = {
            "x": rng.standard_normal((batch, length, 32)),
            **{name: rng.standard_normal((32, 32)) / 6 for name in ["wq", "wk", "wv"]},
            "rows": rng.standard_normal((length, 1)),
            "positions": rng.standard_normal((1, 4, length, length)),
        }
        feed = {name: value.astype(np.float32) for name, value in feed.items()} | {"mask": mask.astype(np.int64)}
        feed = {i.name: feed[i.name] for i in theirs.get_inputs()}
        assert difference(ours.run(None, feed)[0], theirs.run(None, feed)[0], tolerance, tolerance / 10).agrees
    return [kernel for kernel, _, _ in Placement.read(trace).kernels()]


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(tmp_path, name):
    assert kernels(tmp_path, model(ATTENTION[name])) == [KERNEL]


@pytest.mark.parametrize("opset", [13, 15, 21])
def test_other_opsets(tmp_path, opset):
    for name in ["bert", "gpt2", "flat", "keras", "split_and_squeezed", "root_of_size"]:
        assert kernels(tmp_path, model(ATTENTION[name], opset)) == [KERNEL], name


# Before opset 13 a softmax takes the axes from its own on together, and axes are attributes.
BEFORE = HEADS + "kt = Transpose <perm = [0, 1, 3, 2]> (k)\n s = MatMul(q, kt)\n" + """
    f = Cast <to = 1> (mask)
    f4 = Unsqueeze <axes = [1, 2]> (f)
    g = Sub(one, f4)
    bias = Mul(g, low)
    u = Mul(s, scale)
    t = Add(u, bias)
    p = Softmax <axis = AXIS> (t)
""" + END


def test_before_opset_13(tmp_path):
    for axis in ["3", "-1"]:
        assert kernels(tmp_path, model(BEFORE.replace("AXIS", axis), 12)) == [KERNEL], axis
    assert kernels(tmp_path, model(BEFORE.replace("AXIS", "2"), 12)) == []
    assert kernels(tmp_path, model(BEFORE.replace("<axis = AXIS>", ""), 12)) == []


# Between casts: products in 16 bits, the softmax in 32.
HALF = "scaleh = Cast <to = 10> (scale)\n xh = Cast <to = 10> (x)\n" + each("w*h = Cast <to = 10> (w*)\n")
HALF += HEADS.replace("MatMul(x,", "MatMul(xh,").replace("wq)", "wqh)").replace("wk)", "wkh)").replace("wv)", "wvh)")
HALF += SEEN + """
    kt = Transpose <perm = [0, 1, 3, 2]> (k)
    s = MatMul(q, kt)
    u = Mul(s, scaleh)
    MASKED
    p = Cast <to = 10> (p32)
""" + END.replace("y = Reshape(y1, join)", "yh = Reshape(y1, join)\n y = Cast <to = 1> (yh)")
HALVES = {
    "masked_in_32_bits": "u32 = Cast <to = 1> (u)\n t = Where(seen, u32, lowest)\n p32 = Softmax <axis = -1> (t)",
    "masked_in_16_bits": "low16 = Constant <value_float = -65504.0> ()\n lowh = Cast <to = 10> (low16)\n t = Where(seen, u, lowh)\n t32 = Cast <to = 1> (t)\n p32 = Softmax <axis = -1> (t32)",
    "all_in_16_bits": "low16 = Constant <value_float = -65504.0> ()\n lowh = Cast <to = 10> (low16)\n t = Where(seen, u, lowh)\n p32 = Softmax <axis = -1> (t)",
}


@pytest.mark.parametrize("name", HALVES)
def test_in_16_bits(tmp_path, name):
    assert kernels(tmp_path, model(HALF.replace("MASKED", HALVES[name])), 2e-2) == [KERNEL]


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(tmp_path, name):
    assert kernels(tmp_path, model(NEAR_MISSES[name])) == []
