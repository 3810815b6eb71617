//! What looks like attention or its pullback and is none, or is more.

use onnx_graph::Attribute;

use super::gradient::{outputs, shares};
use super::{Value, Writer, check};
use crate::testing::E;

/// Attention with its scores changed by `scores` and its probabilities by `rest`.
fn forward(
    scores: impl Fn(&mut Writer, &Value) -> Value,
    rest: impl Fn(&mut Writer, &Value) -> Value,
    more: impl Fn(&mut Writer, &Value) -> Option<Value>,
) {
    let mut w = Writer::new();
    let [q, k, v, _] = w.inputs();
    let k_columns = w.turned(&k);
    let product = w.matmul(&q, &k_columns);
    let product = scores(&mut w, &product);
    let p = w.softmax(&product);
    let more = more(&mut w, &p);
    let p = rest(&mut w, &p);
    let y = w.matmul(&p, &v);
    let all: Vec<&Value> = [&y].into_iter().chain(&more).collect();
    check(&w.finish(&all), &[]);
}

fn same(_: &mut Writer, value: &Value) -> Value {
    value.clone()
}

#[test]
fn scores_that_are_bent() {
    forward(|w, x| w.like("Tanh", &[x]), same, |_, _| None);
    // A scale for each head.
    let of_heads = |w: &mut Writer, x: &Value| {
        let bias = w.input("bias", E::Float, &["H", "L", "S"]);
        w.like("Mul", &[x, &bias])
    };
    forward(of_heads, same, |_, _| None);
    // 0 does not hide a score.
    let filled = |w: &mut Writer, x: &Value| {
        let (visible, zero) = (w.input("visible", E::Bool, &["B", "1", "L", "S"]), w.number(0.0));
        w.op("Where", &[&visible, x, &zero], &["B", "H", "L", "S"])
    };
    forward(filled, same, |_, _| None);
}

#[test]
fn probabilities_that_are_changed_or_wanted() {
    let hidden = |w: &mut Writer, p: &Value| {
        let (visible, zero) = (w.input("visible", E::Bool, &["B", "1", "L", "S"]), w.number(0.0));
        w.op("Where", &[&visible, p, &zero], &["B", "H", "L", "S"])
    };
    forward(same, hidden, |_, _| None);
    forward(same, same, |_, p| Some(p.clone()));
    forward(same, same, |w, p| Some(w.row_sums(p, -2)));
}

#[test]
fn another_axis() {
    let mut w = Writer::new();
    let [q, k, v, _] = w.inputs();
    let k_columns = w.turned(&k);
    let product = w.matmul(&q, &k_columns);
    let names = ["B", "H", "L", "S"];
    let p = w.node("Softmax", &[&product], &[("axis", Attribute::Int(-2))], &names, E::Float);
    let y = w.matmul(&p, &v);
    check(&w.finish(&[&y]), &[]);
}

/// The pullback with something changed.
fn backward(derivative: impl Fn(&mut Writer, &Value, &Value) -> Value) {
    let mut w = Writer::new();
    let inputs = w.inputs();
    let [q, k, v, dy] = &inputs;
    let k_columns = w.turned(k);
    let scores = w.matmul(q, &k_columns);
    let p = w.softmax(&scores);
    let v_columns = w.turned(v);
    let dp = w.matmul(dy, &v_columns);
    let ds = derivative(&mut w, &p, &dp);
    let all = outputs(&mut w, &inputs, &p, &ds);
    check(&w.finish(&all.each_ref()), &[]);
}

#[test]
fn derivatives_of_something_else() {
    // Without the sum: a sigmoid's, nearly.
    backward(|w, p, dp| w.like("Mul", &[p, dp]));
    // The sum over another axis.
    let other_axis = |w: &mut Writer, p: &Value, dp: &Value| {
        let weighted = w.like("Mul", &[dp, p]);
        let sums = w.row_sums(&weighted, -2);
        let share = w.like("Mul", &[p, &sums]);
        w.like("Sub", &[&weighted, &share])
    };
    backward(other_axis);
    // The sum of something else.
    let other_sum = |w: &mut Writer, p: &Value, dp: &Value| {
        let weighted = w.like("Mul", &[dp, p]);
        let sums = w.row_sums(dp, -1);
        let share = w.like("Mul", &[p, &sums]);
        w.like("Sub", &[&weighted, &share])
    };
    backward(other_sum);
    // A second use of the probabilities in the loss.
    let entropy = |w: &mut Writer, p: &Value, dp: &Value| {
        let dp = w.like("Add", &[dp, p]);
        shares(w, p, &dp)
    };
    backward(entropy);
}

/// The derivative of one softmax, with the products of another.
#[test]
fn two_softmaxes() {
    let mut w = Writer::new();
    let inputs = w.inputs();
    let [q, k, v, dy] = &inputs;
    let k_columns = w.turned(k);
    let scores = w.matmul(q, &k_columns);
    let scaled = w.times(&scores, 0.3);
    let (p, other) = (w.softmax(&scaled), w.softmax(&scores));
    let v_columns = w.turned(v);
    let dp = w.matmul(dy, &v_columns);
    let ds = shares(&mut w, &p, &dp);
    let all = outputs(&mut w, &inputs, &other, &ds);
    check(&w.finish(&all.each_ref()), &[]);
}

/// The scores' derivative is wanted too.
#[test]
fn the_derivative_of_a_bias() {
    let mut w = Writer::new();
    let inputs = w.inputs();
    let [q, k, v, dy] = &inputs;
    let k_columns = w.turned(k);
    let scores = w.matmul(q, &k_columns);
    let p = w.softmax(&scores);
    let v_columns = w.turned(v);
    let dp = w.matmul(dy, &v_columns);
    let ds = shares(&mut w, &p, &dp);
    let [y, dq, dk, dv] = outputs(&mut w, &inputs, &p, &ds);
    let sums = w.row_sums(&ds, -2);
    check(&w.finish(&[&y, &dq, &dk, &dv, &sums]), &[]);
}
