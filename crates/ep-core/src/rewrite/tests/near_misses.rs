//! What looks like a diagonal linear recurrence and is none.

use super::{Values, Writer, check, scan};
use onnx_graph::ValueId;

/// The plain step with its next state changed.
fn changed(change: impl Fn(&mut Writer, &Values, ValueId) -> ValueId) {
    let step = |w: &mut Writer, s: &Values| {
        let (next, _) = w.plain_step(s);
        let next = change(w, s, next);
        let y = w.plain_sum(next, s.c);
        (next, y)
    };
    check(&scan(step), &[]);
}

#[test]
fn states_that_are_bent() {
    changed(|w, _, next| w.op("Tanh", &[next]));
    changed(|w, s, next| w.op("Max", &[next, s.h]));
    changed(|w, _, next| w.op("Relu", &[next]));
}

#[test]
fn states_that_meet_each_other() {
    // Of other entries: sums over the states.
    changed(|w, _, next| {
        let axes = w.ints(&[-1]);
        let mean = w.b.node("ReduceMean", &[Some(next), Some(axes)]).output();
        w.op("Sub", &[next, mean])
    });
    changed(|w, s, next| w.mul(next, s.h));
    changed(|w, s, next| w.add(next, s.h));
}

#[test]
fn decays_and_inputs_that_know_the_state() {
    changed(|w, s, next| {
        let gate = w.op("Sigmoid", &[s.h]);
        w.mul(gate, next)
    });
    let step = |w: &mut Writer, s: &Values| {
        let y = w.plain_sum(s.h, s.c);
        let x = w.add(s.x, y);
        w.plain_step(&Values { x, ..*s })
    };
    check(&scan(step), &[]);
}

#[test]
fn a_quotient_by_the_state() {
    let step = |w: &mut Writer, s: &Values| {
        let ten = w.number(10.0);
        let away = w.add(s.h, ten);
        let decay = w.decay(s.dt, s.a);
        let kept = w.op("Div", &[decay, away]);
        let u = w.plain_input(s);
        let next = w.add(kept, u);
        let y = w.plain_sum(next, s.c);
        (next, y)
    };
    check(&scan(step), &[]);
}
