//! `Scan` (opset 9 and newer) as a recurrence.

use onnx_graph::pattern::{Maker, Scopes, from_front};
use onnx_graph::{Graph, NodeId};

use crate::rewrite::body::{Recurrence, State};
use crate::rewrite::contraction::Exit;
use crate::rewrite::view::{Source, Steps, outermost};

/// Reads node `id`, if it is a `Scan` in which every input and output has its place.
pub(crate) fn read<'g, 'a>(graph: &'g Graph<'a>, id: NodeId) -> Option<Recurrence<'g, 'a>> {
    let node = graph.node(id);
    let maker = Maker { depth: 0, id, node, output: 0 };
    if !maker.is("Scan") || node.version < 9 {
        return None;
    }
    let body = match node.attributes.get("body")? {
        onnx_graph::Attribute::Graph(body) => body.as_ref(),
        _ => return None,
    };
    let inputs: Vec<_> = node.inputs().iter().copied().collect::<Option<_>>()?;
    let scanned = usize::try_from(maker.int_or("num_scan_inputs", 0)?).ok()?;
    let states = inputs.len().checked_sub(scanned)?;
    if body.inputs().len() != inputs.len()
        || body.outputs().len() != node.outputs().len()
        || body.outputs().len() < states
    {
        return None;
    }
    let list = |name: &str, i: usize| maker.ints(name).map_or(Some(0), |values| values.get(i).copied());
    let mut steps = Steps::unrolled(Scopes::new(graph).inside(body));
    for (i, (&outer, &inner)) in inputs[states..].iter().zip(&body.inputs()[states..]).enumerate() {
        let rank = steps.rank(outermost(outer))?;
        let axis = from_front(list("scan_input_axes", i)?, rank)?;
        let reverse = list("scan_input_directions", i)? == 1;
        steps.sources.insert(inner, Source::Scanned { outer, axis, reverse });
    }
    let mut exits = Vec::new();
    for (i, (outer, &inner)) in node.outputs()[states..].iter().zip(&body.outputs()[states..]).enumerate() {
        let Some(outer) = *outer else { continue };
        let rank = steps.rank(crate::rewrite::stack::inside(inner))? + 1;
        let axis = from_front(list("scan_output_axes", i)?, rank)?;
        let reverse = list("scan_output_directions", i)? == 1;
        exits.push(Exit { inner, outer, axis, reverse });
    }
    let state = |i: usize| State {
        input: body.inputs()[i],
        next: body.outputs()[i],
        first: inputs[i],
        last: node.outputs()[i],
    };
    let states = (0..states).map(state).collect();
    Some(Recurrence::new(graph, steps, states, exits))
}
