//! Spellings of norms by other exporters and older opsets, and what is nearly one.

use super::{Model, rows};

const LAYER: &[&str] = &["layer_norm"];
const RMS: &[&str] = &["rms_norm"];
const NONE: &[&str] = &[];

/// d, then the root s of its mean square.
const ROOT: &str = "m:0x3x1 = ReduceMean(x, [-1]); d:0x3x8 = Sub(x, m); q:0x3x8 = Mul(d, d); v:0x3x1 = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e);";

#[test]
fn exponents_epsilons_and_axes() {
    for power in ["2i", "2d", "2h", "[2.0]", "[2]"] {
        let layer = format!(
            "m = ReduceMean(x, [-1]); d = Sub(x, m); q:0x3x8 = Pow(d, {power}); v = ReduceMean(q, [2]); e = Add(v, [1e-5]); s = Sqrt(e); n = Div(d, s); y = Mul(n, w)"
        );
        let root = format!(
            "q:0x3x8 = Pow(x, {power}); v = ReduceMean(q, [2]); e = Add(1e-6, v); s = Sqrt(e); y = Div(x, s)"
        );
        rows(&Model::new(), &[(&layer, LAYER), (&root, RMS)]);
    }
    rows(
        &Model::new(),
        &[
            // An epsilon that is rounded to 16 bits, that is added twice, that is a multiple.
            (
                "q = Mul(x, x); v = ReduceMean(q, [-1]); k = Cast<to=1>(1e-5h); e = Add(v, k); s = Sqrt(e); y = Div(x, s)",
                RMS,
            ),
            (
                "q = Mul(x, x); v = ReduceMean(q, [-1]); f = Add(v, 1e-5); e = Add(f, 1e-5); s = Sqrt(e); y = Div(x, s)",
                RMS,
            ),
            (
                "q = Mul(x, x); v = ReduceMean(q, [-1]); k = Mul(1e-3, 1e-3); e = Add(v, k); s = Sqrt(e); y = Div(x, s)",
                RMS,
            ),
            (
                "q = Mul(x, x); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Pow(e, 0.5d); y = Div(x, s)",
                RMS,
            ),
        ],
    );
    let before = Model { opset: 12, ..Model::new() };
    rows(
        &before,
        &[
            (
                "m = ReduceMean<axes=[-1]>(x); d = Sub(x, m); q:0x3x8 = Pow(d, 2i); v = ReduceMean<axes=[2],keepdims=1>(q); e = Add(v, 1e-5); s = Sqrt(e); n = Div(d, s); t = Mul(n, w); y = Add(t, b)",
                LAYER,
            ),
            (
                "m = ReduceMean<axes=[-1]>(x); d = Sub(x, m); q = Mul(d, d); v = ReduceMean<axes=[-1]>(q); e = Add(v, 1e-5); s = Sqrt(e); r = Reciprocal(s); k = Mul(w, r); n = Mul(d, k); y = Add(n, b)",
                LAYER,
            ),
            (
                "q = Mul(x, x); v = ReduceMean<axes=[1]>(q); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)",
                NONE,
            ),
            ("q = Mul(x, x); v = ReduceMean(q); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)", NONE),
        ],
    );
}

#[test]
fn axes_that_are_dropped_and_put_back() {
    rows(
        &Model::new(),
        &[
            (
                "m0:0x3 = ReduceMean<keepdims=0>(x, [-1]); m:0x3x1 = Unsqueeze(m0, [-1]); d:0x3x8 = Sub(x, m); q:0x3x8 = Mul(d, d); v0:0x3 = ReduceMean<keepdims=0>(q, [2]); v:0x3x1 = Unsqueeze(v0, [2]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(d, s)",
                LAYER,
            ),
            // Put back in another place.
            (
                "t0:0x3x3 = Slice(x, [0], [3], [2]); q:0x3x3 = Mul(t0, t0); v0:0x3 = ReduceMean<keepdims=0>(q, [-1]); v:0x1x3 = Unsqueeze(v0, [1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(t0, s)",
                NONE,
            ),
        ],
    );
}

#[test]
fn scales_and_biases() {
    rows(
        &Model::new(),
        &[
            (&format!("{ROOT} n = Div(d, s); k = Unsqueeze(w, [0, 1]); t = Mul(n, k); y = Add(t, b)"), LAYER),
            (&format!("{ROOT} n = Div(d, s); k = Neg(w); t = Mul(n, k); y = Sub(t, b)"), LAYER),
            (&format!("{ROOT} n = Div(d, s); t = Mul(n, 3.0); y = Add(t, b)"), LAYER),
            (&format!("{ROOT} n = Div(d, s); t = Mul(n, w); y = Add(t, 0.5)"), LAYER),
            // A scale for each of another axis, and one that widens.
            (&format!("{ROOT} n = Div(d, s); y = Mul(n, c)"), LAYER),
            // What is computed from x is no scale.
            (
                &format!("{ROOT} n = Div(d, s); g = Sigmoid(n); t = Mul(n, g); y = Mul(t, w)"),
                &["layer_norm", "swish"],
            ),
        ],
    );
}

