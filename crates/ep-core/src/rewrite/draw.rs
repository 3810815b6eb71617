//! Products and labelled values as nodes: brought to the axes that a kernel wants.

use onnx_graph::ElementType;

use crate::rewrite::product::{Part, Product};
use crate::rewrite::sketch::{Sketch, Wire, ranked};
use crate::rewrite::stack::Stack;
use crate::rewrite::view::{Label, View, Walk};

/// An axis of a drawn value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    /// The steps, in the order in which the recurrence takes them or in the opposite one.
    Time,
    /// An axis of the state.
    State(usize),
    /// Size 1.
    One,
}

/// The wire with its axes, which are `from`, brought to `to`; what `from` lacks gets size 1.
pub(crate) fn arrange(sketch: &mut Sketch<'_, '_>, wire: Wire, from: &[Axis], to: &[Axis]) -> Option<Wire> {
    let ones: Vec<usize> = (0..from.len()).filter(|&i| from[i] == Axis::One).collect();
    let kept: Vec<Axis> = from.iter().copied().filter(|a| *a != Axis::One).collect();
    let mut order = Vec::with_capacity(kept.len());
    let mut missing = Vec::new();
    for (i, axis) in to.iter().enumerate() {
        match kept.iter().position(|k| k == axis) {
            Some(position) => order.push(position),
            None => missing.push(i),
        }
    }
    if order.len() != kept.len() {
        return None;
    }
    let wire = sketch.view("Squeeze", wire, &ones)?;
    let wire = sketch.view("Transpose", wire, &order)?;
    sketch.view("Unsqueeze", wire, &missing)
}

/// Draws products over all steps, their axes and the direction of time as a kernel wants them.
pub(crate) struct Draw<'t, 's, 'g, 'a> {
    pub(crate) sketch: &'t mut Sketch<'g, 'a>,
    pub(crate) stack: &'t mut Stack<'s, 'g, 'a>,
    /// Whether drawn values have the last step first.
    pub(crate) reverse: bool,
    pub(crate) element: ElementType,
}

impl Draw<'_, '_, '_, '_> {
    /// The product of the factors numbered `factors`, with the axes `to`, and a number that the model has multiplied it
    /// by already.
    pub(crate) fn product(
        &mut self,
        product: &Product,
        factors: &[usize],
        to: &[Axis],
    ) -> Option<(Wire, f64)> {
        let mut left = factors.to_vec();
        let mut scale = 1.0;
        let mut made: Option<Wire> = None;
        while !left.is_empty() {
            let part = best(product, &left, to)?;
            left.retain(|i| !(part.from..part.to).contains(i));
            scale *= part.scale;
            let mut wire = self.view(&part.view, to)?;
            let ty = ranked(self.element, to.len());
            match part.power {
                1 => {}
                -1 => wire = self.sketch.op("Reciprocal", &[wire], &[], ty.clone()),
                _ => return None,
            }
            made = Some(match made {
                None => wire,
                Some(other) => self.sketch.op("Mul", &[other, wire], &[], ty),
            });
        }
        if let Some(wire) = made {
            return Some((wire, scale));
        }
        let one = self.sketch.constant(onnx_graph::Tensor::scalar(1.0));
        let one = self.sketch.cast(one, self.element)?;
        Some((self.sketch.view("Unsqueeze", one, &(0..to.len()).collect::<Vec<_>>())?, 1.0))
    }

    /// A labelled value with the axes `to`.
    pub(crate) fn view(&mut self, view: &View, to: &[Axis]) -> Option<Wire> {
        let stacked = self.stack.value(self.sketch, view.place)?;
        let mut labels = view.labels.clone();
        if stacked.over_time {
            labels.insert(0, Label::Time(Walk::default()));
        }
        let (mut wire, mut from) = (stacked.wire, Vec::with_capacity(labels.len()));
        for (axis, label) in labels.iter().enumerate() {
            from.push(match *label {
                Label::State(i) => Axis::State(i),
                Label::One => Axis::One,
                Label::At(index) => {
                    wire = self.sketch.slice(wire, axis, Some((index, 1)), false)?;
                    Axis::One
                }
                Label::Time(Walk { reverse, range }) => {
                    wire = self.stack.bounded(self.sketch, wire, axis)?;
                    wire = self.sketch.slice(wire, axis, range, reverse != self.reverse)?;
                    Axis::Time
                }
                Label::Extra => return None,
            });
        }
        let wire = arrange(self.sketch, wire, &from, to)?;
        self.sketch.cast(wire, self.element)
    }
}

/// The part that stands for most of the factors `left` and for nothing else; among equals the one that needs least work.
fn best<'p>(product: &'p Product, left: &[usize], to: &[Axis]) -> Option<&'p Part> {
    let fits = |part: &&Part| {
        part.from < part.to
            && (part.from..part.to).all(|i| left.contains(&i))
            && !part.view.labels.contains(&Label::Extra)
    };
    let work = |part: &Part| {
        let wanted = to.len() == part.view.labels.len()
            && part.view.labels.iter().zip(to).all(|(label, axis)| match (label, axis) {
                (Label::State(a), Axis::State(b)) => a == b,
                (Label::Time(walk), Axis::Time) => walk.range.is_none() && !walk.reverse,
                (Label::One, Axis::One) => true,
                _ => false,
            });
        (part.view.place.depth, !wanted, part.view.labels.len())
    };
    product.parts.iter().filter(fits).min_by_key(|part| (usize::MAX - (part.to - part.from), work(part)))
}
