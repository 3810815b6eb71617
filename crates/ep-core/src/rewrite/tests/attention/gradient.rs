//! Spellings of the pullback.

use onnx_graph::Attribute;

use super::{BACKWARD, FORWARD, OPSET, Value, Writer, check};
use crate::rewrite;
use crate::testing::graphs::{agrees, agrees_with, kernels};
use crate::testing::{E, tol, uniform};

const BOTH: &[&str] = &[BACKWARD, FORWARD];

/// Probabilities and what became of them: writes the scores' derivative from P and dP.
pub(super) fn shares(w: &mut Writer, p: &Value, dp: &Value) -> Value {
    let weighted = w.like("Mul", &[dp, p]);
    let sums = w.row_sums(&weighted, -1);
    let share = w.like("Mul", &[p, &sums]);
    w.like("Sub", &[&weighted, &share])
}

/// The same, as P (dP - sum).
pub(super) fn difference(w: &mut Writer, p: &Value, dp: &Value) -> Value {
    let weighted = w.like("Mul", &[p, dp]);
    let sums = w.row_sums(&weighted, -1);
    let rest = w.like("Sub", &[dp, &sums]);
    w.like("Mul", &[p, &rest])
}

/// Y, dQ, dK and dV from P and the scores' derivative, in 4 axes.
pub(super) fn outputs(w: &mut Writer, [q, k, v, dy]: &[Value; 4], p: &Value, ds: &Value) -> [Value; 4] {
    let y = w.matmul(p, v);
    let dq = w.matmul(ds, k);
    let (columns, turned) = (w.turned(ds), w.turned(p));
    let dk = w.matmul(&columns, q);
    let dv = w.matmul(&turned, dy);
    [y, dq, dk, dv]
}

/// Scores times 0.4, `masked` in some way, and all derivatives.
fn plain(
    masked: impl Fn(&mut Writer, &Value) -> Value,
    derivative: impl Fn(&mut Writer, &Value, &Value) -> Value,
) -> (Writer, [Value; 4]) {
    let mut w = Writer::new();
    let inputs = w.inputs();
    let [q, k, v, dy] = &inputs;
    let k_columns = w.turned(k);
    let product = w.matmul(q, &k_columns);
    let scores = w.times(&product, 0.4);
    let scores = masked(&mut w, &scores);
    let p = w.softmax(&scores);
    let v_columns = w.turned(v);
    let dp = w.matmul(dy, &v_columns);
    let ds = derivative(&mut w, &p, &dp);
    let ds = w.times(&ds, 0.4);
    let all = outputs(&mut w, &inputs, &p, &ds);
    (w, all)
}

fn checks((w, all): (Writer, [Value; 4])) {
    check(&w.finish(&all.each_ref()), BOTH);
}

fn bare(_: &mut Writer, scores: &Value) -> Value {
    scores.clone()
}

#[test]
fn shares_of_the_sum() {
    checks(plain(bare, shares));
}

#[test]
fn difference_from_the_sum() {
    checks(plain(bare, difference));
}

/// ONNX Runtime's CPU provider has these in builds for training only.
#[test]
fn operators_for_a_softmax_derivative() {
    for op in ["SoftmaxGrad_13", "SoftmaxGrad"] {
        let single = |w: &mut Writer, p: &Value, dp: &Value| {
            let axis = if op == "SoftmaxGrad" { 3i64 } else { -1 };
            let node = w.b.node(op, &[Some(dp.id), Some(p.id)]).domain("com.microsoft", 1);
            let id = node.attr("axis", axis).output();
            w.b.declare(id, E::Float, &["B".into(), "H".into(), "L".into(), "S".into()]);
            Value { id, ..p.clone() }
        };
        let [ours, theirs] =
            [plain(bare, single), plain(bare, shares)].map(|(w, all)| w.finish(&all.each_ref()));
        assert_eq!(kernels(&ours), BOTH);
        let mut inputs = super::data(super::SIZES[0]);
        inputs.truncate(4);
        agrees_with([&ours, &theirs], OPSET, &inputs, tol::F32_SUM);
    }
}

#[test]
fn a_mask_that_is_added() {
    let added = |w: &mut Writer, scores: &Value| {
        let bias = w.input("bias", E::Float, &["H", "L", "S"]);
        w.like("Add", &[scores, &bias])
    };
    checks(plain(added, shares));
}

#[test]
fn a_mask_of_bools_that_also_stops_the_derivative() {
    let mut w = Writer::new();
    let inputs = w.inputs();
    let [q, k, v, dy] = &inputs;
    let visible = w.input("visible", E::Bool, &["B", "1", "L", "S"]);
    let (low, zero) = (w.number(f32::NEG_INFINITY), w.number(0.0));
    let k_columns = w.turned(k);
    let scores = w.matmul(q, &k_columns);
    let scores = w.op("Where", &[&visible, &scores, &low], &["B", "H", "L", "S"]);
    let p = w.softmax(&scores);
    let v_columns = w.turned(v);
    let dp = w.matmul(dy, &v_columns);
    let ds = shares(&mut w, &p, &dp);
    let ds = w.op("Where", &[&visible, &ds, &zero], &["B", "H", "L", "S"]);
    let all = outputs(&mut w, &inputs, &p, &ds);
    check(&w.finish(&all.each_ref()), BOTH);
}

