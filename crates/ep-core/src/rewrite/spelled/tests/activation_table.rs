//! Spellings of activations by other exporters, and what is nearly one.

use super::{Model, in_half, rows};

const GELU: &[&str] = &["gelu"];
const TANH: &[&str] = &["gelu_tanh"];
const SWISH: &[&str] = &["swish"];
const MISH: &[&str] = &["mish"];
const HARD: &[&str] = &["hard_swish"];
const NONE: &[&str] = &[];

#[test]
fn by_erf() {
    rows(
        &Model::new(),
        &[
            // Roots that are computed.
            (
                "r = Sqrt(2.0); u = Div(x, r); f = Erf(u); p = Add(f, 1.0); h = Mul(x, 0.5); y = Mul(h, p)",
                GELU,
            ),
            (
                "r = Sqrt(0.5); u = Mul(x, r); f = Erf(u); p = Add(f, 1.0); h = Mul(p, 0.5); y = Mul(h, x)",
                GELU,
            ),
            (
                "r = Pow(2.0, -0.5); u = Mul(x, r); f = Erf(u); p = Add(f, 1.0); h = Mul(p, 0.5); y = Mul(h, x)",
                GELU,
            ),
            // Halves as vectors, behind a cast, in the other way.
            (
                "u = Div(x, [1.4142135]); f = Erf(u); p = Add(f, [1.0]); t = Mul(x, p); y = Mul(t, [0.5])",
                GELU,
            ),
            (
                "k = Cast<to=1>(0.5h); u = Mul(x, 0.70710678); f = Erf(u); p = Add(f, 1.0); t = Mul(x, p); y = Mul(t, k)",
                GELU,
            ),
            ("u = Mul(x, 0.70710678); f = Erf(u); h = Mul(f, 0.5); p = Add(h, 0.5); y = Mul(x, p)", GELU),
            ("u = Mul(x, 0.70710678); f = Erf(u); h = Mul(x, 0.5); t = Mul(h, f); y = Add(h, t)", GELU),
            (
                "u = Mul(x, 0.70710678); f = Erf(u); n = Neg(f); p = Sub(1.0, n); t = Mul(x, p); y = Div(t, 2.0)",
                GELU,
            ),
            // By the complement: 1 - erf(-x / root 2).
            (
                "n = Neg(x); u = Mul(n, 0.70710678); f = Erf(u); p = Sub(1.0, f); t = Mul(x, p); y = Mul(t, 0.5)",
                GELU,
            ),
            // A bias before, a weight behind.
            (
                "a = Add(x, b); u = Div(a, 1.4142135); f = Erf(u); p = Add(f, 1.0); t = Mul(a, p); g = Mul(t, 0.5); y = Mul(g, w)",
                GELU,
            ),
        ],
    );
    in_half(
        "f = Cast<to=1>(h); u = Mul(f, 0.70710678); k = Erf(u); p = Add(k, 1.0); t = Mul(f, p); u2 = Mul(t, 0.5); o = Cast<to=10>(u2)",
        GELU,
    );
    in_half(
        "f = Cast<to=1>(h); u = Mul(f, 0.70710678); k = Erf(u); k16 = Cast<to=10>(k); p = Add(k16, 1h); t = Mul(h, p); o = Mul(t, 0.5h)",
        GELU,
    );
}

#[test]
fn by_tanh() {
    let rest = "t = Tanh(u); p = Add(t, 1.0); o = Mul(x, p); y = Mul(o, 0.5)";
    let ways = [
        "k = Pow(x, 3i); l = Mul(k, 0.044715); a = Add(x, l); u = Mul(a, 0.7978845608)",
        "k = Pow(x, 3d); l = Mul(k, 0.044715); a = Add(x, l); u = Mul(a, 0.7978845608)",
        "k = Pow(x, [3.0]); l = Mul([0.044715], k); a = Add(x, l); u = Mul([0.7978845608], a)",
        "r = Sqrt(0.63661977); k = Pow(x, 3.0); l = Mul(k, 0.044715); a = Add(x, l); u = Mul(a, r)",
        "pi = Div(2.0, 3.14159265); r = Sqrt(pi); k = Pow(x, 3.0); l = Mul(k, 0.044715); a = Add(x, l); u = Mul(r, a)",
        "l = Mul(x, 0.044715); k = Mul(l, x); k3 = Mul(k, x); a = Add(k3, x); u = Mul(a, 0.7978845608)",
        "k = Mul(x, 0.79788456); l = Mul(x, 0.044715); m = Mul(l, x); n = Add(m, 1.0); u = Mul(k, n)",
        "q = Pow(x, 2.0); l = Mul(q, 0.044715); n = Add(1.0, l); k = Mul(x, n); u = Mul(k, 0.79788456)",
    ];
    for way in ways {
        rows(&Model::new(), &[(&format!("{way}; {rest}"), TANH)]);
    }
    let inside =
        "k = Pow(x, 3.0); l = Mul(k, 0.044715); a = Add(x, l); u = Mul(a, 0.7978845608); t = Tanh(u);";
    rows(
        &Model::new(),
        &[
            (&format!("{inside} g = Mul(t, 0.5); p = Add(g, 0.5); y = Mul(x, p)"), TANH),
            // By the sigmoid of twice as much.
            (
                "k = Pow(x, 3.0); l = Mul(k, 0.044715); a = Add(x, l); u = Mul(a, 1.5957691216); f = Sigmoid(u); y = Mul(x, f)",
                TANH,
            ),
            (&format!("{inside} p = Add(t, 1.0); y = Mul(p, 0.5)"), NONE),
            (&format!("{inside} p = Add(t, 1.0); o = Mul(x, p); z = Mul(o, 0.5); y = Add(z, t)"), NONE),
            ("u = Mul(x, 0.7978845608); t = Tanh(u); p = Add(t, 1.0); o = Mul(x, p); y = Mul(o, 0.5)", NONE),
        ],
    );
}

