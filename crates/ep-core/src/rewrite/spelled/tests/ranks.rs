//! Constants of more axes than what is normalised, activated or turned give the result more: that is no such operator.

use onnx_graph::Tensor;

use super::Model;
use crate::testing::{E, tensor, uniform};

/// Constants of four axes beside x (B, 3, 8).
fn model() -> Model {
    let one = |value: f64| -> Tensor<'static> { tensor(E::Float, [1, 1, 1, 1], &[value]) };
    let mut model = Model::new();
    model.initializers.extend([
        ("half", one(0.5)),
        ("one", one(1.0)),
        ("two", one(2.0)),
        ("three", one(3.0)),
        ("six", one(6.0)),
        ("root", one(2f64.sqrt())),
        ("tiny", one(1e-5)),
        ("long", uniform(E::Float, [1, 1, 1, 8], 0.5, 1.5)),
    ]);
    model
}

/// Each spelling is the operator, and none if one of the words is replaced by a constant of four axes.
fn check(nodes: &str, wanted: &str, replaced: &[(&str, &str)]) {
    let model = model();
    model.check(nodes, &[wanted]);
    for (word, by) in replaced {
        assert!(nodes.contains(word), "{word}");
        model.check(&nodes.replacen(word, by, 1), &[]);
    }
}

#[test]
fn of_norms() {
    let parts: &[(&str, &str)] = &[("2.0", "two"), ("1e-5", "tiny"), ("0.5", "half")];
    check(
        "q = Pow(x, 2.0); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Pow(e, 0.5); n = Div(x, s); y = Mul(n, w)",
        "rms_norm",
        parts,
    );
    check(
        "m = ReduceMean(x, [-1]); d = Sub(x, m); q = Pow(d, 2.0); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Pow(e, 0.5); n = Div(d, s); t = Mul(n, w); y = Add(t, b)",
        "layer_norm",
        parts,
    );
    // What comes after it is another matter.
    let scaled = "q = Mul(x, x); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e); n = Div(x, s); y = Mul(n, long)";
    model().check(scaled, &["rms_norm"]);
    // Hidden under a mean of squares, or in both.
    check(
        "d = Mul(x, 1.0); q = Mul(x, d); v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e); y = Div(x, s)",
        "rms_norm",
        &[("1.0", "one")],
    );
}

#[test]
fn of_activations() {
    check(
        "u = Div(x, 1.4142135); e = Erf(u); p = Add(e, 1.0); t = Mul(x, p); y = Mul(t, 0.5)",
        "gelu",
        &[("1.4142135", "root"), ("1.0", "one"), ("0.5", "half")],
    );
    check(
        "k = Pow(x, 3.0); l = Mul(k, 0.044715); a = Add(x, l); u = Mul(a, 0.7978845608); h = Tanh(u); p = Add(h, 1.0); o = Mul(x, 0.5); y = Mul(o, p)",
        "gelu_tanh",
        &[("3.0", "three"), ("1.0", "one"), ("0.5", "half")],
    );
    check("u = Mul(x, 1.0); s = Sigmoid(u); y = Mul(x, s)", "swish", &[("1.0", "one")]);
    check("u = Mul(x, 1.0); s = Softplus(u); t = Tanh(s); y = Mul(x, t)", "mish", &[("1.0", "one")]);
    check(
        "a = Add(x, 3.0); r = Clip(a, 0.0, 6.0); m = Mul(x, r); y = Div(m, 6.0)",
        "hard_swish",
        &[("3.0", "three"), ("m, 6.0", "m, six")],
    );
}
