//! The rule of the selective scan: the recurrence is diagonal and linear, its decay is exp(dt A), its input (dt x) b, and its
//! states are only summed, times c, over the axis that A and b share. Everything else about it may be written in any way.

use onnx_graph::ElementType;
use onnx_graph::pattern::{Place, Scopes};

use crate::rewrite::affine::Affine;
use crate::rewrite::contraction::Contraction;
use crate::rewrite::draw::{Axis, Draw, arrange};
use crate::rewrite::product::{Product, multiply};
use crate::rewrite::sketch::{Sketch, Wire, ranked};
use crate::rewrite::stack::Stack;
use crate::rewrite::view::{Label, Steps, View, Walk};

/// The operator's name.
pub(crate) const OPERATOR: &str = "SelectiveScan";

/// A step as products: log(decay), input, and what states are summed with.
pub(crate) struct Products {
    pub(crate) decay: Product,
    pub(crate) input: Product,
    pub(crate) c: Product,
}

/// The logarithm of decay and the input as products of what stands beside a state of `rank` axes. `None` where the decay
/// is no exponential or the input a sum.
pub(crate) fn products(steps: &Steps<'_, '_>, affine: &Affine, rank: usize) -> Option<(Product, Product)> {
    let [term] = affine.terms.as_slice() else { return None };
    if affine.sign != 1.0 {
        return None;
    }
    let decay = multiply(steps, &affine.decay, rank)?;
    let exponential = decay.single()?;
    let (exponent, base) = exponent(&steps.scopes, &exponential.view)?;
    let mut logarithm = Product::default();
    logarithm.take(steps, steps.operand(exponent, &exponential.view.labels)?, 1)?;
    logarithm.scale *= base.ln() * f64::from(exponential.power);
    let mut input = multiply(steps, &term.factors, rank)?;
    input.scale *= term.sign;
    Some((logarithm, input))
}

/// The exponent and base of a power with a constant base.
fn exponent(scopes: &Scopes<'_, '_>, view: &View) -> Option<(Place, f64)> {
    if let Some(maker) = scopes.made_by(view.place, "Exp") {
        return Some((maker.input(0)?, std::f64::consts::E));
    }
    let maker = scopes.made_by(view.place, "Pow")?;
    let base = scopes.scalar(maker.input(0)?).filter(|b| *b > 0.0)?;
    Some((maker.input(1)?, base))
}

/// Which axis of the state is which.
#[derive(Clone, Copy, Debug)]
struct Roles {
    batch: Option<usize>,
    channel: Option<usize>,
    state: usize,
}

/// Which factors belong to which input of the kernel.
struct Assignment {
    roles: Roles,
    dt: Vec<usize>,
    a: Vec<usize>,
    x: Vec<usize>,
    b: Vec<usize>,
}

/// What the kernel gives.
pub(crate) struct Drawn {
    /// (T, B, D), the steps in the order in which the recurrence takes them unless `reverse`.
    pub(crate) y: Wire,
    /// The axes of `y`.
    pub(crate) y_axes: Vec<Axis>,
    /// The last state, its axes in order.
    pub(crate) last: Wire,
    /// Whether `y` has the last step first.
    pub(crate) reverse: bool,
}

