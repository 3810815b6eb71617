//! Masks that hide later keys, and masks that nearly do.

use mlx_safe::DeviceType;
use onnx_graph::{Attribute, Graph, Tensor};

use super::{FORWARD, Value, Writer, check};
use crate::rewrite::{self, Rules};
use crate::testing::{E, tensor};

const SCORES: &[&str] = &["B", "H", "L", "S"];

/// Attention whose scores `masked` changes.
pub(super) fn attention(masked: impl Fn(&mut Writer, &Value) -> Value) -> Graph<'static> {
    let mut w = Writer::new();
    let [q, k, v, _] = w.inputs();
    let k_columns = w.turned(&k);
    let scores = w.matmul(&q, &k_columns);
    let scores = masked(&mut w, &scores);
    let p = w.softmax(&scores);
    let y = w.matmul(&p, &v);
    w.finish(&[&y])
}

/// Whether the operator knows that a mask is causal, and whether it needs another.
fn told(graph: &Graph<'static>) -> (bool, bool) {
    let mut graph = graph.clone();
    rewrite::apply(&mut graph, Rules { selective_scan: false, spelled: true }, DeviceType::Cpu).unwrap();
    let (_, node) = graph.nodes().find(|(_, node)| node.op_type == FORWARD).unwrap();
    let told = matches!(node.attributes.get("is_causal"), Some(Attribute::Int(1)));
    (told, node.inputs().get(3).copied().flatten().is_some())
}

/// Whether the operator knows that a mask is causal.
pub(super) fn is_told(graph: &Graph<'static>) -> bool {
    told(graph).0
}

/// Whether the operator knows that the mask is causal, and needs no other.
fn is_causal(graph: &Graph<'static>) -> bool {
    let (told, masked) = told(graph);
    assert_ne!(told, masked);
    told
}

fn checks(causal: bool, masked: impl Fn(&mut Writer, &Value) -> Value) {
    let graph = attention(masked);
    assert_eq!(is_causal(&graph), causal);
    check(&graph, &[FORWARD]);
}

/// L by S of ones, as bools.
pub(super) fn ones(w: &mut Writer) -> Value {
    let one = w.constant(tensor(E::Bool, [], &[1.0]));
    let sizes = size_of(w);
    w.node("Expand", &[&one, &sizes], &[], &["L", "S"], E::Bool)
}

fn size_of(w: &mut Writer) -> Value {
    let [q, v] = ["q", "v"].map(|name| w.b.outer(name));
    let parts = [w.size("L", q, v), w.size("S", q, v)].map(Some);
    let id = w.b.node("Concat", &parts).attr("axis", 0i64).output();
    w.b.declare(id, E::Int64, &[2.into()]);
    Value { id, dims: vec!["2"], element: E::Int64 }
}

/// Positions of queries as a column, or of keys as a row.
fn positions(w: &mut Writer, name: &'static str) -> Value {
    let [q, v] = ["q", "v"].map(|name| w.b.outer(name));
    let size = Value { id: w.size(name, q, v), dims: vec!["1"], element: E::Int64 };
    let axis = w.constant(Tensor::from_ints(&[0]));
    let count = w.node("Squeeze", &[&size, &axis], &[], &[], E::Int64);
    let [zero, one] = [0.0, 1.0].map(|n| w.constant(tensor(E::Int64, [], &[n])));
    let range = w.node("Range", &[&zero, &count, &one], &[], &[name], E::Int64);
    let (axes, names) = if name == "L" { (-1, ["L", "1"]) } else { (0, ["1", "S"]) };
    let axes = w.constant(Tensor::from_ints(&[axes]));
    w.node("Unsqueeze", &[&range, &axes], &[], &names, E::Int64)
}

pub(super) fn trilu(w: &mut Writer, of: &Value, upper: i64, diagonal: i64) -> Value {
    let k = w.constant(tensor(E::Int64, [], &[diagonal as f64]));
    w.node("Trilu", &[of, &k], &[("upper", Attribute::Int(upper))], &["L", "S"], of.element)
}

