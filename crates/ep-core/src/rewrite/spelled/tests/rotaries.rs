use onnx_graph::Tensor;

use crate::testing::graphs::{agrees_within, kernels};
use crate::testing::{E, f32s, run_ours, text, tol};

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
fn by_bounds_that_are_computed() {
    let size = |of: &str, at: i64| {
        format!("z1 = Shape({of}); z2 = Gather(z1, [{at}]); half = Div(z2, [2]); a:0x4x0x4 = Slice(xv, [0], half, [3], [1]);
            b:0x4x0x4 = Slice(xv, half, [9223372036854775807], [3], [1]);")
    };
    // The sizes of the last axis are not declared.
    let x = "t:0x4x0x0 = Transpose<perm=[0, 1, 2, 3]>(x); xv:0x4x0x0 = Transpose<perm=[0, 1, 2, 3]>(t);";
    let rest = format!(
        "n:0x4x0x4 = Neg(b); r:0x4x0x8 = Concat<axis=-1>(n, a); p = Mul(xv, c); q = Mul(r, s); z = Add(p, q); {REST}"
    );
    check(&format!("{x} {} {rest}", size("xv", 3)), &["rotary"]);
    check(&format!("{x} {} {rest}", size("x", -1)), &["rotary"]);
    let swapped = "o = Transpose<perm=[0, 2, 1, 3]>(x); o2:0x0x4x0 = Reshape(o, [0, 0, 0, -1]); xv:0x4x0x0 = Transpose<perm=[0, 2, 1, 3]>(o2);";
    let sizes = "z0 = Shape(o2); z1 = Gather(z0, [0, 2, 1, 3]); z2 = Gather(z1, [3]); half = Div(z2, [2]);
        a:0x4x0x4 = Slice(xv, [0], half, [3], [1]); b:0x4x0x4 = Slice(xv, half, [9223372036854775807], [3], [1]);";
    check(&format!("{swapped} {sizes} {rest}"), &["rotary"]);
    // Half the size of another axis, which happens to be as long.
    check(&format!("{x} {} {rest}", size("c", 1)), &[]);
}

/// As chunks: of (n + 1) / 2 elements, and up to twice as many.
#[test]
fn by_chunks() {
    let chunks = |more: &str| {
        format!("z1 = Shape(x); z2 = Gather(z1, [-1]); z3 = Add(z2, [{more}]); c1 = Div(z3, [2]); c2 = Mul(c1, [2]);
            a:0x4x0x4 = Slice(x, [0], c1, [-1]); b:0x4x0x4 = Slice(x, c1, c2, [-1]); n:0x4x0x4 = Neg(b);
            r:0x4x0x8 = Concat<axis=-1>(n, a); p = Mul(x, c); q = Mul(r, s); z = Add(p, q); {REST}")
    };
    check(&chunks("1"), &["rotary"]);
    // A fifth and three more make no halves.
    let uneven = chunks("1").replace("Div(z3, [2])", "Sub(z3, [6])").replace("Mul(c1, [2])", "Add(c1, [5])");
    check(&uneven.replace("a:0x4x0x4", "a:0x4x0x3").replace("b:0x4x0x4", "b:0x4x0x5"), &[]);
}

#[test]
fn even_and_odd_elements() {
    let picks = "b:0x4x0x4 = Slice(x, [1], [9223372036854775807], [3], [2]); a:0x4x0x4 = Slice(x, [0], [9223372036854775807], [3], [2]);
        n:0x4x0x4 = Neg(b);";
    let stacked = |first: &str, second: &str| {
        format!("{picks} u1:0x4x0x4x1 = Unsqueeze({first}, [-1]); u2:0x4x0x4x1 = Unsqueeze({second}, [4]);
            k:0x4x0x4x2 = Concat<axis=-1>(u1, u2); i:0x4x0x8 = Reshape(k, [0, 0, 0, 8]); p = Mul(x, c); q = Mul(i, s);
            z = Add(p, q); {REST}")
    };
    check(&stacked("n", "a"), &["rotary"]);
    check(&stacked("a", "n"), &[]);
}

/// As slices that name all axes, and axes that a reshape makes of the last.
#[test]
fn halves_that_are_picked_otherwise() {
    let end = "9223372036854775807";
    let named = format!(
        "a:0x4x0x4 = Slice(x, [0, 0, 0, 0], [2147483647, 2147483647, {end}, 4], [0, 1, 2, 3], [1, 1, 1, 1]);
        b:0x4x0x4 = Slice(x, [0, 0, 4], [{end}, {end}, {end}], [1, 2, -1]);"
    );
    let rest = format!(
        "n:0x4x0x4 = Neg(b); r:0x4x0x8 = Concat<axis=-1>(n, a); p = Mul(x, c); q = Mul(r, s); z = Add(p, q); {REST}"
    );
    check(&format!("{named} {rest}"), &["rotary"]);
    let split = "k:0x4x0x2x4 = Reshape(x, [0, 0, 0, 2, 4]);";
    let squeezed = "f:0x4x0x1x4, g:0x4x0x1x4 = Split<axis=3,num_outputs=2>(k); a:0x4x0x4 = Squeeze(f, [-2]); b:0x4x0x4 = Squeeze(g, [3]);";
    check(&format!("{split} {squeezed} {rest}"), &["rotary"]);
    let gathered = "a:0x4x0x4 = Gather<axis=-2>(k, 0i); b:0x4x0x4 = Gather<axis=3>(k, 1i);";
    check(&format!("{split} {gathered} {rest}"), &["rotary"]);
    // Pairs of neighbours, where halves are put back, and the second half first.
    let neighbours = "k:0x4x0x4x2 = Reshape(x, [0, 0, 0, 4, 2]); a:0x4x0x4 = Gather<axis=-1>(k, 0i); b:0x4x0x4 = Gather<axis=-1>(k, 1i);";
    check(&format!("{neighbours} {rest}"), &[]);
    check(
        &format!("{split} a:0x4x0x4 = Gather<axis=-2>(k, 1i); b:0x4x0x4 = Gather<axis=3>(k, 0i); {rest}"),
        &[],
    );
}

#[test]
fn pairs_of_neighbours() {
    let picks = "k:0x4x0x4x2 = Reshape(x, [0, 0, 0, 4, 2]); a:0x4x0x4 = Gather<axis=-1>(k, 0i); b:0x4x0x4 = Gather<axis=-1>(k, -1i);";
    let strides = "b:0x4x0x4 = Slice(x, [1], [9223372036854775807], [3], [2]); a:0x4x0x4 = Slice(x, [0], [9223372036854775807], [3], [2]);";
    let turned = "ac = Mul(a, ch); bs = Mul(b, sh); bc = Mul(b, ch); as = Mul(a, sh); m:0x4x0x4 = Sub(ac, bs); n:0x4x0x4 = Add(bc, as);";
    let ends = format!("u1:0x4x0x4x1 = Unsqueeze(m, [-1]); u2:0x4x0x4x1 = Unsqueeze(n, [-1]); t:0x4x0x4x2 = Concat<axis=-1>(u1, u2);
        z:0x4x0x8 = Reshape(t, [0, 0, 0, 8]); {OTHERS}");
    check(&format!("{picks} {turned} {ends}"), &["rotary"]);
    check(&format!("{strides} {turned} {ends}"), &["rotary"]);
    // Halves put beside each other as neighbours, and the pair the other way round.
    check(&format!("{SLICES} {turned} {ends}"), &[]);
    check(
        &format!("{picks} {turned} {}", ends.replace("Concat<axis=-1>(u1, u2)", "Concat<axis=-1>(u2, u1)")),
        &[],
    );
}

/// As ONNX Runtime moves transpositions: x is transposed, and its product with transposed cosines is.
#[test]
fn products_before_a_transposition() {
    let nodes = |perm: &str, second: &str| {
        format!("w0:0x0x4x8 = Transpose<perm=[0, 2, 1, 3]>(x); k = Abs(w0); w1:0x0x4x8 = Neg(k); xv:0x4x0x8 = Transpose<perm=[0, 2, 1, 3]>(w1);
        a:0x4x0x4 = Slice(xv, [0], [4], [3]); b:0x4x0x4 = Slice(xv, [4], [8], [3]); n:0x4x0x4 = Neg(b); r:0x4x0x8 = Concat<axis=-1>(n, a);
        c4:1x1x0x8 = Unsqueeze(c, [0, 1]); ct:1x0x1x8 = Transpose<perm={perm}>(c4); pt:0x0x4x8 = Mul(w1, ct);
        p:0x4x0x8 = Transpose<perm={second}>(pt); q = Mul(r, s); z = Add(p, q); {REST}")
    };
    check(&nodes("[0, 2, 1, 3]", "[0, 2, 1, 3]"), &["rotary"]);
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

/// Tables wider than the pairs make more elements than x has, which do not go back into its shape.
#[test]
fn tables_that_are_too_wide() {
    let nodes = "b:0x4x0x0 = Slice(x, [1], [9223372036854775807], [3], [2]); a:0x4x0x0 = Slice(x, [0], [9223372036854775807], [3], [2]);
        ac = Mul(a, c); bs = Mul(b, s); bc = Mul(b, c); as = Mul(a, s); m:0x4x0x0 = Sub(ac, bs); n:0x4x0x0 = Add(bc, as);
        u1:0x4x0x0x1 = Unsqueeze(m, [-1]); u2:0x4x0x0x1 = Unsqueeze(n, [-1]); t:0x4x0x0x2 = Concat<axis=-1>(u1, u2);
        w = Shape(x); y:0x4x0x0 = Reshape(t, w)";
    let inputs: &[(&str, E, &[usize])] =
        &[("x", E::Float, &[0, 4, 0, 0]), ("c", E::Float, &[0]), ("s", E::Float, &[0])];
    let graph = text::graph(18, inputs, &[], nodes, &["y"]);
    assert_eq!(kernels(&graph), ["rotary"]);
    let x = f32s([2, 4, 3, 2]);
    let tables = |width: usize| [f32s([width]), f32s([width])];
    let [c, s] = tables(1);
    agrees_within(&graph, 18, &[("x", x.clone()), ("c", c), ("s", s)], tol::F32_SUM);
    let [c, s] = tables(3);
    assert!(run_ours(&graph, &[&x, &c, &s]).is_err());
}
