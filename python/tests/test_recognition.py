"""Recurrences that are recognised and run as one kernel: what the trace says, what a CPU takes, and the option that stops it.

Spellings and near misses are tested in ep-core; here is what a user sees."""

import json

import numpy as np
import onnx.parser
import pytest

import ort_mlx
from ort_mlx.compare import difference
from ort_mlx.reference import cpu_session, quiet
from ort_mlx.report import Placement

RNG = np.random.default_rng(11)

# A selective scan, with something before and after it that is none.
MODEL = """g (float[T,B,D] dt, float[T,B,D] x, float[T,B,N] b, float[T,B,N] c, float[D,N] A, float[B,D,N] h0)
    => (float[T,B,D] y, float[B,D,N] last) {
    step = Softplus(dt)
    last, sums = Scan <num_scan_inputs = 4, body = body
        (float[B,D,N] h, float[B,D] dt_t, float[B,D] x_t, float[B,N] b_t, float[B,N] c_t)
        => (float[B,D,N] next, float[B,D] y_t) {
            end = Constant <value_ints = [-1]> ()
            middle = Constant <value_ints = [1]> ()
            column = Unsqueeze(dt_t, end)
            log = Mul(column, A)
            decay = Exp(log)
            kept = Mul(decay, h)
            dx = Mul(dt_t, x_t)
            dx_column = Unsqueeze(dx, end)
            row = Unsqueeze(b_t, middle)
            u = Mul(dx_column, row)
            next = Add(kept, u)
            c_row = Unsqueeze(c_t, middle)
            weighed = Mul(next, c_row)
            y_t = ReduceSum <keepdims = 0> (weighed, end)
        }> (h0, step, x, b, c)
    y = Tanh(sums)
}"""


def model(text: str = MODEL) -> bytes:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]>\n{text}').SerializeToString()


def feeds(t: int, b: int, d: int, n: int) -> dict:
    def uniform(low, high, *shape):
        return RNG.uniform(low, high, shape).astype(np.float32)

    return {
        "dt": uniform(-2, 2, t, b, d),
        "x": uniform(-1, 1, t, b, d),
        "b": uniform(-1, 1, t, b, n),
        "c": uniform(-1, 1, t, b, n),
        "A": uniform(-40, -0.1, d, n),
        "h0": uniform(-1, 1, b, d, n),
    }


def run(tmp_path, bytes_: bytes, positive: bool = False, **options) -> Placement:
    """Compares with onnxruntime at several sizes; says where the nodes went. A model without its own Softplus wants dt
    ``positive``, or states grow without bounds."""
    trace = tmp_path / "trace.jsonl"
    trace.unlink(missing_ok=True)
    ours = ort_mlx.session(bytes_, quiet(), device="cpu", trace=str(trace), **options)
    theirs = cpu_session(bytes_, optimise=False)
    for sizes in [(7, 2, 3, 4), (1, 1, 5, 2), (64, 3, 1, 16)]:
        feed = feeds(*sizes)
        if positive:
            feed["dt"] = np.abs(feed["dt"])
        for got, wanted in zip(ours.run(None, feed), theirs.run(None, feed)):
            assert difference(got, wanted, 1e-4, 1e-5).agrees
    return Placement.read(trace)


def test_the_trace_names_the_kernel(tmp_path):
    placement = run(tmp_path, model(), claim="all")
    assert [(kernel, count) for kernel, count, _ in placement.kernels()] == [("selective_scan/host", 1)]
    assert placement.left() == [] and len(placement.clusters) == 1


def test_a_cpu_takes_the_recurrence_and_nothing_else(tmp_path):
    placement = run(tmp_path, model(), claim="auto")
    assert [kernel for kernel, _, _ in placement.kernels()] == ["selective_scan/host"]
    assert [c["op"] for c in placement.claims if c["claimed"] and not c["body_of"]] == ["Scan"]
    assert {op for op, _, _ in placement.left()} == {"Softplus", "Tanh"}


