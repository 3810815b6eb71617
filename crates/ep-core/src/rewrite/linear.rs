//! The rule of the diagonal linear recurrence h = a h + u, whatever a and u are made of: both are computed for all steps,
//! then one kernel gives all states, then what is made of the states is computed for all steps.

use onnx_graph::pattern::Place;
use onnx_graph::{ElementType, Graph, NodeId, ValueId};

use crate::rewrite::affine::{Affine, Power};
use crate::rewrite::body::{Recurrence, State};
use crate::rewrite::draw::{Axis, Draw};
use crate::rewrite::fuse;
use crate::rewrite::product::beside_state;
use crate::rewrite::scan;
use crate::rewrite::sketch::{Replacement, Sketch, Wire, ranked};
use crate::rewrite::stack::{Stack, inside};
use crate::rewrite::view::{Label, outermost};

/// The operator's name.
pub(crate) const OPERATOR: &str = "LinearScan";

/// The recurrences in a `Scan`.
pub(crate) fn scan<'a>(graph: &Graph<'a>, id: NodeId) -> Option<Replacement<'a>> {
    fuse_linear(&scan::read(graph, id)?)
}

/// Solves one state after another; a state may depend on those solved before it.
pub(crate) fn fuse_linear<'a>(recurrence: &Recurrence<'_, 'a>) -> Option<Replacement<'a>> {
    let mut sketch = Sketch::new(recurrence.graph);
    let mut stack = Stack::new(&recurrence.steps);
    let mut outputs = recurrence.held();
    let mut unsolved = recurrence.states.clone();
    while !unsolved.is_empty() {
        let open: Vec<ValueId> = unsolved.iter().map(|s| s.input).collect();
        let dependent = recurrence.dependent(&open)?;
        let mut solved = None;
        for (i, state) in unsolved.iter().enumerate() {
            if let Some(last) =
                solve(recurrence, &mut sketch, &mut stack, *state, &|p| dependent.contains(&p))
            {
                outputs.extend(state.last.map(|value| (value, last)));
                solved = Some(i);
                break;
            }
        }
        unsolved.remove(solved?);
    }
    outputs.retain(|(value, _)| fuse::is_read(recurrence.graph, *value));
    outputs.extend(fuse::exits(recurrence, &mut sketch, &mut stack, None)?);
    sketch.replace(OPERATOR, outputs)
}

/// Draws the states of one state variable over all steps, and gives the last.
fn solve<'g, 'a>(
    recurrence: &Recurrence<'g, 'a>,
    sketch: &mut Sketch<'g, 'a>,
    stack: &mut Stack<'_, 'g, 'a>,
    state: State,
    depends: &dyn Fn(Place) -> bool,
) -> Option<Wire> {
    let steps = &recurrence.steps;
    let (input, next) = (inside(state.input), inside(state.next));
    let element = steps.scopes.element(next).filter(|e| e.is_float())?;
    let rank = steps.rank(input).or_else(|| steps.rank(outermost(state.first)))?;
    let affine = Affine::of(&steps.scopes, input, next, depends)?;
    let over = |factors: &[Power], sketch: &mut Sketch<'g, 'a>, stack: &mut Stack<'_, 'g, 'a>| {
        let mut product: Option<Wire> = None;
        for &(place, power) in factors {
            let view = beside_state(steps, place, rank)?;
            let wire = Draw { sketch, stack, reverse: false, element }.view(&view, &axes(rank))?;
            product = Some(times(sketch, product, wire, power, element, rank)?);
        }
        product
    };
    let mut a = match affine.decay.is_empty() {
        true => one(sketch, element, rank)?,
        false => over(&affine.decay, sketch, stack)?,
    };
    if affine.sign < 0.0 {
        a = sketch.op("Neg", &[a], &[], ranked(element, rank + 1));
    }
    let mut u: Option<Wire> = None;
    for term in &affine.terms {
        let wire = over(&term.factors, sketch, stack)?;
        u = Some(add(sketch, u, wire, term.sign, element, rank));
    }
    let labels: Vec<Label> = (0..rank).map(Label::State).collect();
    let first = steps.operand(outermost(state.first), &labels)?;
    let h0 = Draw { sketch, stack, reverse: false, element }.view(&first, &axes(rank)[1..])?;
    let (states, last) = draw(sketch, a, u?, h0, false, (element, rank));
    stack.know(next, states);
    stack.know(input, before(sketch, states, h0, (element, rank))?);
    Some(last)
}

/// The axes of a state over all steps.
pub(crate) fn axes(rank: usize) -> Vec<Axis> {
    std::iter::once(Axis::Time).chain((0..rank).map(Axis::State)).collect()
}

/// Draws the kernel: all states and the last.
pub(crate) fn draw(
    sketch: &mut Sketch<'_, '_>,
    a: Wire,
    u: Wire,
    h0: Wire,
    reverse: bool,
    (element, rank): (ElementType, usize),
) -> (Wire, Wire) {
    let outputs = vec![ranked(element, rank + 1), ranked(element, rank)];
    let scan = sketch.own(OPERATOR, vec![Some(a), Some(u), Some(h0)], reverse, outputs);
    (Wire::Node(scan, 0), Wire::Node(scan, 1))
}

/// A running product with one more factor.
pub(crate) fn times(
    sketch: &mut Sketch<'_, '_>,
    product: Option<Wire>,
    wire: Wire,
    power: i32,
    element: ElementType,
    rank: usize,
) -> Option<Wire> {
    let ty = ranked(element, rank + 1);
    Some(match (product, power) {
        (None, 1) => wire,
        (None, _) => sketch.op("Reciprocal", &[wire], &[], ty),
        (Some(product), 1) => sketch.op("Mul", &[product, wire], &[], ty),
        (Some(product), _) => sketch.op("Div", &[product, wire], &[], ty),
    })
}

/// A running sum with one more term.
pub(crate) fn add(
    sketch: &mut Sketch<'_, '_>,
    sum: Option<Wire>,
    wire: Wire,
    sign: f64,
    element: ElementType,
    rank: usize,
) -> Wire {
    let ty = ranked(element, rank + 1);
    match (sum, sign < 0.0) {
        (None, false) => wire,
        (None, true) => sketch.op("Neg", &[wire], &[], ty),
        (Some(sum), false) => sketch.op("Add", &[sum, wire], &[], ty),
        (Some(sum), true) => sketch.op("Sub", &[sum, wire], &[], ty),
    }
}

/// A decay of 1.
fn one(sketch: &mut Sketch<'_, '_>, element: ElementType, rank: usize) -> Option<Wire> {
    let one = sketch.constant(onnx_graph::Tensor::scalar(1.0));
    let one = sketch.cast(one, element)?;
    sketch.view("Unsqueeze", one, &(0..=rank).collect::<Vec<_>>())
}

/// The state that each step starts from: the first one, then all but the last.
fn before(
    sketch: &mut Sketch<'_, '_>,
    states: Wire,
    h0: Wire,
    (element, rank): (ElementType, usize),
) -> Option<Wire> {
    let first = sketch.view("Unsqueeze", h0, &[0])?;
    let ty = ranked(element, rank + 1);
    let axis = onnx_graph::Attribute::Int(0);
    let all = sketch.op("Concat", &[first, states], &[("axis", axis)], ty.clone());
    let bounds: Vec<Wire> = [0, -1, 0].iter().map(|&v| sketch.ints(&[v])).collect();
    Some(sketch.op("Slice", &[all, bounds[0], bounds[1], bounds[2]], &[], ty))
}
