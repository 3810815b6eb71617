"""Scan, Loop and If on MLX, against onnxruntime's CPU provider with its optimisations off."""

import numpy as np
import onnx.parser
import pytest

import ort_mlx
from ort_mlx.compare import difference
from ort_mlx.reference import cpu_session, quiet
from ort_mlx.report import Placement

RNG = np.random.default_rng(7)


def floats(*shape) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def model(text: str, opset: int = 21) -> bytes:
    """Bytes of a model whose graph is written in ONNX's textual form."""
    parsed = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
    return parsed.SerializeToString()


def both(tmp_path, text: str, *feeds: dict, opset: int = 21, left: tuple = ()) -> list[list[np.ndarray]]:
    """Runs the model on every set of inputs; everything but the operators ``left`` must be on MLX, in one cluster, and
    equal to onnxruntime. Returns what MLX gave."""
    bytes_ = model(text, opset)
    trace = tmp_path / "trace.jsonl"
    ours = ort_mlx.session(bytes_, quiet(), claim="all", device="cpu", trace=str(trace))
    placement = Placement.read(trace)
    assert {op for op, _, _ in placement.left()} == set(left), placement.left()
    assert left or len(placement.clusters) == 1, placement.clusters
    theirs = cpu_session(bytes_, optimise=False)
    results = []
    for feed in feeds:
        got, wanted = ours.run(None, feed), theirs.run(None, feed)
        for name, g, w in zip([o.name for o in ours.get_outputs()], got, wanted):
            assert (g.shape, g.dtype) == (w.shape, w.dtype), name
            if w.dtype.kind == "f":
                close = difference(g.astype(np.float32), w.astype(np.float32), *((1e-2, 1e-2) if w.itemsize == 2 else (1e-4, 1e-5)))
                assert close.agrees, (name, close)
            else:
                assert np.array_equal(g, w), name
        results.append(got)
    return results


def refused(text: str, feed: dict, message: str, opset: int = 21):
    """Both providers fail, and we say why."""
    bytes_ = model(text, opset)
    with pytest.raises(Exception):
        cpu_session(bytes_, optimise=False).run(None, feed)
    with pytest.raises(Exception, match=message):
        ort_mlx.session(bytes_, quiet(), claim="all", device="cpu").run(None, feed)


class TestIf:
    def test_branches_may_differ_in_shape_and_read_what_is_around(self, tmp_path):
        text = """g (bool c, float[N] x, float[M] b) => (float[K] y, int64[J] n)
        <float[2] w = {2, 3}> {
            a = Neg(x)
            t, n = If <
                then_branch = yes () => (float[K] p, int64[J] pn) { ab = Concat<axis=0>(a, b) p = Mul(ab, ab) pn = Shape(p) },
                else_branch = no () => (float[K] q, int64[J] qn) { q = Sub(w, w) qn = Constant<value_ints = [7, 8, 9]>() }
            >(c)
            y = Add(t, t)
        }"""
        feed = {"x": floats(3), "b": floats(4)}
        both(tmp_path, text, feed | {"c": np.array(True)}, feed | {"c": np.array(False)})

    def test_a_condition_from_the_device(self, tmp_path):
        text = """g (float[N] x) => (float[N] y) {
            s = ReduceSum<keepdims=0>(x) zero = Constant<value_float = 0.0>()
            c = Greater(s, zero)
            y = If <
                then_branch = yes () => (float[N] p) { p = Exp(x) },
                else_branch = no () => (float[N] q) { q = Abs(x) }
            >(c)
        }"""
        both(tmp_path, text, {"x": np.ones(3, np.float32)}, {"x": -np.ones(3, np.float32)}, {"x": floats(0)})

    def test_nested(self, tmp_path):
        text = """g (bool c, bool[1] d, float[N] x) => (float[N] y) {
            y = If <
                then_branch = yes () => (float[N] p) {
                    e = Exp(x)
                    p = If <
                        then_branch = yy () => (float[N] pp) { pp = Add(e, x) },
                        else_branch = yn () => (float[N] pq) { pq = Identity(e) }
                    >(d)
                },
                else_branch = no () => (float[N] q) { q = Identity(x) }
            >(c)
        }"""
        x = floats(5)
        feeds = [{"c": np.array(c), "d": np.array([d]), "x": x} for c in (True, False) for d in (True, False)]
        both(tmp_path, text, *feeds)

    def test_what_a_body_cannot_run_keeps_the_node(self, tmp_path):
        text = """g (bool c, float[N] x) => (float[N] y) {
            y = If <
                then_branch = yes () => (float[N] p) { d = Cast<to = 11>(x) p = Cast<to = 1>(d) },
                else_branch = no () => (float[N] q) { q = Neg(x) }
            >(c)
        }"""
        feeds = [{"c": np.array(c), "x": floats(3)} for c in (True, False)]
        both(tmp_path, text, *feeds, left=("If", "Cast"))

    def test_two_conditions_at_once(self):
        text = """g (bool[N] c, float[M] x) => (float[M] y) {
            y = If <
                then_branch = yes () => (float[M] p) { p = Neg(x) },
                else_branch = no () => (float[M] q) { q = Abs(x) }
            >(c)
        }"""
        refused(text, {"c": np.array([True, False]), "x": floats(2)}, "exactly one element")


