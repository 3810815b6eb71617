//! Spellings of attention alone.

use onnx_graph::{Attribute, Tensor};

use super::{FORWARD, Value, Writer, check};
use crate::testing::E;

/// Scores times 0.4, `masked` in some way, and values times probabilities.
fn checks(masked: impl Fn(&mut Writer, &Value) -> Value) {
    let mut w = Writer::new();
    let [q, k, v, _] = w.inputs();
    let k_columns = w.turned(&k);
    let product = w.matmul(&q, &k_columns);
    let scores = w.times(&product, 0.4);
    let scores = masked(&mut w, &scores);
    let p = w.softmax(&scores);
    let y = w.matmul(&p, &v);
    check(&w.finish(&[&y]), &[FORWARD]);
}

const SCORES: &[&str] = &["B", "H", "L", "S"];

#[test]
fn without_a_mask() {
    checks(|_, scores| scores.clone());
}

/// A mask may give one query as many rows as it has, and one key as many columns.
#[test]
fn masks_that_widen_the_scores() {
    for query in [true, false] {
        let mut w = Writer::new();
        let [q, k, v, _] = w.inputs();
        let ends = [0, 1, 2].map(|n| w.constant(Tensor::from_ints(&[n])));
        let first = |w: &mut Writer, value: &Value| {
            let [start, end, axis] = &ends;
            w.op("Slice", &[value, start, end, axis], &["B", "H", "1", "E"])
        };
        let (q, k) = if query { (first(&mut w, &q), k) } else { (q.clone(), first(&mut w, &k)) };
        let k_columns = w.turned(&k);
        let product = w.matmul(&q, &k_columns);
        let bias = w.input("bias", E::Float, &["H", "L", "S"]);
        let scores = w.op("Add", &[&product, &bias], SCORES);
        let p = w.softmax(&scores);
        let y = w.matmul(&p, &v);
        check(&w.finish(&[&y]), &[FORWARD]);
    }
}

#[test]
fn masks_that_are_added_before_and_after_the_scale() {
    checks(|w, scores| {
        let bias = w.input("bias", E::Float, &["H", "L", "S"]);
        let sum = w.like("Add", &[scores, &bias]);
        let half = w.times(&sum, 0.5);
        w.like("Add", &[&half, &bias])
    });
}

/// Rows that see nothing are even.
#[test]
fn low_numbers_in_place_of_scores() {
    for low in [-3.4e38, -1e9] {
        checks(|w, scores| {
            let (blind, low) = (w.input("blind", E::Bool, &["B", "1", "L", "S"]), w.number(f32::MIN));
            let bias = w.input("bias", E::Float, &["H", "L", "S"]);
            let sum = w.like("Add", &[scores, &bias]);
            w.op("Where", &[&blind, &sum, &low], SCORES)
        });
        checks(|w, scores| {
            let (blind, low) = (w.input("blind", E::Bool, &["B", "1", "L", "S"]), w.number(low));
            w.op("Where", &[&blind, scores, &low], SCORES)
        });
    }
}

#[test]
fn rows_that_are_no_numbers_are_guarded() {
    let mut w = Writer::new();
    let [q, k, v, _] = w.inputs();
    let blind = w.input("blind", E::Bool, &["B", "1", "L", "S"]);
    let (low, zero) = (w.number(f32::NEG_INFINITY), w.number(0.0));
    let k_columns = w.turned(&k);
    let scores = w.matmul(&q, &k_columns);
    let scores = w.op("Where", &[&blind, &scores, &low], SCORES);
    let p = w.softmax(&scores);
    let bad = w.node("IsNaN", &[&p], &[], SCORES, E::Bool);
    let p = w.op("Where", &[&bad, &zero, &p], SCORES);
    let y = w.matmul(&p, &v);
    check(&w.finish(&[&y]), &[FORWARD]);
}

