//! What rules in a body know of the graph around it: the constants that the body reads by name. They are lent while rules
//! look, so that a weight stays where it is and is there once.

use onnx_graph::pattern::{Place, Scopes};
use onnx_graph::{Graph, ValueId};

/// Makes what `body` reads from `graph` constants of its own where they are constants there. Says which.
pub(crate) fn lend<'a>(graph: &Graph<'a>, body: &mut Graph<'a>) -> Vec<ValueId> {
    let scopes = Scopes::new(graph).inside(body);
    let outer = body.outer_values().map(|value| (value, scopes.resolve(Place { depth: 1, value })));
    let known: Vec<_> =
        outer.filter_map(|(value, place)| Some((value, scopes.constant(place)?.clone()))).collect();
    let lent = known.iter().map(|(value, _)| *value).collect();
    known.into_iter().for_each(|(value, tensor)| body.set_constant(value, tensor));
    lent
}

/// Ends the loan.
pub(crate) fn take_back(body: &mut Graph<'_>, lent: &[ValueId]) {
    lent.iter().for_each(|&value| body.clear_constant(value));
}