def test_the_trace_has_the_nodes_of_bodies(tmp_path):
    trace = tmp_path / "trace.jsonl"
    ort_mlx.session(model(COUNTED), quiet(), claim="all", device="cpu", trace=str(trace))
    placement = Placement.read(trace)
    inside = {c["op"] for c in placement.claims if c["body_of"] == "Loop"}
    # onnxruntime has folded the constants away.
    assert {"Add", "Cast", "Mul", "Sub"} <= inside and not placement.left()
    assert [c["body_of"] for c in placement.clusters] == [None]


COUNTED = """g (int64 m, float[N] x) => (float[N] h, float[T, N] all, int64[T] numbers) {
    h, all, numbers = Loop <body = b (int64 i, bool c, float[N] s) => (bool c2, float[N] s2, float[N] o, int64 n) {
        c2 = Identity(c)
        f = Cast<to = 1>(i)
        s1 = Add(s, f)
        half = Constant<value_float = 0.5>()
        s2 = Mul(s1, half)
        o = Sub(s2, x)
        n = Identity(i)
    }>(m, , x)
}"""


class TestLoop:
    def test_counted(self, tmp_path):
        both(tmp_path, COUNTED, *({"m": np.array(m), "x": floats(3)} for m in (4, 0, 1, -3, 5000)))

    def test_until_a_condition_of_the_device(self, tmp_path):
        text = """g (float[N] x) => (float[N] h, float[T] sums) {
            h, sums = Loop <body = b (int64 i, bool c, float[N] s) => (bool c2, float[N] s2, float[1] o) {
                s2 = Add(s, x)
                o = ReduceSum(s2)
                k = Constant<value_float = 20.0>()
                t = Less(o, k)
                one = Constant<value_ints = [1]>()
                t1 = Reshape(t, one)
                c2 = Squeeze(t1)
            }>(, , x)
        }"""
        text = text.replace("float[T] sums)", "float[T, K] sums)")
        both(tmp_path, text, {"x": np.ones(3, np.float32)}, {"x": np.full(2, 9, np.float32)})

    @pytest.mark.parametrize("going", [True, False])
    def test_condition_and_count(self, tmp_path, going):
        text = """g (int64[1] m, bool c, float[N] x) => (float[N] h, float[T, N] rows) {
            h, rows = Loop <body = b (int64 i, bool ci, float[N] s) => (bool c2, float[N] s2, float[N] o) {
                s2 = Mul(s, x)
                three = Constant<value_int = 3>()
                c2 = Less(i, three)
                o = Neg(s2)
            }>(m, c, x)
        }"""
        feed = {"c": np.array(going), "x": floats(2)}
        both(tmp_path, text, *(feed | {"m": np.array([m])} for m in (2, 10, 2**63 - 1)))

    def test_states_may_grow(self, tmp_path):
        text = """g (int64 m, float[N] x) => (float[K] h, int64[T, R] shapes) {
            h, shapes = Loop <body = b (int64 i, bool c, float[K1] s) => (bool c2, float[K2] s2, int64[R] o) {
                c2 = Identity(c)
                s2 = Concat<axis=0>(s, x)
                o = Shape(s2)
            }>(m, , x)
        }"""
        both(tmp_path, text, *({"m": np.array(m), "x": floats(3)} for m in (5, 0)))

    def test_nested_loops_and_branches(self, tmp_path):
        text = """g (int64 m, float[N] x) => (float[N] h, float[T, S, N] rows) {
            h, rows = Loop <body = b (int64 i, bool c, float[N] s) => (bool c2, float[N] s2, float[S, N] o) {
                c2 = Identity(c)
                two = Constant<value_int = 2>()
                even = Mod(i, two)
                zero = Constant<value_int = 0>()
                ce = Equal(even, zero)
                k = Constant<value_int = 3>()
                s2, o = Loop <body = bb (int64 j, bool d, float[N] r) => (bool d2, float[N] r2, float[N] p) {
                    d2 = Identity(d)
                    r2 = If <
                        then_branch = yes () => (float[N] ra) { ra = Add(r, x) },
                        else_branch = no () => (float[N] rb) { ij = Add(i, j) fij = Cast<to = 1>(ij) rb = Mul(r, fij) }
                    >(ce)
                    p = Neg(r2)
                }>(k, , s)
            }>(m, , x)
        }"""
        both(tmp_path, text, *({"m": np.array(m), "x": floats(4)} for m in (3, 1, 0)))

    def test_without_states(self, tmp_path):
        text = """g (int64 m, bool c0, float[N, D] x) => (float[T, D] rows) {
            rows = Loop <body = b (int64 i, bool c) => (bool c2, float[D] o) {
                c2 = Identity(c)
                o = Gather<axis=0>(x, i)
            }>(m, c0)
        }"""
        both(tmp_path, text, *({"m": np.array(m), "c0": np.array(True), "x": floats(6, 3)} for m in (6, 2, 0)))

    def test_rows_of_different_shapes(self):
        text = """g (int64 m, bool c0) => (float[T, K] rows) {
            rows = Loop <body = b (int64 i, bool c) => (bool c2, float[K] o) {
                c2 = Identity(c)
                one = Constant<value_ints = [1]>()
                n = Reshape(i, one)
                o = ConstantOfShape(n)
            }>(m, c0)
        }"""
        refused(text, {"m": np.array(3), "c0": np.array(True)}, "shape")

    def test_sequences_stay_with_onnxruntime(self, tmp_path):
        text = """g (int64 m, float[N] x) => (float[K] y) {
            s0 = SequenceEmpty()
            s = Loop <body = b (int64 i, bool c, seq(float[N]) t) => (bool c2, seq(float[N]) t2) {
                c2 = Identity(c)
                e = Exp(x)
                t2 = SequenceInsert(t, e)
            }>(m, , s0)
            y = ConcatFromSequence<axis=0>(s)
        }"""
        left = ("SequenceEmpty", "Loop", "SequenceInsert", "ConcatFromSequence")
        both(tmp_path, text, {"m": np.array(3), "x": floats(2)}, left=left)