#[test]
fn sigmoids_and_their_kin() {
    rows(
        &Model::new(),
        &[
            ("k = Cast<to=1>(1.702h); u = Mul(x, k); f = Sigmoid(u); y = Mul(x, f)", SWISH),
            ("u = Div(x, 0.5); f = Sigmoid(u); y = Mul(f, x)", SWISH),
            ("f = Sigmoid(x); g = Mul(x, f); y = Mul(g, b)", SWISH),
            ("f = Softplus(x); t = Tanh(f); y = Mul(x, t)", MISH),
            ("f = Softplus(x); t = Tanh(f); y = Mul(t, x)", MISH),
            ("a = Add(x, 3.0); f = Clip(a, 0.0, 6.0); t = Mul(x, f); y = Div(t, 6.0)", HARD),
            ("a = Add(x, 3.0); f = Clip(a, 0.0, 6.0); t = Div(f, 6.0); y = Mul(x, t)", HARD),
            ("a = Add(3.0, x); f = Clip(a, 0.0, 6.0); t = Mul(f, 0.16666667); y = Mul(t, x)", HARD),
            ("f = HardSigmoid<alpha=0.16666667,beta=0.5>(x); y = Mul(x, f)", HARD),
            ("f = HardSigmoid(x); y = Mul(x, f)", NONE),
            ("f = HardSigmoid<alpha=0.16666667,beta=0.4>(x); y = Mul(x, f)", NONE),
            ("a = Add(x, 3.0); f = Clip(a, 0.0, 5.0); t = Mul(x, f); y = Div(t, 6.0)", NONE),
            ("a = Add(x, 2.0); f = Clip(a, 0.0, 6.0); t = Mul(x, f); y = Div(t, 6.0)", NONE),
            ("a = Add(x, 3.0); f = Clip(a, 0.0, 6.0); t = Mul(x, f); y = Div(t, 3.0)", NONE),
            ("a = Add(x, 3.0); f = Clip(a, 0.0, 6.0); t = Mul(a, f); y = Div(t, 6.0)", NONE),
            ("f = Softplus(x); t = Sigmoid(f); y = Mul(x, t)", NONE),
            ("f = Softplus(x); t = Tanh(x); y = Mul(f, t)", NONE),
            ("n = Neg(x); f = Sigmoid(n); y = Sub(x, f)", NONE),
            ("f = Sigmoid(x); q = Mul(f, f); y = Mul(x, q)", NONE),
            ("f = Sigmoid(x); d = Sub(1.0, f); y = Mul(f, d)", NONE),
            // A sigmoid of something else: a gated unit.
            ("g = Tanh(x); f = Sigmoid(g); y = Mul(x, f)", NONE),
            ("u = Mul(x, w); f = Sigmoid(u); y = Mul(x, f)", NONE),
            // A gelu whose constants are too far off, or of another base.
            ("u = Div(x, 1.41); f = Erf(u); p = Add(f, 1.0); t = Mul(x, p); y = Mul(t, 0.5)", NONE),
            ("u = Div(x, 1.4142135); f = Erf(u); t = Mul(x, f); y = Mul(t, 0.5)", NONE),
            ("u = Div(x, 1.4142135); f = Erf(u); p = Add(f, 1.0); y = Mul(p, 0.5)", NONE),
            ("u = Div(x, w); f = Erf(u); p = Add(f, 1.0); t = Mul(x, p); y = Mul(t, 0.5)", NONE),
        ],
    );
    in_half("f = Softplus(h); t = Tanh(f); o = Mul(h, t)", MISH);
    in_half("a = Add(h, 3h); f = Clip(a, 0h, 6h); t = Mul(h, f); o = Div(t, 6h)", HARD);
}
