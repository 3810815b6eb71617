"""Operators that a model spells out: what the trace and the command line say, and the option that stops it.

Spellings and near misses are tested in ep-core; here is what a user sees."""

import numpy as np
import onnx.parser

import ort_mlx
from ort_mlx.__main__ import main
from ort_mlx.compare import difference
from ort_mlx.reference import cpu_session, quiet
from ort_mlx.report import Placement
from zoo import spellings

RNG = np.random.default_rng(5)

# RMS normalisation, then SiLU.
MODEL = """g (float[B,16] x) => (float[B,16] y) <float two = {2.0}, float epsilon = {0.00001}> {
    squares = Pow(x, two)
    mean = ReduceMean <axes = [-1]> (squares)
    sum = Add(mean, epsilon)
    root = Sqrt(sum)
    inverse = Reciprocal(root)
    normal = Mul(x, inverse)
    gate = Sigmoid(normal)
    y = Mul(normal, gate)
}"""


def model() -> bytes:
    text = f'<ir_version: 10, opset_import: ["" : 17]>\n{MODEL}'
    return onnx.parser.parse_model(text).SerializeToString()


def kernels(tmp_path, **options) -> list[str]:
    """What runs in place of nodes; the numbers are onnxruntime's."""
    trace = tmp_path / "trace.jsonl"
    trace.unlink(missing_ok=True)
    ours = ort_mlx.session(model(), quiet(), device="cpu", trace=str(trace), **options)
    theirs = cpu_session(model(), optimise=False)
    for batch in (1, 7):
        feed = {"x": RNG.uniform(-2, 2, (batch, 16)).astype(np.float32)}
        assert difference(ours.run(None, feed)[0], theirs.run(None, feed)[0], 1e-4, 1e-5).agrees
    return sorted(kernel for kernel, _, _ in Placement.read(trace).kernels())


def test_spellings_run_as_one_operator_where_they_are_claimed(tmp_path):
    assert kernels(tmp_path, claim="all") == ["rms_norm", "swish"]
    assert kernels(tmp_path, claim="all", rewrite="off") == []
    # On a CPU they are no reason to claim anything.
    assert kernels(tmp_path, claim="auto") == []


# A norm and a GELU in a body, with constants outside of it.
IN_A_BODY = """g (float[B,3,8] x, bool chosen) => (float[B,3,8] y) <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float half = {0.5},
    float one = {1}, float root = {1.4142135}, float epsilon = {0.00001}, int64[1] last = {-1}> {
    y = If (chosen) <then_branch = yes () => (float[B,3,8] a) {
        mean = ReduceMean(x, last)
        above = Sub(x, mean)
        squares = Mul(above, above)
        power = ReduceMean(squares, last)
        sum = Add(power, epsilon)
        deviation = Sqrt(sum)
        normal = Div(above, deviation)
        z = Mul(normal, w)
        u = Div(z, root)
        e = Erf(u)
        p = Add(e, one)
        t = Mul(z, p)
        a = Mul(t, half)
    }, else_branch = no () => (float[B,3,8] b) { b = Mul(x, w) }>
}"""


def test_spellings_in_a_body(tmp_path):
    text = f'<ir_version: 10, opset_import: ["" : 18]>\n{IN_A_BODY}'
    bytes_ = onnx.parser.parse_model(text).SerializeToString()
    trace = tmp_path / "trace.jsonl"
    ours = ort_mlx.session(bytes_, quiet(), device="cpu", trace=str(trace), claim="all")
    theirs = cpu_session(bytes_, optimise=False)
    for chosen in (True, False):
        feed = {"x": RNG.uniform(-2, 2, (2, 3, 8)).astype(np.float32), "chosen": np.array(chosen)}
        assert difference(ours.run(None, feed)[0], theirs.run(None, feed)[0], 1e-4, 1e-5).agrees
    # Before onnxruntime 1.27 such a node stays there, and its bodies are graphs of their own.
    assert sorted(kernel for kernel, _, _ in Placement.read(trace).kernels()) == ["gelu", "layer_norm"]


def folder(tmp_path):
    case = tmp_path / "models" / "case"
    case.mkdir(parents=True)
    (case / "model.onnx").write_bytes(model())
    x = RNG.uniform(-2, 2, (3, 16)).astype(np.float32)
    np.savez(case / "inputs.npz", x=x)
    np.savez(case / "expected.npz", y=cpu_session(model(), optimise=False).run(None, {"x": x})[0])
    return case.parent


def test_check_counts_what_runs_in_place_of_nodes(tmp_path, capsys):
    assert main(["check", str(folder(tmp_path)), "--device", "cpu", "--fused"]) == 0
    out = capsys.readouterr().out
    assert "1 rms_norm: in 1 models" in out and "1 swish: in 1 models" in out, out


def test_spellings_are_counted(tmp_path):
    there, recognised, differ = spellings.count(folder(tmp_path))
    assert there == recognised and differ == []
    assert {kind for kind, count in there.items() if count} == {"RMS normalisation", "SiLU, QuickGELU"}