#[test]
fn rows_that_see_nothing_are_guarded() {
    let mut w = Writer::new();
    let inputs = w.inputs();
    let [q, k, v, dy] = &inputs;
    let blind = w.input("blind", E::Bool, &["B", "1", "L", "S"]);
    let (low, zero) = (w.number(f32::NEG_INFINITY), w.number(0.0));
    let mask = w.op("Where", &[&blind, &zero, &low], &["B", "1", "L", "S"]);
    let k_columns = w.turned(k);
    let product = w.matmul(q, &k_columns);
    let scores = w.like("Add", &[&product, &mask]);
    let p = w.softmax(&scores);
    let names = ["B", "H", "L", "S"];
    let hidden = w.node("Equal", &[&scores, &low], &[], &names, E::Bool);
    let seen = w.node("Not", &[&hidden], &[], &names, E::Bool);
    let seen = w.node("Cast", &[&seen], &[("to", Attribute::Int(7))], &names, E::Int64);
    let axes = w.constant(onnx_graph::Tensor::from_ints(&[-1]));
    let rows = ["B", "H", "L", "1"];
    let any = w.node("ReduceMax", &[&seen, &axes], &[], &rows, E::Int64);
    let any = w.node("Cast", &[&any], &[("to", Attribute::Int(9))], &rows, E::Bool);
    let none = w.node("Not", &[&any], &[], &rows, E::Bool);
    let p = w.op("Where", &[&none, &zero, &p], &names);
    let v_columns = w.turned(v);
    let dp = w.matmul(dy, &v_columns);
    let ds = shares(&mut w, &p, &dp);
    let all = outputs(&mut w, &inputs, &p, &ds);
    check(&w.finish(&all.each_ref()), BOTH);
}

/// As PyTorch writes it: factors of the scale on both sides, stacks of matrices with 3 axes, and dK transposed last.
#[test]
fn stacks_of_three_axes() {
    let mut w = Writer::new();
    let [q, k, v, dy] = w.inputs();
    let flat = |w: &mut Writer, value: &Value| {
        let names = ["B*H", value.dims[2], value.dims[3]];
        w.reshaped(value, &names)
    };
    let k_columns = w.turned(&k);
    let (q, k) = (w.times(&q, 0.6), w.times(&k_columns, 0.6));
    let [q, k, v, dy] = [&q, &k, &v, &dy].map(|value| flat(&mut w, value));
    let product = w.matmul(&q, &k);
    let scores = w.reshaped(&product, &["B", "H", "L", "S"]);
    let p = w.softmax(&scores);
    let flat_p = flat(&mut w, &p);
    let y = w.matmul(&flat_p, &v);
    let turned = w.turned(&flat_p);
    let dv = w.matmul(&turned, &dy);
    let v_columns = w.turned(&v);
    let dp = w.matmul(&dy, &v_columns);
    let dp = w.reshaped(&dp, &["B", "H", "L", "S"]);
    let ds = shares(&mut w, &p, &dp);
    let ds = flat(&mut w, &ds);
    let q_columns = w.turned(&q);
    let dk = w.matmul(&q_columns, &ds);
    let k_rows = w.turned(&k);
    let dq = w.matmul(&ds, &k_rows);
    let dk = w.reshaped(&dk, &["B", "H", "E", "S"]);
    let [y, dq, dv] = [(&y, "L", "V"), (&dq, "L", "E"), (&dv, "S", "V")]
        .map(|(value, rows, columns)| w.reshaped(value, &["B", "H", rows, columns]));
    let dk = w.times(&dk, 0.6);
    let (dk, dq) = (w.turned(&dk), w.times(&dq, 0.6));
    check(&w.finish(&[&y, &dq, &dk, &dv]), BOTH);
}

#[test]
fn a_scale_that_is_computed() {
    let mut w = Writer::new();
    let inputs = w.inputs();
    let [q, k, v, dy] = &inputs;
    let width = w.size("E", q.id, v.id);
    let width = Value { id: width, dims: vec!["1"], element: E::Int64 };
    let width = w.node("Cast", &[&width], &[("to", Attribute::Int(1))], &["1"], E::Float);
    let root = w.op("Sqrt", &[&width], &["1"]);
    let k_columns = w.turned(k);
    let product = w.matmul(q, &k_columns);
    let scores = w.like("Div", &[&product, &root]);
    let p = w.softmax(&scores);
    let v_columns = w.turned(v);
    let dp = w.matmul(dy, &v_columns);
    let ds = shares(&mut w, &p, &dp);
    let ds = w.like("Div", &[&ds, &root]);
    let all = outputs(&mut w, &inputs, &p, &ds);
    check(&w.finish(&all.each_ref()), BOTH);
}

