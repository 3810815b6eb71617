use super::{Model, check, in_half};
use crate::testing::graphs::{agrees_within, kernels};
use crate::testing::{E, f32s, text, tol};

const DIFFERENCE: &str = "m = ReduceMean(x, [-1]); d = Sub(x, m);";
const SQUARES: &str = "q = Pow(x, 2.0); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e);";

/// The deviation from the mean as `squares` gives it of d, then `rest`.
fn centred(squares: &str, rest: &str, wanted: &[&str]) {
    check(
        &format!("{DIFFERENCE} {squares}; v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e); {rest}"),
        wanted,
    );
}

fn plain(rest: &str, wanted: &[&str]) {
    check(&format!("{SQUARES} {rest}"), wanted);
}

#[test]
fn layers_as_exporters_write_them() {
    let layer = &["layer_norm"];
    centred("q = Pow(d, 2.0)", "n = Div(d, s); t = Mul(n, w); y = Add(t, b)", layer);
    centred("q = Mul(d, d)", "n = Div(d, s); t = Mul(w, n); y = Add(b, t)", layer);
    centred("q = Mul(d, d)", "r = Reciprocal(s); n = Mul(r, d); t = Mul(n, w); y = Add(t, b)", layer);
    centred("q = Pow(d, 2.0)", "r = Div(1.0, s); n = Mul(d, r); y = Mul(n, w)", layer);
    centred("q = Mul(d, d)", "y = Div(d, s)", layer);
    // Weights first, and a second difference of the same values.
    centred(
        "d2 = Sub(x, m); q = Mul(d2, d2)",
        "r = Reciprocal(s); k = Mul(r, w); t = Mul(d, k); y = Add(t, b)",
        layer,
    );
    // As TensorFlow does it: x k + (b - m k).
    centred(
        "q = Mul(d, d)",
        "r = Reciprocal(s); k = Mul(r, w); xk = Mul(x, k); mk = Mul(m, k); o = Sub(b, mk); y = Add(xk, o)",
        layer,
    );
    centred("q = Mul(d, d)", "p = Pow(e, -0.5); n = Mul(d, p); y = Mul(n, w)", layer);
}

#[test]
fn layers_whose_variance_is_spelled_otherwise() {
    let rest = "r = Sqrt(e); n = Div(d, r); t = Mul(n, w); y = Add(t, b)";
    let raw = "q = Mul(x, x); u = ReduceMean(q, [-1]); mm = Mul(m, m); v = Sub(u, mm); e = Add(v, 1e-5);";
    check(&format!("{DIFFERENCE} {raw} {rest}"), &["layer_norm"]);
    let twice = "m2 = ReduceMean(d, [-1]); d2 = Sub(d, m2); q = Mul(d2, d2); v = ReduceMean(q, [-1]); e = Add(v, 1e-5);";
    check(&format!("{DIFFERENCE} {twice} {rest}"), &["layer_norm"]);
    check(&format!("{DIFFERENCE} q = Mul(d, d); e = ReduceMean(q, [-1]); {rest}"), &["layer_norm"]);
}

#[test]
fn layers_over_several_axes() {
    let nodes = "m = ReduceMean(x, [1, -1]); d = Sub(x, m); q = Mul(d, d); v = ReduceMean(q, [-1, -2]); e = Add(v, 1e-5);
        s = Sqrt(e); n = Div(d, s); t = Mul(n, c); y = Add(t, b)";
    check(nodes, &["layer_norm"]);
}

#[test]
fn root_mean_squares() {
    let rms = &["rms_norm"];
    plain("r = Reciprocal(s); n = Mul(x, r); y = Mul(w, n)", rms);
    plain("r = Div(1.0, s); n = Mul(x, r); y = Mul(n, w)", rms);
    plain("n = Div(x, s); y = Mul(n, w)", rms);
    plain("y = Div(x, s)", rms);
    plain("r = Reciprocal(s); k = Mul(r, w); y = Mul(k, x)", rms);
    plain("u = Add(w, 1.0); n = Div(x, s); y = Mul(n, u)", rms);
    // The bias is no part of it, nor is a gate.
    plain("n = Div(x, s); t = Mul(n, w); y = Add(t, b)", rms);
    plain("n = Div(x, s); t = Mul(n, w); g = Tanh(x); y = Mul(t, g)", rms);
    // Of a sum that is used again.
    check(
        "a:0x3x8 = Add(x, b); q:0x3x8 = Mul(a, a); v = ReduceMean(q, [2]); e = Add(1e-5, v); s = Sqrt(e); n = Div(a, s); t = Mul(n, w); y = Add(a, t)",
        rms,
    );
}