def test_a_near_miss_stays_on_a_cpu(tmp_path):
    bent = MODEL.replace("next = Add(kept, u)", "sum = Add(kept, u)\n next = Tanh(sum)")
    placement = run(tmp_path, model(bent), claim="auto")
    assert placement.kernels() == [] and placement.clusters == []


def test_the_option_stops_it(tmp_path):
    placement = run(tmp_path, model(), claim="all", selective_scan="off")
    assert placement.kernels() == []
    placement = run(tmp_path, model(), claim="auto", selective_scan="off")
    assert placement.clusters == []
    with pytest.raises(Exception, match="auto or off"):
        ort_mlx.session(model(), quiet(), selective_scan="on")


# As TorchScript writes a list of tensors that is stacked afterwards.
SEQUENCE = """g (float[T,B,D] dt, float[T,B,D] x, float[T,B,N] b, float[T,B,N] c, float[D,N] A, float[B,D,N] h0)
    => (float[B,T,D] y, float[B,D,N] last) {
    always = Constant <value = bool {1}> ()
    sizes = Shape(x)
    zero = Constant <value = int64 {0}> ()
    steps = Gather(sizes, zero)
    nothing = SequenceEmpty()
    last, ys = Loop <body = body (int64 t, bool on, float[B,D,N] h, seq(float[B,D]) before)
        => (bool goes_on, float[B,D,N] next, seq(float[B,D]) after) {
            end = Constant <value_ints = [-1]> ()
            middle = Constant <value_ints = [1]> ()
            dt_t = Gather(dt, t)
            x_t = Gather(x, t)
            b_t = Gather(b, t)
            c_t = Gather(c, t)
            column = Unsqueeze(dt_t, end)
            log = Mul(column, A)
            decay = Exp(log)
            kept = Mul(decay, h)
            dx = Mul(dt_t, x_t)
            dx_column = Unsqueeze(dx, end)
            row = Unsqueeze(b_t, middle)
            u = Mul(dx_column, row)
            next = Add(kept, u)
            y_t = Einsum <equation = "bdn,bn->bd"> (next, c_t)
            after = SequenceInsert(before, y_t)
            goes_on = Identity(always)
        }> (steps, always, h0, nothing)
    y = ConcatFromSequence <axis = 1, new_axis = 1> (ys)
}"""


def test_a_loop_that_fills_a_sequence(tmp_path):
    placement = run(tmp_path, model(SEQUENCE), positive=True, claim="all")
    assert [kernel for kernel, _, _ in placement.kernels()] == ["selective_scan/host"]
    assert placement.left() == [] and len(placement.clusters) == 1
    # A sequence that is not put together along a new axis is something else.
    other = SEQUENCE.replace("axis = 1, new_axis = 1", "axis = 1, new_axis = 0").replace("float[B,T,D] y", "float[B,M] y")
    placement = run(tmp_path, model(other), positive=True, claim="all")
    assert placement.kernels() == []


def test_no_steps(tmp_path):
    feed = feeds(0, 2, 3, 4)
    y, last = ort_mlx.session(model(), quiet(), device="cpu", claim="all").run(None, feed)
    assert y.shape == (0, 2, 3) and np.array_equal(last, feed["h0"])


def test_run_explains(tmp_path, capsys):
    from ort_mlx.__main__ import main

    path = tmp_path / "model.onnx"
    path.write_bytes(model())
    np.savez(tmp_path / "inputs.npz", **feeds(7, 2, 3, 4))
    arguments = ["run", str(path), "--inputs", str(tmp_path / "inputs.npz"), "--repeat", "1", "--device", "cpu"]
    assert main([*arguments, "--explain"]) == 0
    text = capsys.readouterr().out
    assert "1 x selective_scan/host in place of 1 nodes" in text and "Scan" in text
    assert "is keyed: " in text
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["fused"] == [{"kernel": "selective_scan/host", "count": 1, "nodes": 1}]
