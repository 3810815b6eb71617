use onnx_graph::Graph;

use crate::testing::graphs::{agrees_within, kernels};
use crate::testing::{E, f32s, text, tol, uniform};

const OPSET: i64 = 18;

/// A model over x (B, 4, S, 6) with weights w (8, 4, 3, 3), wg in two groups, per channel b, s, m, v, and columns of channels.
fn graph(opset: i64, nodes: &str) -> Graph<'static> {
    let all = [
        ("w", f32s([8, 4, 3, 3])),
        ("wg", f32s([8, 2, 1, 1])),
        ("b", f32s([8])),
        ("s", uniform(E::Float, [8], 0.5, 1.5)),
        ("m", f32s([8])),
        ("v", uniform(E::Float, [8], 0.1, 2.0)),
        ("c", f32s([8, 1, 1])),
        ("c4", f32s([1, 8, 1, 1])),
        ("r", f32s([1])),
        ("row", f32s([6])),
        ("w1", f32s([8, 4, 1, 1])),
        ("wt", f32s([4, 8, 3, 3])),
        ("wtg", f32s([4, 4, 3, 3])),
        ("s1", f32s([1, 1, 1])),
        ("many", f32s([2, 8, 1, 1])),
    ];
    let used = |name: &str| nodes.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
    let initializers: Vec<_> = all.into_iter().filter(|(name, _)| used(name)).collect();
    text::graph(opset, &[("x", E::Float, &[0, 4, 0, 6])], &initializers, nodes, &["y"])
}

fn check(nodes: &str, wanted: &[&str]) {
    check_at(OPSET, nodes, wanted);
}

fn check_at(opset: i64, nodes: &str, wanted: &[&str]) {
    let graph = graph(opset, nodes);
    assert_eq!(kernels(&graph), wanted, "{nodes}");
    for [batch, size] in [[1, 5], [2, 7]] {
        agrees_within(&graph, opset, &[("x", f32s([batch, 4, size, 6]))], tol::F32_SUM);
    }
}

#[test]
fn normalised() {
    check("z = Conv(x, w, b); y = BatchNormalization(z, s, b, m, v)", &["conv"]);
    check("z = Conv<strides=[2, 1]>(x, w); y = BatchNormalization<epsilon=0.25>(z, s, b, m, v)", &["conv"]);
    check("z = Conv<group=2>(x, wg, b); n = BatchNormalization(z, s, b, m, v); y = Relu(n)", &["conv"]);
}

#[test]
fn scaled_and_shifted() {
    check("z = Conv(x, w, b); y = Mul(z, c)", &["conv"]);
    check("z = Conv(x, w); y = Mul(c4, z)", &["conv"]);
    check("z = Conv(x, w); y = Add(z, c)", &["conv"]);
    check("z = Conv(x, w, b); y = Sub(z, r)", &["conv"]);
    check("z = Conv(x, w); y = Add(z, 0.5)", &["conv"]);
    check("z = Conv(x, w, b); k = Mul(z, c); y = Add(k, c4)", &["conv", "conv"]);
    check(
        "z = Conv(x, w, b); k = Mul(z, c); n = BatchNormalization(k, s, b, m, v); y = Mul(n, 2.0)",
        &["conv", "conv", "conv"],
    );
}

#[test]
fn transposed() {
    check("z = ConvTranspose(x, wt, b); y = BatchNormalization(z, s, b, m, v)", &["conv"]);
    check(
        "z = ConvTranspose<strides=[2, 2],output_padding=[1, 1]>(x, wt); y = BatchNormalization(z, s, b, m, v)",
        &["conv"],
    );
    check("z = ConvTranspose(x, wt); k = Mul(z, c); y = Add(k, c4)", &["conv", "conv"]);
    check("z = ConvTranspose<group=2>(x, wtg, b); y = BatchNormalization(z, s, b, m, v)", &[]);
}

#[test]
fn older_and_other_spellings() {
    for opset in [8, 9, 14, 15] {
        check_at(opset, "z = Conv(x, w, b); y = BatchNormalization<momentum=0.1>(z, s, b, m, v)", &["conv"]);
    }
    check(
        "z = Conv(x, w, b); y = BatchNormalization<momentum=0.5,epsilon=0.001,training_mode=0>(z, s, b, m, v)",
        &["conv"],
    );
    // The scale is computed from constants; it is a scalar, or has three axes of one.
    check("k = Exp(c); j = Reciprocal(k); z = Conv(x, w); y = Mul(z, j)", &["conv"]);
    check("z = Conv(x, w); y = Mul(z, s1)", &["conv"]);
    check("z = Conv(x, w, b); y = Mul(z, [2.5])", &["conv"]);
    check("z = Conv<group=2>(x, wg); k = Mul(z, c); y = Sub(k, c4)", &["conv", "conv"]);
    check(
        "z = Conv<dilations=[2, 1],pads=[1, 0, 1, 2]>(x, w, b); y = BatchNormalization(z, s, b, m, v)",
        &["conv"],
    );
}

#[test]
fn near_misses() {
    // Along another axis; by what is no constant; read twice; constants less the convolution.
    check("z = Conv<pads=[1, 1, 1, 1]>(x, w); y = Mul(z, row)", &[]);
    check("z = Conv(x, w, b); y = Mul(z, z)", &[]);
    check("z = Conv(x, w, b); k = Mul(z, c); y = Add(k, z)", &[]);
    check("z = Conv(x, w, b); y = Sub(c, z)", &[]);
    check("k = Mul(x, x); z = Relu(k); y = Mul(z, 2.0)", &[]);
    // For each of a batch; read twice; in between; by what is computed.
    check("z = Conv(x, w, b); y = Mul(z, many)", &[]);
    check("z = Conv(x, w1); n = BatchNormalization(z, s, b, m, v); y = Add(n, z)", &[]);
    check("z = Conv(x, w); f = Relu(z); y = BatchNormalization(f, s, b, m, v)", &[]);
    check("z = Conv(x, w, b); k = ReduceMax(x, [0, 1, 2, 3]); y = Mul(z, k)", &[]);
    // The batch's own mean and variance.
    check("z = Conv(x, w, b); y, a, o = BatchNormalization<training_mode=1>(z, s, b, m, v)", &[]);
}