#[test]
fn one_derivative_alone() {
    for wanted in 1..4 {
        let (w, all) = plain(bare, shares);
        // The other two are not there at all, or nobody reads them.
        check(&w.finish(&[&all[0], &all[wanted]]), BOTH);
    }
}

#[test]
fn einsum_with_heads_inside() {
    let mut w = Writer::new();
    let inputs = w.inputs();
    let [q, k, v, dy] = [0, 1, 2, 3].map(|i| w.transposed(&inputs[i], &[0, 2, 1, 3]));
    let einsum = |w: &mut Writer, equation: &str, a: &Value, b: &Value, names: [&'static str; 4]| {
        let equation = Attribute::String(equation.as_bytes().to_vec());
        w.node("Einsum", &[a, b], &[("equation", equation)], &names, E::Float)
    };
    let scores = einsum(&mut w, "blhe,bshe->bhls", &q, &k, ["B", "H", "L", "S"]);
    let scores = w.times(&scores, 0.3);
    let p = w.softmax(&scores);
    let y = einsum(&mut w, "bhls,bshd->blhd", &p, &v, ["B", "L", "H", "V"]);
    let dv = einsum(&mut w, "bhls,blhd->bshd", &p, &dy, ["B", "S", "H", "V"]);
    let dp = einsum(&mut w, "blhd,bshd->bhls", &dy, &v, ["B", "H", "L", "S"]);
    let ds = difference(&mut w, &p, &dp);
    let ds = w.times(&ds, 0.3);
    let dq = einsum(&mut w, "bhls,bshe->blhe", &ds, &k, ["B", "L", "H", "E"]);
    let dk = einsum(&mut w, "bhls,blhe->bshe", &ds, &q, ["B", "S", "H", "E"]);
    check(&w.finish(&[&y, &dq, &dk, &dv]), BOTH);
}

/// Keys and values of two heads for queries of four: repeated before the products, and summed over the pairs after.
#[test]
fn heads_that_are_shared() {
    for keep in [0i64, 1] {
        let mut w = Writer::new();
        let q = w.input("q", E::Float, &["B", "4", "L", "E"]);
        let k = w.input("k", E::Float, &["B", "2", "S", "E"]);
        let v = w.input("v", E::Float, &["B", "2", "S", "V"]);
        let dy = w.input("dy", E::Float, &["B", "4", "L", "V"]);
        let group = w.constant(onnx_graph::Tensor::from_ints(&[2]));
        let repeated = |w: &mut Writer, x: &Value| {
            let (rows, columns) = (x.dims[2], x.dims[3]);
            let x = w.op("Unsqueeze", &[x, &group], &["B", "2", "1", rows, columns]);
            let twice = w.constant(onnx_graph::Tensor::from_ints(&[1, 1, 2, 1, 1]));
            let x = w.op("Expand", &[&x, &twice], &["B", "2", "2", rows, columns]);
            w.reshaped(&x, &["B", "4", rows, columns])
        };
        let inputs = [q, repeated(&mut w, &k), repeated(&mut w, &v), dy];
        let [q, k, v, dy] = &inputs;
        let k_columns = w.turned(k);
        let product = w.matmul(q, &k_columns);
        let scores = w.times(&product, 0.4);
        let p = w.softmax(&scores);
        let v_columns = w.turned(v);
        let dp = w.matmul(dy, &v_columns);
        let ds = shares(&mut w, &p, &dp);
        let [y, dq, dk, dv] = outputs(&mut w, &inputs, &p, &ds);
        let (dq, dk) = (w.times(&dq, 0.4), w.times(&dk, 0.4));
        let summed = |w: &mut Writer, x: &Value| {
            let (rows, columns) = (x.dims[2], x.dims[3]);
            let x = w.reshaped(x, &["B", "2", "2", rows, columns]);
            let names: &[&'static str] =
                if keep == 1 { &["B", "2", "1", rows, columns] } else { &["B", "2", rows, columns] };
            w.node("ReduceSum", &[&x, &group], &[("keepdims", Attribute::Int(keep))], names, E::Float)
        };
        let (dk, dv) = (summed(&mut w, &dk), summed(&mut w, &dv));
        let graph = w.finish(&[&y, &dq, &dk, &dv]);
        assert_eq!(kernels(&graph), BOTH);
        let mut rewritten = graph.clone();
        let rules = rewrite::Rules { selective_scan: false, spelled: true };
        rewrite::apply(&mut rewritten, rules, mlx_safe::DeviceType::Cpu).unwrap();
        let left =
            rewritten.nodes().filter(|(_, node)| ["Expand", "ReduceSum"].contains(&node.op_type.as_str()));
        assert_eq!(left.count(), 0);
        for [b, l, s] in [[2, 5, 7], [1, 3, 2]] {
            let floats = |name, dims: [usize; 4]| (name, uniform(E::Float, dims, -1.0, 1.0));
            let inputs = [
                floats("q", [b, 4, l, 3]),
                floats("k", [b, 2, s, 3]),
                floats("v", [b, 2, s, 6]),
                floats("dy", [b, 4, l, 6]),
            ];
            agrees(&graph, OPSET, &inputs);
        }
    }
}
