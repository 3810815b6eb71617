//! `Loop` as a recurrence: a trip count, a condition that is always true, and steps that pick their entries by the counter.
//!
//! What is collected comes out as scan outputs, or in a sequence that starts empty, gets one tensor a step and is then put
//! together along a new axis.

use onnx_graph::pattern::{Maker, Place, Scopes, from_front};
use onnx_graph::{Attribute, Graph, NodeId, ValueId};

use crate::rewrite::body::{Recurrence, State, unchanged};
use crate::rewrite::contraction::Exit;
use crate::rewrite::stack::inside;
use crate::rewrite::view::{Steps, outermost};

/// How much is known of what is around the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Around {
    /// Everything.
    Known,
    /// Nothing: the graph is the loop alone, and is taken to be what it has to be.
    Unknown,
}

/// Reads node `id`, if it is such a `Loop`.
pub(crate) fn read<'g, 'a>(graph: &'g Graph<'a>, id: NodeId, around: Around) -> Option<Recurrence<'g, 'a>> {
    let node = graph.node(id);
    let maker = Maker { depth: 0, id, node, output: 0 };
    let (true, Attribute::Graph(body)) = (maker.is("Loop"), node.attributes.get("body")?) else {
        return None;
    };
    let states = node.inputs().len().checked_sub(2)?;
    let (inputs, outputs) = (body.inputs(), body.outputs());
    if inputs.len() != states + 2 || outputs.len() != node.outputs().len() + 1 || outputs.len() < states + 1 {
        return None;
    }
    let scopes = Scopes::new(graph).inside(body);
    let always = |place: Place| scopes.ints(place) == Some(vec![1]);
    if around == Around::Known && !maker.input(1).is_none_or(always) {
        return None;
    }
    let goes_on = unchanged(&scopes, inside(outputs[0]));
    if goes_on != inside(inputs[1]) && !always(goes_on) {
        return None;
    }
    let steps =
        Steps { counter: Some(inputs[0]), length: Some(maker.input(0)?.value), ..Steps::unrolled(scopes) };
    let (mut tensors, mut exits) = (Vec::new(), Vec::new());
    for i in 0..states {
        let first = maker.input(i + 2)?.value;
        let (input, next, last) = (inputs[i + 2], outputs[i + 1], node.outputs()[i]);
        if graph.value(first).tensor_type().is_some() {
            tensors.push(State { input, next, first, last });
        } else {
            exits.extend(collected(graph, &steps, first, (input, next), last, around)?);
        }
    }
    let scanned = node.outputs()[states..].iter().zip(&outputs[states + 1..]);
    exits.extend(
        scanned.filter_map(|(outer, &inner)| Some(Exit { inner, outer: (*outer)?, axis: 0, reverse: false })),
    );
    Some(Recurrence::new(graph, steps, tensors, exits))
}

/// What a sequence collects, if that is all that is done with it; no exit if nobody wants it.
fn collected(
    graph: &Graph<'_>,
    steps: &Steps<'_, '_>,
    first: ValueId,
    (input, next): (ValueId, ValueId),
    last: Option<ValueId>,
    around: Around,
) -> Option<Option<Exit>> {
    let scopes = &steps.scopes;
    let insert = scopes.made_by(inside(next), "SequenceInsert")?;
    let [sequence, value] = [insert.input(0)?, insert.input(1)?];
    let uses = scopes.graph(1).value(input).uses().len();
    if sequence != inside(input) || insert.input(2).is_some() || uses != 1 {
        return None;
    }
    let (Some(last), Around::Known) = (last, around) else { return Some(None) };
    scopes.made_by(outermost(first), "SequenceEmpty")?;
    let [used] = graph.value(last).uses() else { return None };
    let joined = Maker { depth: 0, id: used.node, node: graph.node(used.node), output: 0 };
    let together = joined.is("ConcatFromSequence") && joined.int_or("new_axis", 0)? == 1;
    if !together || graph.outputs().contains(&last) {
        return None;
    }
    let axis = from_front(joined.int_or("axis", 0)?, steps.rank(value)? + 1)?;
    let outer = joined.node.outputs().first().copied().flatten()?;
    Some(Some(Exit { inner: value.value, outer, axis, reverse: false }))
}