RECURRENCE = """g (float[B, H] h0, float[T, B, D] x, float[D, H] w, float[H, H] u, float[H, O] v) => (float[B, H] h, float[T, B, O] y, float[T, B, H] before) {
    h, y, before = Scan <num_scan_inputs = 1, body = b (float[B, H] s, float[B, D] xt) => (float[B, H] s2, float[B, O] yt, float[B, H] old) {
        two = Constant<value_float = 2.0>()
        w2 = Mul(w, two)
        a = MatMul(xt, w2)
        r = MatMul(s, u)
        ar = Add(a, r)
        s2 = Tanh(ar)
        g = MatMul(s2, v)
        gate = Sigmoid(xt)
        m = ReduceMean<keepdims = 1>(gate)
        yt = Mul(g, m)
        old = Identity(s)
    }>(h0, x)
}"""


def recurrence(steps, batch=2, d=3, h=4, o=5) -> dict:
    return {
        "h0": floats(batch, h),
        "x": floats(steps, batch, d),
        "w": floats(d, h),
        "u": floats(h, h),
        "v": floats(h, o),
    }


class TestScan:
    def test_a_recurrence(self, tmp_path):
        both(tmp_path, RECURRENCE, *map(recurrence, (7, 1, 2, 3, 1500)))

    @pytest.mark.parametrize("opset", [9, 11, 16, 19, 21, 23])
    @pytest.mark.parametrize("directions", ["0, 0", "1, 0", "0, 1", "1, 1"])
    def test_axes_and_directions(self, tmp_path, opset, directions):
        negative = opset > 9
        axes = ("1, -1", "-1, 0") if negative else ("1, 2", "1, 0")
        text = f"""g (float[D] h0, float[D, T] a, float[2, D, T] b) => (float[D] h, float[D, T] y, float[T, 2, D] z) {{
            h, y, z = Scan <num_scan_inputs = 2, scan_input_axes = [{axes[0]}], scan_input_directions = [{directions}],
                scan_output_axes = [{axes[1]}], scan_output_directions = [{directions}],
                body = q (float[D] s, float[D] at, float[2, D] bt) => (float[D] s2, float[D] yt, float[2, D] zt) {{
                    s1 = Mul(s, at)
                    e = Exp(bt)
                    r = Einsum<equation = "ij->j">(e)
                    s2 = Add(s1, r)
                    yt = Neg(s2)
                    zt = Mul(e, s2)
                }}>(h0, a, b)
        }}"""
        if opset < 12:
            text = text.replace('Einsum<equation = "ij->j">(e)', "ReduceSum<axes = [0], keepdims = 0>(e)")
        feeds = [{"h0": floats(3), "a": floats(3, t), "b": floats(2, 3, t)} for t in (6, 1)]
        both(tmp_path, text, *feeds, opset=opset)

    def test_states_of_every_kind(self, tmp_path):
        # One is handed on, two change places, one counts; and outputs that are no step's own.
        text = """g (float[N] p0, float[N] q0, float[N] k0, int64 n0, float[T, N] x, float[N] o) =>
            (float[N] p, float[N] q, float[N] k, int64 n, float[T, N] y, float[T, N] same, float[T, N] input, float[T] c, int64[T] ns) {
            p, q, k, n, y, same, input, c, ns = Scan <num_scan_inputs = 1, body = b
                (float[N] ps, float[N] qs, float[N] ks, int64 nn, float[N] xt) =>
                (float[N] p2, float[N] q2, float[N] k2, int64 n2, float[N] yt, float[N] st, float[N] it, float ct, int64 nt) {
                p2 = Identity(qs)
                q2 = Identity(ps)
                k1 = Identity(ks)
                k2 = Identity(k1)
                one = Constant<value_int = 1>()
                n2 = Add(nn, one)
                px = Mul(ps, xt)
                ek = Exp(ks)
                yt = Mul(px, ek)
                st = Identity(o)
                it = Identity(xt)
                ct = Constant<value_float = 3.0>()
                nt = Mul(n2, n2)
            }>(p0, q0, k0, n0, x)
        }"""
        feeds = [
            {"p0": floats(2), "q0": floats(2), "k0": floats(2), "n0": np.array(5), "x": floats(t, 2), "o": floats(2)}
            for t in (5, 1, 2)
        ]
        both(tmp_path, text, *feeds)

    def test_no_states(self, tmp_path):
        text = """g (float[T, N] x, int64[T] i) => (float[T, N] y, int64[T] j) {
            y, j = Scan <num_scan_inputs = 2, body = b (float[N] xt, int64 it) => (float[N] yt, int64 jt) {
                f = Cast<to = 1>(it)
                yt = Mul(xt, f)
                jt = Neg(it)
            }>(x, i)
        }"""
        both(tmp_path, text, *({"x": floats(t, 3), "i": np.arange(t)} for t in (4, 100, 1)))

    def test_no_steps(self, tmp_path):
        text = """g (float[2] h0, float[T, 2] x) => (float[2] h, float[2, T] y) {
            h, y = Scan <num_scan_inputs = 1, scan_output_axes = [1], body = b (float[2] s, float[2] xt) => (float[2] s2, float[2] yt) {
                s2 = Add(s, xt)
                yt = Neg(s2)
            }>(h0, x)
        }"""
        both(tmp_path, text, {"h0": floats(2), "x": floats(3, 2)})
        # onnxruntime's kernel refuses a sequence without steps; by ONNX's rules the states stay and the rows are none.
        session = ort_mlx.session(model(text), quiet(), claim="all", device="cpu")
        h0 = floats(2)
        h, y = session.run(None, {"h0": h0, "x": floats(0, 2)})
        assert np.array_equal(h, h0) and y.shape == (2, 0)

    def test_parts_that_mlx_cannot_vectorise(self, tmp_path):
        # Before the loop a size that a value of the step decides, after it one that a state decides.
        text = """g (int64[1] h0, int64[T, 1] k, float[T, N] x) => (int64[1] h, float[T, 1] y, float[T, 1] z) {
            h, y, z = Scan <num_scan_inputs = 2, body = b (int64[1] s, int64[1] kt, float[N] xt) => (int64[1] s2, float[1] yt, float[1] zt) {
                zero = Constant<value_ints = [0]>()
                head = Slice(xt, zero, kt)
                yt = ReduceSum(head)
                s2 = Max(s, kt)
                most = Slice(xt, zero, s2)
                zt = ReduceSum(most)
            }>(h0, k, x)
        }"""
        k = RNG.integers(0, 6, (90, 1))
        both(tmp_path, text, {"h0": np.array([0]), "k": k, "x": floats(90, 5)})

    def test_checks_inside_a_body(self):
        text = """g (int64[T] i, float[N] table) => (float[T] y) {
            y = Scan <num_scan_inputs = 1, body = b (int64 it) => (float yt) { yt = Gather(table, it) }>(i)
        }"""
        refused(text, {"i": np.array([0, 1, 2, 9]), "table": floats(3)}, "(?i)gather.*(bounds|range|index)")

    def test_nested(self, tmp_path):
        # Cumulative sums along rows of cumulative sums of rows.
        text = """g (float[D] h0, float[T, K, D] x) => (float[D] h, float[T, K, D] y) {
            h, y = Scan <num_scan_inputs = 1, body = b (float[D] s, float[K, D] xt) => (float[D] s2, float[K, D] yt) {
                e = Tanh(xt)
                s2, yt = Scan <num_scan_inputs = 1, body = bb (float[D] r, float[D] et) => (float[D] r2, float[D] zt) {
                    half = Constant<value_float = 0.5>()
                    r1 = Mul(r, half)
                    r2 = Add(r1, et)
                    zt = Sub(r2, h0)
                }>(s, e)
            }>(h0, x)
        }"""
        both(tmp_path, text, *({"h0": floats(3), "x": floats(t, k, 3)} for t, k in ((4, 5), (1, 1), (40, 90))))

    def test_a_selective_scan(self, tmp_path):
        text = """g (float[B, D, N] h0, float[D, N] a0, float[T, B, D] dt, float[T, B, N] b, float[T, B, N] c, float[T, B, D] x)
            => (float[B, D, N] h, float[D, N] a, float[T, B, D] y) {
            h, a, y = Scan <num_scan_inputs = 4, body = q (float[B, D, N] s, float[D, N] at, float[B, D] dtt, float[B, N] bt, float[B, N] ct, float[B, D] xt)
                => (float[B, D, N] s2, float[D, N] a2, float[B, D] yt) {
                zero = Constant<value_ints = [0]>()
                one = Constant<value_ints = [1]>()
                last = Constant<value_ints = [-1]>()
                a2 = Identity(at)
                dc = Unsqueeze(dtt, last)
                au = Unsqueeze(at, zero)
                da = Mul(dc, au)
                decay = Exp(da)
                xu = Unsqueeze(xt, last)
                bu = Unsqueeze(bt, one)
                dx = Mul(dc, xu)
                dbx = Mul(dx, bu)
                ds = Mul(decay, s)
                s2 = Add(ds, dbx)
                cu = Unsqueeze(ct, one)
                sc = Mul(s2, cu)
                yt = ReduceSum<keepdims = 0>(sc, last)
            }>(h0, a0, dt, b, c, x)
        }"""

        def feed(t, b, d, n):
            return {
                "h0": floats(b, d, n),
                "a0": -np.exp(floats(d, n) * 3.8),
                "dt": np.log1p(np.exp(floats(t, b, d) * 3)),
                "b": floats(t, b, n),
                "c": floats(t, b, n),
                "x": floats(t, b, d),
            }

        both(tmp_path, text, feed(50, 2, 5, 16), feed(1, 1, 1, 1), feed(3, 3, 7, 7), feed(300, 4, 64, 16))

    @pytest.mark.parametrize("lengths", ["", "lens"])
    @pytest.mark.parametrize("direction", [0, 1])
    def test_opset_8(self, tmp_path, lengths, direction):
        text = f"""g (int64[B] lens, float[B, D] h0, float[B, T, D] x) => (float[B, D] h, float[B, T, D] y) {{
            h, y = Scan <num_scan_inputs = 1, directions = [{direction}],
                body = q (float[D] s, float[D] xt) => (float[D] s2, float[D] yt) {{
                    e = Exp(xt)
                    s2 = Add(s, e)
                    yt = Neg(s2)
                }}>({lengths}, h0, x)
        }}"""
        if not lengths:
            text = text.replace("int64[B] lens, ", "")
        feed = {"lens": np.array([4, 1, 3])} if lengths else {}
        both(tmp_path, text, feed | {"h0": floats(3, 2), "x": floats(3, 4, 2)}, opset=8)

    def test_lengths_that_do_not_fit(self):
        text = """g (int64[B] lens, float[B, D] h0, float[B, T, D] x) => (float[B, D] h) {
            h = Scan <num_scan_inputs = 1, body = q (float[D] s, float[D] xt) => (float[D] s2) { s2 = Add(s, xt) }>(lens, h0, x)
        }"""
        refused(text, {"lens": np.array([5, 1]), "h0": floats(2, 2), "x": floats(2, 4, 2)}, "sequence_lens", opset=8)

    def test_sequences_of_different_lengths(self):
        text = """g (float[A, N] x, float[B, N] z) => (float[C, N] y) {
            y = Scan <num_scan_inputs = 2, body = b (float[N] xt, float[N] zt) => (float[N] yt) { yt = Add(xt, zt) }>(x, z)
        }"""
        refused(text, {"x": floats(3, 2), "z": floats(4, 2)}, "lengths")

    def test_half_floats(self, tmp_path):
        text = """g (float16[N] h0, float16[T, N] x) => (float16[N] h, float16[T, N] y) {
            h, y = Scan <num_scan_inputs = 1, body = b (float16[N] s, float16[N] xt) => (float16[N] s2, float16[N] yt) {
                e = Tanh(xt) m = Mul(s, e) s2 = Add(m, xt) yt = Neg(s2)
            }>(h0, x)
        }"""
        both(tmp_path, text, {"h0": floats(4).astype(np.float16), "x": floats(30, 4).astype(np.float16)})