#[test]
fn casts_on_the_way() {
    let layer = "f = Cast<to=1>(h); m = ReduceMean(f, [-1]); d = Sub(f, m); q = Mul(d, d); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e);";
    super::in_half(&format!("{layer} n = Div(d, s); k = Cast<to=10>(n); o = Mul(k, wh)"), LAYER);
    super::in_half(
        &format!("{layer} n = Div(d, s); t = Mul(n, w); u = Add(t, b); o = Cast<to=10>(u)"),
        LAYER,
    );
    // Squares in 32 bits of a difference in 16.
    super::in_half(
        "m = ReduceMean(h, [-1]); d = Sub(h, m); d32 = Cast<to=1>(d); q = Pow(d32, 2.0); v = ReduceMean(q, [-1]); v16 = Cast<to=10>(v); e = Add(v16, 1e-4h); s = Sqrt(e); o = Div(d, s)",
        LAYER,
    );
    super::in_half(
        "m = ReduceMean(h, [-1]); d = Sub(h, m); q = Mul(d, d); v = ReduceMean(q, [-1]); e = Add(v, 1e-4h); s = Sqrt(e); n = Div(d, s); o = Mul(n, wh)",
        LAYER,
    );
}

/// One over the root goes elsewhere too, and what is normalised, as in gradients.
#[test]
fn parts_that_are_read_elsewhere() {
    let inverse = ROOT.replace("s = Sqrt(e);", "s:0x3x1 = Sqrt(e); i:0x3x1 = Reciprocal(s);");
    let root = "q:0x3x8 = Mul(x, x); v:0x3x1 = ReduceMean(q, [-1]); e = Add(v, 1e-5); s:0x3x1 = Sqrt(e); i:0x3x1 = Reciprocal(s);";
    rows(
        &Model::new(),
        &[
            (
                &format!(
                    "{root} n = Mul(x, i); k = Mul(n, w); c3 = Pow(i, 3.0); g = Mul(k, c3); y = Add(g, n)"
                ),
                RMS,
            ),
            (&format!("{root} n = Mul(x, i); k = Mul(n, w); c3 = Tanh(i); y = Add(c3, k)"), RMS),
            (
                &format!(
                    "{inverse} n = Mul(d, i); k = Mul(n, w); t = Add(k, b); c3 = Exp(i); y = Mul(t, c3)"
                ),
                LAYER,
            ),
            (
                &format!(
                    "{inverse} n = Mul(d, i); k = Mul(n, w); p = Mul(n, k); c3 = Tanh(i); y = Mul(p, c3)"
                ),
                LAYER,
            ),
            // Means by sums, for which the model knows the count.
            (
                "u = ReduceSum(x, [-1]); m = Div(u, 8.0); d:0x3x8 = Sub(x, m); q:0x3x8 = Mul(d, d); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(d, s)",
                LAYER,
            ),
            (
                "q:0x3x8 = Mul(x, x); u = ReduceSum(q, [-1]); v = Mul(u, 0.125); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)",
                RMS,
            ),
            (
                "q:0x3x8 = Mul(x, x); u = ReduceSum(q, [-1]); v = Mul(u, 0.13); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)",
                NONE,
            ),
            // The root itself is read, or the inverse by nothing that is a norm.
            (&format!("{root} n = Mul(x, i); c3 = Exp(s); y = Mul(n, c3)"), NONE),
            (&format!("{root} c3 = Exp(i); y = Mul(x, c3)"), NONE),
        ],
    );
}

#[test]
fn near_misses() {
    rows(
        &Model::new(),
        &[
            // The deviation of a sample; the sum; a mean of absolute values; the norm of a vector.
            (
                &ROOT
                    .replace("v:0x3x1 = ReduceMean(q, [-1])", "u = ReduceSum(q, [-1]); v = Div(u, 7.0)")
                    .replace("s = Sqrt(e);", "s = Sqrt(e); y = Div(d, s)"),
                NONE,
            ),
            ("u = ReduceL2(x, [-1]); e = Add(u, 1e-5); y = Div(x, e)", NONE),
            ("q = Mul(x, x); u = ReduceSum(q, [-1]); e = Add(u, 1e-5); s = Sqrt(e); y = Div(x, s)", NONE),
            // The epsilon as a floor.
            ("q = Mul(x, x); v = ReduceMean(q, [-1]); e = Max(v, 1e-5); s = Sqrt(e); y = Div(x, s)", NONE),
            ("q = Mul(x, x); v = ReduceMean(q, [-1]); s = Sqrt(v); e = Max(s, 1e-5); y = Div(x, e)", NONE),
            // Below 0.
            (
                "q = Mul(x, x); v = ReduceMean(q, [-1]); u = Add(v, 1.0); e = Sub(u, 1.5); f = Abs(e); s = Sqrt(f); y = Div(x, s)",
                NONE,
            ),
            // Another mean is taken off, or the same twice, or it is added.
            (
                "m = ReduceMean(x, [-1]); m2 = ReduceMax(x, [-1]); d = Sub(x, m); q = Mul(d, d); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e); f = Sub(x, m2); y = Div(f, s)",
                NONE,
            ),
            (&format!("{ROOT} f = Sub(d, m); y = Div(f, s)"), NONE),
            (&format!("{ROOT} f = Add(x, m); y = Div(f, s)"), NONE),
            (&format!("{ROOT} y = Mul(d, e)"), NONE),
            (&format!("{ROOT} y = Div(s, d)"), NONE),
            // Cubes.
            (
                "q = Pow(x, 3i); f = Abs(q); v = ReduceMean(f, [-1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)",
                NONE,
            ),
            (
                "q = Pow(x, 2.5); f = Abs(x); v = ReduceMean(f, [-1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)",
                NONE,
            ),
            // The bias inside of the mean.
            (
                "f = Add(x, b); q = Mul(f, f); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)",
                NONE,
            ),
        ],
    );
}
