//! From a body's recurrence to a kernel.

use onnx_graph::pattern::Place;
use onnx_graph::{ElementType, Graph, NodeId, ValueId};

use crate::rewrite::affine::Affine;
use crate::rewrite::body::{Recurrence, State, dependent};
use crate::rewrite::contraction::{Contraction, Search};
use crate::rewrite::draw::{Axis, arrange};
use crate::rewrite::loops::{self, Around};
use crate::rewrite::scan;
use crate::rewrite::selective::{self, Products};
use crate::rewrite::sketch::{Replacement, Sketch, Wire};
use crate::rewrite::stack::{Stack, inside};
use crate::rewrite::view::{Label, Walk, outermost};

/// The selective scan in a `Scan`.
pub(crate) fn selective_scan<'a>(graph: &Graph<'a>, id: NodeId) -> Option<Replacement<'a>> {
    fuse_selective(&scan::read(graph, id)?)
}

/// The selective scan in a `Loop`.
pub(crate) fn looped<'a>(graph: &Graph<'a>, id: NodeId) -> Option<Replacement<'a>> {
    fuse_selective(&loops::read(graph, id, Around::Known)?)
}

/// Whether the `Loop` that stands alone in `graph` may be a selective scan, depending on what is around it.
pub(crate) fn may_be_selective(graph: &Graph<'_>) -> bool {
    let mut nodes = graph.nodes();
    let read = nodes.next().and_then(|(id, _)| loops::read(graph, id, Around::Unknown));
    read.is_some_and(|recurrence| fuse_selective(&recurrence).is_some())
}

fn fuse_selective<'a>(recurrence: &Recurrence<'_, 'a>) -> Option<Replacement<'a>> {
    let Recurrence { steps, states, .. } = recurrence;
    let [state] = states[..] else { return None };
    let (input, next) = (inside(state.input), inside(state.next));
    let element = steps.scopes.element(next).filter(|e| e.is_float())?;
    let rank = steps.rank(input).or_else(|| steps.rank(outermost(state.first)))?;
    let dependent = dependent(steps.scopes.graph(1), &[state.input])?;
    let depends = |place: Place| place.depth == 1 && dependent.contains(&place.value);
    let affine = Affine::of(&steps.scopes, input, next, &depends)?;
    let (decay, u) = selective::products(steps, &affine, rank)?;
    let search = Search { steps, exits: &recurrence.exits, depends: &depends };
    let found = search.from(next, (0..rank).map(Label::State).collect());
    // Sums that nobody reads do not count: the one that is enough for all that leaves the body does.
    found.iter().find_map(|contraction| {
        let products = Products { decay: decay.clone(), input: u.clone(), c: contraction.c.clone() };
        with_sums(recurrence, state, &products, contraction, (element, rank))
    })
}

/// The kernel in place of the recurrence, if nothing but `contraction` and the last state is needed of its states.
fn with_sums<'a>(
    recurrence: &Recurrence<'_, 'a>,
    state: State,
    products: &Products,
    contraction: &Contraction,
    shape: (ElementType, usize),
) -> Option<Replacement<'a>> {
    let Recurrence { graph, steps, .. } = recurrence;
    let mut sketch = Sketch::new(graph);
    let mut stack = Stack::new(steps);
    let first = outermost(state.first);
    let drawn = selective::draw(steps, &mut sketch, &mut stack, products, contraction, first, shape)?;
    let mut outputs = recurrence.held();
    outputs.extend(state.last.filter(|last| is_read(graph, *last)).map(|last| (last, drawn.last)));
    if contraction.y.depth == 0 {
        let wire = placed(&mut sketch, drawn.y, &drawn.y_axes, contraction, drawn.reverse)?;
        outputs.push((contraction.y.value, wire));
        // What else leaves the body must not need the states.
        let held = held_back(recurrence, contraction)?;
        outputs.extend(exits(recurrence, &mut sketch, &mut stack, Some(held))?);
    } else {
        let steps_first: Vec<Axis> =
            std::iter::once(Axis::Time).chain(contraction.labels.iter().map(axis_of)).collect();
        let y = arrange(&mut sketch, drawn.y, &drawn.y_axes, &steps_first)?;
        let y = sketch.slice(y, 0, None, drawn.reverse)?;
        stack.know(contraction.y, y);
        outputs.extend(exits(recurrence, &mut sketch, &mut stack, None)?);
    }
    sketch.replace(selective::OPERATOR, outputs)
}

/// The sums where they stand outside of the body.
fn placed(
    sketch: &mut Sketch<'_, '_>,
    y: Wire,
    axes: &[Axis],
    contraction: &Contraction,
    reverse: bool,
) -> Option<Wire> {
    let to: Vec<Axis> = contraction.labels.iter().map(axis_of).collect();
    let wire = arrange(sketch, y, axes, &to)?;
    let time = contraction.labels.iter().position(|l| matches!(l, Label::Time(_)))?;
    let Label::Time(Walk { reverse: wanted, .. }) = contraction.labels[time] else { return None };
    sketch.slice(wire, time, None, wanted != reverse)
}

pub(crate) fn axis_of(label: &Label) -> Axis {
    match label {
        Label::State(i) => Axis::State(*i),
        Label::Time(_) => Axis::Time,
        Label::At(_) | Label::One | Label::Extra => Axis::One,
    }
}

/// The output through which states reach a contraction outside: nobody needs it any more.
fn held_back(recurrence: &Recurrence<'_, '_>, contraction: &Contraction) -> Option<ValueId> {
    let graph = recurrence.graph;
    let mut behind = vec![contraction.y.value];
    let mut seen = std::collections::HashSet::new();
    while let Some(value) = behind.pop() {
        if recurrence.exits.iter().any(|exit| exit.outer == value) {
            return Some(value);
        }
        if let Some((node, _)) = graph.value(value).producer().filter(|(node, _)| seen.insert(*node)) {
            behind.extend(graph.node(node).all_inputs());
        }
    }
    None
}

/// What is collected over the steps, except `but` and what nobody reads.
fn exits<'g, 'a>(
    recurrence: &Recurrence<'g, 'a>,
    sketch: &mut Sketch<'g, 'a>,
    stack: &mut Stack<'_, 'g, 'a>,
    but: Option<ValueId>,
) -> Option<Vec<(ValueId, Wire)>> {
    let mut outputs = Vec::new();
    for exit in &recurrence.exits {
        if Some(exit.outer) == but || !is_read(recurrence.graph, exit.outer) {
            continue;
        }
        let stacked = stack.value(sketch, inside(exit.inner)).filter(|s| s.over_time)?;
        let wire = sketch.slice(stacked.wire, 0, None, exit.reverse)?;
        let rank = sketch.rank(wire)?;
        let mut perm: Vec<usize> = (1..rank).collect();
        perm.insert(exit.axis.min(rank - 1), 0);
        outputs.push((exit.outer, sketch.view("Transpose", wire, &perm)?));
    }
    Some(outputs)
}

/// Whether a value is read or returned.
pub(crate) fn is_read(graph: &Graph<'_>, value: ValueId) -> bool {
    !graph.value(value).uses().is_empty() || graph.outputs().contains(&value)
}

impl Recurrence<'_, '_> {
    /// The last of each state that never changes.
    fn held(&self) -> Vec<(ValueId, Wire)> {
        let read = self.held.iter().filter(|(last, _)| is_read(self.graph, *last));
        read.map(|&(last, first)| (last, Wire::Old(first))).collect()
    }
}
