//! Recurrences in a `Loop` that picks its entries by the counter.

use super::{OPSET, SIZES, Values, Writer, data, inputs};
use crate::testing::graphs::{agrees, kernels};
use crate::testing::{E, i64s};
use onnx_graph::{Graph, Tensor, ValueId};

/// A model with one `Loop` over dt, x, b and c, whose trip count is an input. `pick` takes the entry of a step, `goes_on` says
/// whether there is another one after the state given.
fn looped(
    pick: impl Fn(&mut Writer, ValueId, ValueId) -> ValueId,
    goes_on: impl Fn(&mut Writer, ValueId, ValueId) -> ValueId,
) -> Graph<'static> {
    let mut body = Writer::new("body");
    let t = body.b.input("t", E::Int64, &[]);
    let condition = body.b.input("condition", E::Bool, &[]);
    let h = body.b.input("h_in", E::Float, &["B".into(), "D".into(), "N".into()]);
    let mut picked = |name: &str| {
        let whole = body.b.outer(name);
        pick(&mut body, whole, t)
    };
    let (dt, x, b, c) = (picked("dt"), picked("x"), picked("b"), picked("c"));
    let a = body.b.outer("a");
    let (next, y) = body.plain_step(&Values { h, dt, x, b, c, a });
    let goes_on = goes_on(&mut body, condition, next);
    for output in [goes_on, next, y] {
        body.b.output(output);
    }
    for value in [t, condition, goes_on] {
        let (element, dims) = (if value == t { E::Int64 } else { E::Bool }, []);
        body.b.declare(value, element, &dims);
    }
    let body = body.finish();
    let mut w = Writer::new("g");
    let v = inputs(&mut w);
    let steps = w.b.input("steps", E::Int64, &[]);
    let always = w.b.initializer("always", Tensor::new(E::Bool, [], vec![1u8]).unwrap());
    let node = w.b.node("Loop", &[Some(steps), Some(always), Some(v.h)]).attr("body", body);
    for output in node.outputs_as(&["last", "y"]).into_iter().flatten() {
        w.b.output(output);
    }
    w.finish()
}

fn gather(w: &mut Writer, whole: ValueId, t: ValueId) -> ValueId {
    w.b.node("Gather", &[Some(whole), Some(t)]).attr("axis", 0i64).output()
}

fn always(w: &mut Writer, condition: ValueId, _: ValueId) -> ValueId {
    w.op("Identity", &[condition])
}

fn check(graph: &Graph<'static>, wanted: &[&str]) {
    assert_eq!(kernels(graph), wanted);
    for sizes in SIZES {
        // All steps, and fewer than there are entries.
        for steps in [sizes[0], sizes[0] - 2] {
            let steps = tensor(steps);
            agrees(graph, OPSET, &[data(sizes), vec![("steps", steps)]].concat());
        }
    }
}

fn tensor(steps: usize) -> Tensor<'static> {
    let bytes = i64s(&[steps as i64]).data().to_vec();
    Tensor::new(E::Int64, [], bytes).unwrap()
}

#[test]
fn a_counted_loop() {
    check(&looped(gather, always), &["SelectiveScan"]);
    // TorchScript writes x[:, t] so.
    let sliced = |w: &mut Writer, whole: ValueId, t: ValueId| {
        let bounds = [0, i64::MAX, 1, 1].map(|v| w.ints(&[v]));
        let whole = w.op("Slice", &[whole, bounds[0], bounds[1], bounds[2], bounds[3]]);
        gather(w, whole, t)
    };
    check(&looped(sliced, always), &["SelectiveScan"]);
}

#[test]
fn loops_that_may_end_early_or_pick_something_else() {
    let small = |w: &mut Writer, _: ValueId, next: ValueId| {
        let most = w.number(1.0);
        let axes = w.ints(&[0, 1, 2]);
        let sum = w.b.node("ReduceSum", &[Some(next), Some(axes)]).attr("keepdims", 0i64).output();
        w.op("Less", &[sum, most])
    };
    check(&looped(gather, small), &[]);
    let first = |w: &mut Writer, whole: ValueId, t: ValueId| {
        let none = w.b.node("Sub", &[Some(t), Some(t)]).output();
        w.b.declare(none, E::Int64, &[]);
        gather(w, whole, none)
    };
    check(&looped(first, always), &[]);
}
