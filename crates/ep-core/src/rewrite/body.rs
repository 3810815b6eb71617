//! A recurrence whose steps are a body: what `Scan` and `Loop` have in common.

use std::collections::HashSet;

use onnx_graph::pattern::{Place, Scopes};
use onnx_graph::{Graph, ValueId, topological_order};

use crate::rewrite::contraction::Exit;
use crate::rewrite::stack::inside;
use crate::rewrite::view::{Source, Steps};

/// A state that changes from step to step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// The body's input that holds it.
    pub(crate) input: ValueId,
    /// The body's output that is the next.
    pub(crate) next: ValueId,
    /// The first, outside.
    pub(crate) first: ValueId,
    /// The last, outside, if it is asked for.
    pub(crate) last: Option<ValueId>,
}

/// The recurrence.
pub(crate) struct Recurrence<'g, 'a> {
    pub(crate) graph: &'g Graph<'a>,
    pub(crate) steps: Steps<'g, 'a>,
    pub(crate) states: Vec<State>,
    /// What is collected over the steps.
    pub(crate) exits: Vec<Exit>,
    /// States that never change: the outer value that asks for the last of one, and the first.
    pub(crate) held: Vec<(ValueId, ValueId)>,
}

impl<'g, 'a> Recurrence<'g, 'a> {
    /// Sorts the `states` of a body into those that change and those that are handed on as they are.
    pub(crate) fn new(
        graph: &'g Graph<'a>,
        mut steps: Steps<'g, 'a>,
        states: Vec<State>,
        exits: Vec<Exit>,
    ) -> Self {
        let (mut changing, mut held) = (Vec::new(), Vec::new());
        for state in states {
            if unchanged(&steps.scopes, inside(state.next)) == inside(state.input) {
                steps.sources.insert(state.input, Source::Held(state.first));
                held.extend(state.last.map(|last| (last, state.first)));
            } else {
                changing.push(state);
            }
        }
        Self { graph, steps, states: changing, exits, held }
    }
}

/// The values of a body that depend on one of the states named by their inputs.
pub(crate) fn dependent(body: &Graph<'_>, states: &[ValueId]) -> Option<HashSet<ValueId>> {
    let mut dependent: HashSet<ValueId> = states.iter().copied().collect();
    for id in topological_order(body).ok()? {
        let node = body.node(id);
        if node.all_inputs().any(|v| dependent.contains(&v)) {
            dependent.extend(node.outputs().iter().flatten());
        }
    }
    Some(dependent)
}

/// The value behind `Identity`.
pub(crate) fn unchanged(scopes: &Scopes<'_, '_>, place: Place) -> Place {
    let input = scopes.made_by(place, "Identity").and_then(|maker| maker.input(0));
    input.map_or(place, |input| unchanged(scopes, input))
}
