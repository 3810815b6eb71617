use onnx_graph::Graph;

use crate::testing::graphs::{agrees_within, kernels};
use crate::testing::{E, f32s, text, tol, uniform};

/// A model over x (B, 4, S, 6) with weights w (8, 4, 3, 3), wg in two groups, per channel b, s, m, v, and columns of channels.
fn graph(nodes: &str) -> Graph<'static> {
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
    ];
    let used = |name: &str| nodes.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
    let initializers: Vec<_> = all.into_iter().filter(|(name, _)| used(name)).collect();
    text::graph(18, &[("x", E::Float, &[0, 4, 0, 6])], &initializers, nodes, &["y"])
}

fn check(nodes: &str, wanted: &[&str]) {
    let graph = graph(nodes);
    assert_eq!(kernels(&graph), wanted, "{nodes}");
    for [batch, size] in [[1, 5], [2, 7]] {
        agrees_within(&graph, 18, &[("x", f32s([batch, 4, size, 6]))], tol::F32_SUM);
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
fn near_misses() {
    // Along another axis; by what is no constant; read twice; constants less the convolution.
    check("z = Conv<pads=[1, 1, 1, 1]>(x, w); y = Mul(z, row)", &[]);
    check("z = Conv(x, w, b); y = Mul(z, z)", &[]);
    check("z = Conv(x, w, b); k = Mul(z, c); y = Add(k, z)", &[]);
    check("z = Conv(x, w, b); y = Sub(c, z)", &[]);
    check("k = Mul(x, x); z = Relu(k); y = Mul(z, 2.0)", &[]);
}