#[test]
fn root_mean_squares_in_16_bits() {
    let wide = "f = Cast<to=1>(h); q = Pow(f, 2.0); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e); r = Reciprocal(s);
        n = Mul(f, r);";
    in_half(&format!("{wide} k = Cast<to=10>(n); o = Mul(k, wh)"), &["rms_norm"]);
    in_half(&format!("{wide} t = Mul(n, w); o = Cast<to=10>(t)"), &["rms_norm"]);
    in_half(&format!("{wide} o = Mul(n, w)"), &["rms_norm"]);
}

#[test]
fn axes_by_attribute() {
    let old = Model { opset: 17, ..Model::new() };
    let nodes = "q = Pow(x, 2.0); v = ReduceMean<axes=[-1]>(q); e = Add(v, 1e-6); s = Sqrt(e); n = Div(x, s); y = Mul(n, w)";
    old.check(nodes, &["rms_norm"]);
}

/// Over two axes of which one is empty.
#[test]
fn nothing_to_normalise() {
    for (nodes, wanted) in [
        (
            "q = Mul(x, x); v = ReduceMean(q, [-2, -1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)",
            "rms_norm",
        ),
        (
            "m = ReduceMean(x, [-2, -1]); d = Sub(x, m); q = Mul(d, d); v = ReduceMean(q, [-2, -1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(d, s)",
            "layer_norm",
        ),
    ] {
        let graph = text::graph(18, &[("x", E::Float, &[0, 0, 8])], &[], nodes, &["y"]);
        assert_eq!(kernels(&graph), [wanted]);
        for length in [0, 3] {
            agrees_within(&graph, 18, &[("x", f32s([3, length, 8]))], tol::F32_SUM);
        }
    }
}

#[test]
fn one_norm_with_two_scales() {
    plain("n = Div(x, s); p = Mul(n, w); k = Mul(n, b); y = Sub(p, k)", &["rms_norm"]);
}

#[test]
fn near_misses() {
    // Epsilon outside of the root, or below 0.
    check(
        &format!(
            "{DIFFERENCE} q = Mul(d, d); v = ReduceMean(q, [-1]); s = Sqrt(v); e = Add(s, 1e-5); y = Div(d, e)"
        ),
        &[],
    );
    plain("z = Add(s, 1e-5); y = Div(x, z)", &[]);
    // Other axes, another exponent, another base, twice as much.
    check("q = Pow(x, 2.0); v = ReduceMean(q, [1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)", &[]);
    check("q = Pow(x, 4.0); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)", &[]);
    check(
        "q = Mul(x, b); f = Abs(q); v = ReduceMean(f, [-1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)",
        &[],
    );
    check(
        "q = Pow(x, 2.0); v = ReduceMean(q, [-1]); u = Mul(v, 1.1); e = Add(u, 1e-5); s = Sqrt(e); y = Div(x, s)",
        &[],
    );
    check("q = Pow(x, 2.0); v = ReduceSum(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)", &[]);
    check("q = Pow(x, 2.0); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Pow(e, 0.25); y = Div(x, s)", &[]);
    plain("y = Mul(x, s)", &[]);
    // The mean over other axes than the variance's; what is divided is not what is squared.
    check(
        "m = ReduceMean(x, [1]); d = Sub(x, m); q = Mul(d, d); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e); k = Add(x, m); y = Div(k, s)",
        &[],
    );
    plain("g = Tanh(x); y = Div(g, s)", &[]);
    // A part that is read elsewhere is computed anyway.
    plain("n = Div(x, s); t = Exp(s); y = Add(n, t)", &[]);
}
