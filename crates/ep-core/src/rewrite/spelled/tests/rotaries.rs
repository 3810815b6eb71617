use onnx_graph::Tensor;

use crate::testing::graphs::{agrees_within, kernels};
use crate::testing::{E, f32s, text, tol};

/// Rows and columns of x (B, 4, S, 8) as a model over positions sees them: tables of cosines and sines (S, 8) and (S, 4).
fn check(nodes: &str, wanted: &[&str]) {
    let inputs: &[(&str, E, &[usize])] = &[
        ("x", E::Float, &[0, 4, 0, 8]),
        ("c", E::Float, &[0, 8]),
        ("s", E::Float, &[0, 8]),
        ("ch", E::Float, &[0, 4]),
        ("sh", E::Float, &[0, 4]),
    ];
    let graph = text::graph(18, inputs, &[], nodes, &["y"]);
    assert_eq!(kernels(&graph), wanted, "{nodes}");
    for [batch, length] in [[1, 3], [2, 5]] {
        let table = |width| f32s([length, width]);
        let x: Tensor<'static> = f32s([batch, 4, length, 8]);
        let given = [("x", x), ("c", table(8)), ("s", table(8)), ("ch", table(4)), ("sh", table(4))];
        agrees_within(&graph, 18, &given, tol::F32_SUM);
    }
}

/// Everything is read, for all inputs to be there.
const REST: &str = "u = ReduceSum(ch); v = ReduceSum(sh); w = Mul(u, v); y = Add(z, w)";
const OTHERS: &str = "u = ReduceSum(c); v = ReduceSum(s); w = Mul(u, v); y = Add(z, w)";
const SLICES: &str =
    "a:0x4x0x4 = Slice(x, [0], [4], [3], [1]); b:0x4x0x4 = Slice(x, [4], [9223372036854775807], [3], [1]);";

#[test]
fn by_slices_and_splits() {
    let rest = format!(
        "n:0x4x0x4 = Neg(b); r:0x4x0x8 = Concat<axis=-1>(n, a); p = Mul(x, c); q = Mul(r, s); z = Add(p, q); {REST}"
    );
    check(&format!("{SLICES} {rest}"), &["rotary"]);
    check(&format!("a:0x4x0x4, b:0x4x0x4 = Split<axis=-1,num_outputs=2>(x); {rest}"), &["rotary"]);
    let turned =
        "n:0x4x0x4 = Neg(b); r:0x4x0x8 = Concat<axis=3>(n, a); p = Mul(c, x); q = Mul(s, r); z = Add(q, p)";
    check(&format!("{SLICES} {turned}; {REST}"), &["rotary"]);
}

#[test]
fn half_by_half() {
    let halves = "ac = Mul(a, ch); bs = Mul(b, sh); bc = Mul(b, ch); as = Mul(a, sh); m:0x4x0x4 = Sub(ac, bs); n:0x4x0x4 = Add(bc, as);";
    check(&format!("{SLICES} {halves} z:0x4x0x8 = Concat<axis=-1>(m, n); {OTHERS}"), &["rotary"]);
}

#[test]
fn a_part_of_the_axis() {
    let inputs: &[(&str, E, &[usize])] =
        &[("x", E::Float, &[0, 4, 0, 8]), ("c", E::Float, &[0, 2]), ("s", E::Float, &[0, 2])];
    let nodes = "p:0x4x0x4 = Slice(x, [0], [4], [3]); rest:0x4x0x4 = Slice(x, [4], [8], [3]);
        a:0x4x0x2, b:0x4x0x2 = Split<axis=3,num_outputs=2>(p); ac = Mul(a, c); bs = Mul(b, s); bc = Mul(b, c); as = Mul(a, s);
        m:0x4x0x2 = Sub(ac, bs); n:0x4x0x2 = Add(bc, as); y:0x4x0x8 = Concat<axis=-1>(m, n, rest)";
    let graph = text::graph(18, inputs, &[], nodes, &["y"]);
    assert_eq!(kernels(&graph), ["rotary"]);
    for length in [1, 5] {
        let given = [("x", f32s([2, 4, length, 8])), ("c", f32s([length, 2])), ("s", f32s([length, 2]))];
        agrees_within(&graph, 18, &given, tol::F32_SUM);
    }
}

#[test]
fn near_misses() {
    let rest = format!("p = Mul(x, c); q = Mul(r, s); z = Add(p, q); {REST}");
    // The other half is negated; nothing is; the halves stay in place; the same half twice.
    check(&format!("{SLICES} n:0x4x0x4 = Neg(a); r:0x4x0x8 = Concat<axis=-1>(b, n); {rest}"), &[]);
    check(&format!("{SLICES} r:0x4x0x8 = Concat<axis=-1>(b, a); {rest}"), &[]);
    check(&format!("{SLICES} n:0x4x0x4 = Neg(a); r:0x4x0x8 = Concat<axis=-1>(n, b); {rest}"), &[]);
    check(&format!("{SLICES} n:0x4x0x4 = Neg(b); r:0x4x0x8 = Concat<axis=-1>(n, b); {rest}"), &[]);
    // The difference; the product of the rotated with the rotated; read twice.
    let rotated = format!("{SLICES} n:0x4x0x4 = Neg(b); r:0x4x0x8 = Concat<axis=-1>(n, a);");
    check(&format!("{rotated} p = Mul(x, c); q = Mul(r, s); z = Sub(p, q); {REST}"), &[]);
    check(&format!("{rotated} p = Mul(r, c); q = Mul(r, s); z = Add(p, q); {REST}"), &[]);
    check(&format!("{rotated} p = Mul(x, c); q = Mul(r, s); k = Add(p, q); z = Add(k, r); {REST}"), &[]);
    // Unequal parts.
    let parts = "a:0x4x0x3 = Slice(x, [0], [3], [3], [1]); b:0x4x0x5 = Slice(x, [3], [8], [3], [1]); n:0x4x0x5 = Neg(b);";
    check(&format!("{parts} r:0x4x0x8 = Concat<axis=-1>(n, a); {rest}"), &[]);
    // Signs of halves.
    let halves = "ac = Mul(a, ch); bs = Mul(b, sh); bc = Mul(b, ch); as = Mul(a, sh);";
    for (m, n) in
        [("Add(ac, bs)", "Add(bc, as)"), ("Sub(ac, bs)", "Sub(bc, as)"), ("Sub(bs, ac)", "Add(bc, as)")]
    {
        let ends = format!("m:0x4x0x4 = {m}; n:0x4x0x4 = {n}; z:0x4x0x8 = Concat<axis=-1>(m, n); {OTHERS}");
        check(&format!("{SLICES} {halves} {ends}"), &[]);
    }
}