/// What is declared does not say that sizes are the same.
#[test]
fn sizes_that_nothing_is_known_of() {
    let mut w = Writer::new();
    let names = |n: [&'static str; 4]| n;
    let q = w.input("q", E::Float, &names(["b1", "h1", "l", "e"]));
    let k = w.input("k", E::Float, &names(["b2", "h2", "s", "e"]));
    let v = w.input("v", E::Float, &names(["b3", "h3", "s", "d"]));
    let k_columns = w.turned(&k);
    let product = w.matmul(&q, &k_columns);
    let p = w.softmax(&product);
    let y = w.matmul(&p, &v);
    let graph = w.finish(&[&y]);
    check(&graph, &[FORWARD]);
    // Nor are they: one of each is shared by all.
    let one = |name, dims: [usize; 4]| (name, crate::testing::uniform(E::Float, dims, -1.0, 1.0));
    for [q, k, v] in [[2, 1, 1], [1, 3, 1], [1, 1, 3], [1, 4, 4]] {
        let inputs = [one("q", [q, 2, 5, 4]), one("k", [k, 1, 6, 4]), one("v", [v, 2, 6, 3])];
        crate::testing::graphs::agrees(&graph, super::OPSET, &inputs);
    }
}

/// Heads of keys that are repeated are not for the kernel, which shares them; only the repetition goes.
#[test]
fn heads_that_are_shared() {
    let mut w = Writer::new();
    let q = w.input("q", E::Float, &["B", "4", "L", "E"]);
    let k = w.input("k", E::Float, &["B", "2", "S", "E"]);
    let v = w.input("v", E::Float, &["B", "2", "S", "V"]);
    let repeated = |w: &mut Writer, x: &Value| {
        let axes = w.constant(onnx_graph::Tensor::from_ints(&[2]));
        let (rows, columns) = (x.dims[2], x.dims[3]);
        let x = w.op("Unsqueeze", &[x, &axes], &["B", "2", "1", rows, columns]);
        let twice = w.constant(onnx_graph::Tensor::from_ints(&[1, 1, 2, 1, 1]));
        let x = w.op("Expand", &[&x, &twice], &["B", "2", "2", rows, columns]);
        w.reshaped(&x, &["B", "4", rows, columns])
    };
    let (k, v) = (repeated(&mut w, &k), repeated(&mut w, &v));
    let k_columns = w.turned(&k);
    let scores = w.matmul(&q, &k_columns);
    let p = w.softmax(&scores);
    let y = w.matmul(&p, &v);
    let graph = w.finish(&[&y]);
    assert_eq!(crate::testing::graphs::kernels(&graph), [FORWARD]);
    let mut rewritten = graph.clone();
    let rules = crate::rewrite::Rules { selective_scan: false, spelled: true };
    crate::rewrite::apply(&mut rewritten, rules, mlx_safe::DeviceType::Cpu).unwrap();
    assert!(rewritten.nodes().all(|(_, node)| node.op_type != "Expand"), "keys are repeated");
    for [b, l, s] in [[2, 5, 7], [1, 3, 2]] {
        let floats = |name, dims: [usize; 4]| (name, crate::testing::uniform(E::Float, dims, -1.0, 1.0));
        let inputs = [floats("q", [b, 4, l, 3]), floats("k", [b, 2, s, 3]), floats("v", [b, 2, s, 6])];
        crate::testing::graphs::agrees(&graph, super::OPSET, &inputs);
    }
}

/// A mask of sizes that are computed hides how many axes the scores have.
#[test]
fn ranks_that_nobody_declares() {
    let mut w = Writer::new();
    let [q, k, v, _] = w.inputs();
    let bias = w.input("bias", E::Float, &["H", "L", "S"]);
    let shape = w.b.node("Shape", &[Some(bias.id)]).output();
    w.b.declare(shape, E::Int64, &["n".into()]);
    let open = |w: &mut Writer, op: &str, inputs: &[&Value]| {
        let inputs: Vec<_> = inputs.iter().map(|v| Some(v.id)).collect();
        Value { id: w.b.node(op, &inputs).output(), ..scores_like() }
    };
    let shape = Value { id: shape, dims: Vec::new(), element: E::Int64 };
    let mask = open(&mut w, "Expand", &[&bias, &shape]);
    let k_columns = w.turned(&k);
    let product = w.matmul(&q, &k_columns);
    let scores = open(&mut w, "Add", &[&product, &mask]);
    let p = open(&mut w, "Softmax", &[&scores]);
    let y = open(&mut w, "MatMul", &[&p, &v]);
    let y = w.transposed(&y, &[0, 2, 1, 3]);
    let graph = crate::testing::graphs::floats_by_default(w.finish(&[&y]));
    check(&graph, &[FORWARD]);
}

fn scores_like() -> Value {
    Value { id: onnx_graph::ValueId(0), dims: SCORES.to_vec(), element: E::Float }
}

/// Queries and keys that a graph rounds are read rounded, though they are transposed before.
#[test]
fn queries_that_are_rounded() {
    let mut w = Writer::new();
    let [q, k, v, _] = w.inputs();
    let cast = |w: &mut Writer, value: &Value, to: i64, element: E| {
        w.node("Cast", &[value], &[("to", Attribute::Int(to))], &value.dims.clone(), element)
    };
    let rounded = |w: &mut Writer, value: &Value| {
        let half = cast(w, value, 10, E::Float16);
        cast(w, &half, 1, E::Float)
    };
    let (q, k) = (w.times(&q, 16.0), w.times(&k, 16.0));
    let k_columns = w.turned(&k);
    let (q, k_columns) = (rounded(&mut w, &q), rounded(&mut w, &k_columns));
    let scores = w.matmul(&q, &k_columns);
    let p = w.softmax(&scores);
    let y = w.matmul(&p, &v);
    check(&w.finish(&[&y]), &[FORWARD]);
}