#[test]
fn trilu_of_ones() {
    for (upper, diagonal, stays, causal) in [(0, 0, true, true), (1, 1, false, true), (0, 1, true, false)] {
        checks(causal, |w, scores| {
            let ones = ones(w);
            let (triangle, low) = (trilu(w, &ones, upper, diagonal), w.number(f32::NEG_INFINITY));
            let (yes, no) = if stays { (scores, &low) } else { (&low, scores) };
            w.op("Where", &[&triangle, yes, no], SCORES)
        });
    }
}

#[test]
fn a_mask_added_where_trilu_is_false() {
    checks(true, |w, scores| {
        let ones = ones(w);
        let triangle = trilu(w, &ones, 0, 0);
        let no = w.constant(tensor(E::Bool, [], &[0.0]));
        let hidden = w.node("Equal", &[&triangle, &no], &[], &["L", "S"], E::Bool);
        let (low, zero) = (w.number(f32::NEG_INFINITY), w.number(0.0));
        let mask = w.op("Where", &[&hidden, &low, &zero], &["L", "S"]);
        w.like("Add", &[scores, &mask])
    });
}

#[test]
fn positions_that_are_compared() {
    for (op, right, stays, causal) in [
        ("LessOrEqual", 0.0, true, true),
        ("Greater", 0.0, false, true),
        ("GreaterOrEqual", 1.0, false, true),
        ("Less", 1.0, true, true),
        // The next key too, or all but the last.
        ("LessOrEqual", 1.0, true, false),
    ] {
        checks(causal, |w, scores| {
            let (rows, columns) = (positions(w, "L"), positions(w, "S"));
            let difference = w.node("Sub", &[&columns, &rows], &[], &["L", "S"], E::Int64);
            let right = w.constant(tensor(E::Int64, [], &[right]));
            let compared = w.node(op, &[&difference, &right], &[], &["L", "S"], E::Bool);
            let ones = ones(w);
            let seen = w.node("And", &[&compared, &ones], &[], &["L", "S"], E::Bool);
            let low = w.number(-1e9);
            let (yes, no) = if stays { (scores, &low) } else { (&low, scores) };
            w.op("Where", &[&seen, yes, no], SCORES)
        });
    }
}

/// A second mask stays one.
#[test]
fn a_mask_beside_another() {
    let graph = attention(|w, scores| {
        let ones = ones(w);
        let (triangle, low) = (trilu(w, &ones, 0, 0), w.number(f32::NEG_INFINITY));
        let bias = w.input("bias", E::Float, &["H", "L", "S"]);
        let sum = w.like("Add", &[scores, &bias]);
        w.op("Where", &[&triangle, &sum, &low], SCORES)
    });
    check(&graph, &[FORWARD]);
}

/// Constants have sizes of their own.
#[test]
fn constants() {
    for (diagonal, causal) in [(0, true), (1, false)] {
        let mut w = Writer::new();
        let q = w.input("q", E::Float, &["2", "3", "5", "4"]);
        let k = w.input("k", E::Float, &["2", "3", "7", "4"]);
        let v = w.input("v", E::Float, &["2", "3", "7", "6"]);
        let numbers: Vec<f64> =
            (0..35).map(|at| if at % 7 <= at / 7 + diagonal { 0.0 } else { f64::NEG_INFINITY }).collect();
        let mask = tensor(E::Float, [5, 7], &numbers);
        let id = w.b.initializer("mask", mask);
        let mask = Value { id, dims: vec!["5", "7"], element: E::Float };
        let k_columns = w.turned(&k);
        let scores = w.matmul(&q, &k_columns);
        let scores = w.like("Add", &[&scores, &mask]);
        let p = w.softmax(&scores);
        let y = w.matmul(&p, &v);
        let graph = w.finish(&[&y]);
        assert_eq!(is_causal(&graph), causal);
        let mut inputs = super::data(super::SIZES[0]);
        inputs.truncate(3);
        crate::testing::graphs::agrees(&graph, super::OPSET, &inputs);
    }
}
