use super::{check, in_half};

#[test]
fn by_erf() {
    let gelu = &["gelu"];
    check(
        "u = Div(x, 1.4142135381698608); e = Erf(u); p = Add(e, 1.0); t = Mul(x, p); y = Mul(t, 0.5)",
        gelu,
    );
    check("u = Mul(x, 0.70710678); e = Erf(u); p = Add(1.0, e); h = Mul(0.5, x); y = Mul(h, p)", gelu);
    check(
        "u = Div(x, 1.4142135381698608); e = Erf(u); p = Add(e, 1.0); h = Mul(p, 0.5); y = Mul(h, x)",
        gelu,
    );
    check(
        "u = Div(x, 1.4142135381698608); e = Erf(u); p = Add(e, 1.0); h = Div(p, 2.0); y = Mul(h, x)",
        gelu,
    );
    // Of a sum and of a multiple, and with something after it.
    check(
        "a = Add(x, b); u = Mul(0.70710678, a); e = Erf(u); p = Add(e, 1.0); t = Mul(a, p); h = Mul(t, 0.5); y = Add(h, a)",
        gelu,
    );
    check(
        "a = Mul(x, 3.0); u = Div(a, 1.4142135381698608); e = Erf(u); p = Add(e, 1.0); t = Mul(a, p); y = Mul(t, 0.5)",
        gelu,
    );
}

#[test]
fn by_tanh() {
    let gelu = &["gelu_tanh"];
    let rest = "h = Tanh(u); p = Add(h, 1.0); o = Mul(x, 0.5); y = Mul(o, p)";
    check(
        &format!("k = Pow(x, 3.0); l = Mul(k, 0.044715); a = Add(x, l); u = Mul(a, 0.7978845608); {rest}"),
        gelu,
    );
    check(
        &format!(
            "q = Mul(x, x); k = Mul(q, x); l = Mul(0.044715, k); a = Add(l, x); u = Mul(0.7978845608, a); {rest}"
        ),
        gelu,
    );
    check(
        &format!(
            "q = Mul(x, x); l = Mul(q, 0.044715); f = Add(l, 1.0); s = Mul(x, 0.7978845608); u = Mul(s, f); {rest}"
        ),
        gelu,
    );
    check(
        "q = Mul(x, x); l = Mul(q, 0.0356774081); f = Add(l, 0.7978845608); u = Mul(x, f); h = Tanh(u); t = Mul(x, h); s = Add(t, x); y = Mul(s, 0.5)",
        gelu,
    );
}

#[test]
fn by_sigmoid() {
    check("s = Sigmoid(x); y = Mul(x, s)", &["swish"]);
    check("u = Mul(x, 1.702); s = Sigmoid(u); y = Mul(s, x)", &["swish"]);
    check("a = Add(x, b); s = Sigmoid(a); t = Mul(a, s); y = Mul(t, x)", &["swish"]);
}

#[test]
fn in_16_bits() {
    in_half("u = Div(h, 1.4142h); e = Erf(u); p = Add(e, 1h); t = Mul(h, p); o = Mul(t, 0.5h)", &["gelu"]);
    in_half("f = Cast<to=1>(h); s = Sigmoid(f); t = Mul(f, s); o = Cast<to=10>(t)", &["swish"]);
    in_half("f = Cast<to=1>(h); s = Sigmoid(f); o = Mul(f, s)", &["swish"]);
}

#[test]
fn near_misses() {
    check("u = Div(x, 1.5); e = Erf(u); p = Add(e, 1.0); t = Mul(x, p); y = Mul(t, 0.5)", &[]);
    check("u = Mul(x, 0.70710678); e = Erf(u); p = Sub(e, 1.0); t = Mul(x, p); y = Mul(t, 0.5)", &[]);
    check("u = Mul(x, 0.70710678); e = Erf(u); p = Add(e, 1.0); t = Mul(x, p); y = Mul(t, 0.6)", &[]);
    check("u = Mul(x, 0.70710678); e = Erf(u); p = Add(e, 1.0); t = Mul(b, p); y = Mul(t, 0.5)", &[]);
    let rest = "h = Tanh(u); p = Add(h, 1.0); o = Mul(x, 0.5); y = Mul(o, p)";
    check(
        &format!("k = Pow(x, 2.0); l = Mul(k, 0.044715); a = Add(x, l); u = Mul(a, 0.7978845608); {rest}"),
        &[],
    );
    check(
        &format!("k = Pow(x, 3.0); l = Mul(k, 0.045); a = Add(x, l); u = Mul(a, 0.7978845608); {rest}"),
        &[],
    );
    check("s = Sigmoid(x); t = Tanh(x); y = Mul(t, s)", &[]);
    check("u = Add(x, 1.0); s = Sigmoid(u); y = Mul(x, s)", &[]);
    check("s = Sigmoid(x); y = Add(x, s)", &[]);
    // A part that is read elsewhere is computed anyway.
    check("s = Sigmoid(x); t = Mul(x, s); y = Sub(t, s)", &[]);
}
