//! Recurrences written out step after step.

use super::{OPSET, Values, Writer, data, inputs};
use crate::testing::graphs::{agrees, kernels};
use onnx_graph::{Graph, ValueId};

const STEPS: usize = 5;

/// A chain of `STEPS` steps; `at` says which entry step t takes of dt, x, b and c. Returns y, put together by `end`, and the
/// last state.
fn chain(
    steps: usize,
    at: impl Fn(usize) -> [i64; 4],
    step: impl Fn(&mut Writer, &Values, usize) -> (ValueId, ValueId),
    end: impl Fn(&mut Writer, &[ValueId]) -> Vec<ValueId>,
) -> Graph<'static> {
    let mut w = Writer::new("g");
    let v = inputs(&mut w);
    let (mut h, mut ys) = (v.h, Vec::new());
    for t in 0..steps {
        let [dt, x, b, c] = at(t);
        let picked = Values {
            h,
            dt: w.pick(v.dt, 0, dt),
            x: w.pick(v.x, 0, x),
            b: w.pick(v.b, 0, b),
            c: w.pick(v.c, 0, c),
            a: v.a,
        };
        let (next, y) = step(&mut w, &picked, t);
        h = next;
        ys.push(y);
    }
    for output in end(&mut w, &ys) {
        w.b.output(output);
    }
    w.b.output(h);
    w.finish()
}

fn stacked(w: &mut Writer, ys: &[ValueId]) -> Vec<ValueId> {
    let ys: Vec<Option<ValueId>> = ys.iter().map(|y| Some(w.unsqueeze(*y, 1))).collect();
    vec![w.b.node("Concat", &ys).attr("axis", 1i64).output()]
}

fn apart(_: &mut Writer, ys: &[ValueId]) -> Vec<ValueId> {
    ys.to_vec()
}

fn in_order(t: usize) -> [i64; 4] {
    [t as i64; 4]
}

fn plain(w: &mut Writer, s: &Values, _: usize) -> (ValueId, ValueId) {
    w.plain_step(s)
}

fn check(graph: &Graph<'static>, wanted: &[&str]) {
    assert_eq!(kernels(graph), wanted);
    // The steps are fixed by the graph: dt, x, b and c may hold more.
    for sizes in [[STEPS, 2, 3, 4], [STEPS + 3, 1, 6, 2]] {
        agrees(graph, OPSET, &data(sizes));
    }
}

#[test]
fn steps_in_order() {
    check(&chain(STEPS, in_order, plain, stacked), &["SelectiveScan"]);
    check(&chain(STEPS, in_order, plain, apart), &["SelectiveScan"]);
}

#[test]
fn steps_backwards() {
    let backwards = |t: usize| [(STEPS - 1 - t) as i64; 4];
    check(&chain(STEPS, backwards, plain, stacked), &["SelectiveScan"]);
    let turned = |w: &mut Writer, ys: &[ValueId]| stacked(w, &ys.iter().rev().copied().collect::<Vec<_>>());
    check(&chain(STEPS, backwards, plain, turned), &["SelectiveScan"]);
}

#[test]
fn sums_by_matmul() {
    let step = |w: &mut Writer, s: &Values, _: usize| {
        let decay = w.decay(s.dt, s.a);
        let u = w.plain_input(s);
        let kept = w.mul(decay, s.h);
        let next = w.add(kept, u);
        let column = w.unsqueeze(s.c, -1);
        let y = w.matmul(next, column);
        (next, w.pick(y, 2, 0))
    };
    check(&chain(STEPS, in_order, step, stacked), &["SelectiveScan"]);
}

#[test]
fn steps_of_which_every_state_is_wanted() {
    let step = |w: &mut Writer, s: &Values, _: usize| {
        let (next, _) = w.plain_step(s);
        (next, w.op("Tanh", &[next]))
    };
    check(&chain(STEPS, in_order, step, stacked), &["LinearScan"]);
}

#[test]
fn too_few_steps() {
    check(&chain(1, in_order, plain, apart), &[]);
    check(&chain(2, in_order, plain, apart), &[]);
}

#[test]
fn entries_out_of_order() {
    let swapped = |t: usize| [[0, 2, 1, 3, 4][t]; 4];
    check(&chain(STEPS, swapped, plain, stacked), &[]);
    // One of them lags behind.
    let lagging = |t: usize| [t as i64, t as i64, t as i64, t as i64 / 2];
    check(&chain(STEPS, lagging, plain, stacked), &["LinearScan"]);
}

#[test]
fn steps_that_differ() {
    let step = |w: &mut Writer, s: &Values, t: usize| {
        let (dt, scale) = (s.dt, w.number(1.0 + t as f32 / 8.0));
        let dt = w.mul(dt, scale);
        w.plain_step(&Values { dt, ..*s })
    };
    check(&chain(STEPS, in_order, step, stacked), &[]);
}

#[test]
fn steps_that_know_the_state() {
    let step = |w: &mut Writer, s: &Values, _: usize| {
        let gate = w.op("Sigmoid", &[s.h]);
        let decay = w.decay(s.dt, s.a);
        let decay = w.mul(gate, decay);
        let u = w.plain_input(s);
        let kept = w.mul(decay, s.h);
        let next = w.add(kept, u);
        let y = w.plain_sum(next, s.c);
        (next, y)
    };
    check(&chain(STEPS, in_order, step, stacked), &[]);
}