/// Draws the kernel, if the products are those of a selective scan.
pub(crate) fn draw<'g, 'a>(
    steps: &Steps<'g, 'a>,
    sketch: &mut Sketch<'g, 'a>,
    stack: &mut Stack<'_, 'g, 'a>,
    products: &Products,
    contraction: &Contraction,
    first: Place,
    (element, rank): (ElementType, usize),
) -> Option<Drawn> {
    let Assignment { roles, dt, a, x, b } = assign(products, contraction.axis, rank)?;
    let axis = |role: Option<usize>| role.map_or(Axis::One, Axis::State);
    let (batch, channel, state) = (axis(roles.batch), axis(roles.channel), Axis::State(roles.state));
    let reverse = products.decay.factors[*dt.first()?]
        .view
        .labels
        .iter()
        .any(|l| matches!(l, Label::Time(Walk { reverse: true, .. })));
    let mut drawer = Draw { sketch, stack, reverse, element };
    let Products { decay, input, c } = products;
    let along = [Axis::Time, batch, channel];
    let across = [Axis::Time, batch, state];
    let (dt, dt_scale) = drawer.product(decay, &dt, &along)?;
    let (a, a_scale) = drawer.product(decay, &a, &[channel, state])?;
    let (x, x_scale) = drawer.product(input, &x, &along)?;
    let (b, b_scale) = drawer.product(input, &b, &across)?;
    let (c_wire, c_scale) = drawer.product(c, &(0..c.factors.len()).collect::<Vec<_>>(), &across)?;
    let labels: Vec<Label> = (0..rank).map(Label::State).collect();
    let h0 = drawer.view(&steps.operand(first, &labels)?, &[batch, channel, state])?;
    let a = sketch.scale(a, decay.scale / (dt_scale * a_scale))?;
    let x = sketch.scale(x, input.scale / (dt_scale * x_scale * b_scale))?;
    let c = sketch.scale(c_wire, c.scale / c_scale)?;
    let inputs = [dt, x, b, c, a, h0].into_iter().map(Some).collect();
    let outputs = vec![ranked(element, 3), ranked(element, 3)];
    let flags = if reverse { &["broadcast", "reverse"][..] } else { &["broadcast"] };
    let scan = sketch.own(OPERATOR, inputs, flags, outputs);
    let axes: Vec<Axis> = (0..rank).map(Axis::State).collect();
    let last = arrange(sketch, Wire::Node(scan, 1), &[batch, channel, state], &axes)?;
    Some(Drawn { y: Wire::Node(scan, 0), y_axes: along.to_vec(), last, reverse })
}

/// Says which axis is which and which factor goes where, if there is a way.
fn assign(products: &Products, state: usize, rank: usize) -> Option<Assignment> {
    let others: Vec<usize> = (0..rank).filter(|&i| i != state).collect();
    let ways = match others[..] {
        [] => vec![(None, None)],
        [i] => vec![(Some(i), None), (None, Some(i))],
        [i, j] => vec![(Some(i), Some(j)), (Some(j), Some(i))],
        _ => return None,
    };
    ways.into_iter().find_map(|(batch, channel)| fit(products, Roles { batch, channel, state }))
}

fn fit(products: &Products, roles: Roles) -> Option<Assignment> {
    let runs = |product: &Product, i: usize, time: bool, states: &[Option<usize>]| {
        product.factors[i].view.labels.iter().all(|label| match label {
            Label::State(axis) => states.contains(&Some(*axis)),
            Label::Time(_) => time,
            Label::At(_) | Label::One => true,
            Label::Extra => false,
        })
    };
    let sort = |product: &Product, left: &[usize], time: bool, states: &[Option<usize>]| {
        left.iter().partition::<Vec<usize>, _>(|&&i| runs(product, i, time, states))
    };
    let all = |product: &Product| (0..product.factors.len()).collect::<Vec<_>>();
    let Products { decay, input, c } = products;
    let (a, dt) = sort(decay, &all(decay), false, &[roles.channel, Some(roles.state)]);
    let left = input.without(&all(input), decay, &dt)?;
    let (x, b) = sort(input, &left, true, &[roles.batch, roles.channel]);
    let along = |i: &usize| runs(decay, *i, true, &[roles.batch, roles.channel]);
    let across = |product: &Product, i: usize| runs(product, i, true, &[roles.batch, Some(roles.state)]);
    let fits = !dt.is_empty()
        && dt.iter().all(along)
        && b.iter().all(|&i| across(input, i))
        && all(c).into_iter().all(|i| across(c, i));
    fits.then_some(Assignment { roles, dt, a, x, b })
}
