//! The rule of the diagonal linear recurrence h = a h + u, whatever a and u are made of.
//!
//! In the body of a `Scan` the next state becomes one `LinearStep` of a, u and the state. The scan's plan sees that nothing
//! else depends on the state, so that a and u are there for a whole chunk of steps, and takes the chunk in one kernel.

use std::collections::HashSet;

use mlx_safe::DeviceType;
use onnx_graph::pattern::{Maker, Place, Scopes};
use onnx_graph::{Attribute, ElementType, Graph, Node, NodeId, Tensor, TensorType, ValueId};

use crate::rewrite::affine::{Affine, Power};
use crate::rewrite::body::{dependent, unchanged};
use crate::rewrite::draw::Axis;
use crate::rewrite::sketch::{Replacement, Sketch, Wire, ranked};
use crate::rewrite::view::outermost;

/// The operator over all steps.
pub(crate) const OPERATOR: &str = "LinearScan";

/// The operator of one step in a body.
pub(crate) const STEP: &str = "LinearStep";

/// Rewrites the body of node `id`, if it is a `Scan` and every state that changes is a diagonal linear recurrence. Says
/// whether it did.
pub(crate) fn scan(graph: &mut Graph<'_>, id: NodeId, device: DeviceType) -> bool {
    let node = graph.node(id);
    let Some(body) = node.attributes.get("body") else { return false };
    let Attribute::Graph(body) = body else { return false };
    let mut rewritten = body.as_ref().clone();
    let Some(replacement) = state_count(node).and_then(|count| steps(&rewritten, count)) else {
        return false;
    };
    if replacement.apply(&mut rewritten, device).is_none() {
        return false;
    }
    graph.attributes_mut(id).insert("body".to_owned(), Attribute::Graph(rewritten.into()));
    true
}

fn state_count(node: &Node<'_>) -> Option<usize> {
    let maker = Maker { depth: 0, id: NodeId(0), node, output: 0 };
    let lengths = usize::from(node.version < 9);
    let scanned = usize::try_from(maker.int_or("num_scan_inputs", 0)?).ok()?;
    maker.is("Scan").then(|| node.inputs().len().checked_sub(scanned + lengths))?
}

/// Draws the steps of a body's first `count` inputs, the states.
fn steps<'a>(body: &Graph<'a>, count: usize) -> Option<Replacement<'a>> {
    let scopes = Scopes::new(body);
    let states = body.inputs().get(..count)?.iter().zip(body.outputs());
    let moving: Vec<(ValueId, ValueId)> = states
        .map(|(&input, &next)| (input, next))
        .filter(|&(input, next)| unchanged(&scopes, outermost(next)) != outermost(input))
        .collect();
    let dependent = dependent(body, &moving.iter().map(|(input, _)| *input).collect::<Vec<_>>())?;
    let mut sketch = Sketch::new(body);
    let mut outputs = Vec::new();
    for (input, next) in moving {
        outputs.push((next, step(&mut sketch, &scopes, &dependent, input, next)?));
    }
    if outputs.is_empty() {
        return None;
    }
    sketch.replace(OPERATOR, outputs)
}

fn step<'a>(
    sketch: &mut Sketch<'_, 'a>,
    scopes: &Scopes<'_, 'a>,
    dependent: &HashSet<ValueId>,
    input: ValueId,
    next: ValueId,
) -> Option<Wire> {
    let element = scopes.element(outermost(next)).filter(|e| e.is_float())?;
    let depends = |place: Place| dependent.contains(&place.value);
    let affine = Affine::of(scopes, outermost(input), outermost(next), &depends)?;
    let ty = TensorType { element, shape: scopes.shape(outermost(next)) };
    let over = |sketch: &mut Sketch<'_, 'a>, factors: &[Power]| {
        let mut product = None;
        for &(place, power) in factors {
            let wire = sketch.cast(Wire::Old(place.value), element)?;
            product = Some(times(sketch, product, wire, power, ty.clone()));
        }
        product
    };
    let mut a = match affine.decay.is_empty() {
        true => {
            let one = sketch.constant(Tensor::scalar(1.0));
            sketch.cast(one, element)?
        }
        false => over(sketch, &affine.decay)?,
    };
    if affine.sign < 0.0 {
        a = sketch.op("Neg", &[a], &[], ty.clone());
    }
    let mut u = None;
    for term in &affine.terms {
        let wire = over(sketch, &term.factors)?;
        u = Some(add(sketch, u, wire, term.sign, ty.clone()));
    }
    let inputs = vec![Some(a), Some(u?), Some(Wire::Old(input))];
    Some(Wire::Node(sketch.own(STEP, inputs, &[], vec![ty]), 0))
}

/// The axes of a state over all steps.
pub(crate) fn axes(rank: usize) -> Vec<Axis> {
    std::iter::once(Axis::Time).chain((0..rank).map(Axis::State)).collect()
}

/// Draws the kernel over all steps: all states and the last.
pub(crate) fn draw(
    sketch: &mut Sketch<'_, '_>,
    a: Wire,
    u: Wire,
    h0: Wire,
    (element, rank): (ElementType, usize),
) -> (Wire, Wire) {
    let outputs = vec![ranked(element, rank + 1), ranked(element, rank)];
    let scan = sketch.own(OPERATOR, vec![Some(a), Some(u), Some(h0)], &[], outputs);
    (Wire::Node(scan, 0), Wire::Node(scan, 1))
}

/// A running product with one more factor.
pub(crate) fn times(
    sketch: &mut Sketch<'_, '_>,
    product: Option<Wire>,
    wire: Wire,
    power: i32,
    ty: TensorType,
) -> Wire {
    match (product, power) {
        (None, 1) => wire,
        (None, _) => sketch.op("Reciprocal", &[wire], &[], ty),
        (Some(product), 1) => sketch.op("Mul", &[product, wire], &[], ty),
        (Some(product), _) => sketch.op("Div", &[product, wire], &[], ty),
    }
}

/// A running sum with one more term.
pub(crate) fn add(
    sketch: &mut Sketch<'_, '_>,
    sum: Option<Wire>,
    wire: Wire,
    sign: f64,
    ty: TensorType,
) -> Wire {
    match (sum, sign < 0.0) {
        (None, false) => wire,
        (None, true) => sketch.op("Neg", &[wire], &[], ty),
        (Some(sum), false) => sketch.op("Add", &[sum, wire], &[], ty),
        (Some(sum), true) => sketch.op("Sub", &[sum, wire], &[], ty),
    }
}
