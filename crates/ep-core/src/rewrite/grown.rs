//! The same expression at every step of an unrolled recurrence as one expression over all steps.

use onnx_graph::pattern::Maker;
use onnx_graph::{Attribute, Node, Tensor};

use crate::rewrite::draw::{Axis, Draw};
use crate::rewrite::product::walked;
use crate::rewrite::sketch::{Wire, ranked};
use crate::rewrite::stack::ELEMENTWISE;
use crate::rewrite::view::{Label, Steps, View};

/// An expression over all steps.
pub(crate) enum Grown<'a> {
    /// A value that the steps share, or walk along.
    View(View),
    /// A number that every step writes down anew.
    Number(f64),
    /// An elementwise operator.
    Node(Box<Node<'a>>, Vec<Grown<'a>>),
}

impl<'a> Grown<'a> {
    /// From what stands at each step, in order. `None` if the steps differ in anything but the entries that they pick.
    pub(crate) fn of(steps: &Steps<'_, 'a>, views: &[View]) -> Option<Self> {
        let settled: Vec<View> = views
            .iter()
            .map(|v| steps.settled(View { place: steps.scopes.resolve(v.place), labels: v.labels.clone() }))
            .collect();
        if let Some(view) = walked(&settled.iter().collect::<Vec<_>>(), views.len() as i64) {
            return Some(Self::View(view));
        }
        let numbers: Option<Vec<f64>> = views.iter().map(|v| steps.scopes.scalar(v.place)).collect();
        if let Some(numbers) = numbers {
            let same = numbers.iter().all(|n| n == &numbers[0]);
            return same.then_some(Self::Number(numbers[0]));
        }
        let closer: Option<Vec<View>> = views.iter().map(|v| steps.closer(v)).collect();
        if let Some(closer) = closer {
            return Self::of(steps, &closer);
        }
        let makers: Vec<Maker<'_, 'a>> =
            views.iter().map(|v| steps.scopes.maker(v.place)).collect::<Option<_>>()?;
        let first = makers.first()?;
        let op = first.node.op_type.as_str();
        let alike = |m: &Maker<'_, 'a>| {
            m.is(op)
                && m.node.inputs().len() == first.node.inputs().len()
                && same_attributes(m.node, first.node)
        };
        if !ELEMENTWISE.contains(&op) || first.node.outputs().len() != 1 || !makers.iter().all(alike) {
            return None;
        }
        let operands = (0..first.node.inputs().len()).map(|i| {
            let operand = |(m, v): (&Maker<'_, 'a>, &View)| steps.operand(m.input(i)?, &v.labels);
            let operands: Vec<View> = makers.iter().zip(views).map(operand).collect::<Option<_>>()?;
            Self::of(steps, &operands)
        });
        let operands = operands.collect::<Option<Vec<_>>>()?;
        Some(Self::Node(Box::new(first.node.clone()), operands))
    }

    /// Whether the steps pick entries of something: else they only happen to look alike.
    pub(crate) fn walks(&self) -> bool {
        match self {
            Self::View(view) => view.labels.iter().any(|l| matches!(l, Label::Time(_))),
            Self::Number(_) => false,
            Self::Node(_, operands) => operands.iter().any(Grown::walks),
        }
    }

    /// Draws it with the axes `to`.
    pub(crate) fn draw(&self, draw: &mut Draw<'_, '_, '_, 'a>, to: &[Axis]) -> Option<Wire> {
        match self {
            Self::View(view) => draw.view(view, to),
            Self::Number(number) => {
                let number = draw.sketch.constant(Tensor::scalar(*number as f32));
                draw.sketch.cast(number, draw.element)
            }
            Self::Node(node, operands) => {
                let wires =
                    operands.iter().map(|o| Some(Some(o.draw(draw, to)?))).collect::<Option<Vec<_>>>()?;
                let made =
                    draw.sketch.node(node.as_ref().clone(), wires, vec![ranked(draw.element, to.len())]);
                Some(Wire::Node(made, 0))
            }
        }
    }
}

fn same_attributes(a: &Node<'_>, b: &Node<'_>) -> bool {
    a.attributes.len() == b.attributes.len()
        && a.attributes.iter().zip(&b.attributes).all(|((name, value), (other, same))| {
            name == other
                && match (value, same) {
                    (Attribute::Int(a), Attribute::Int(b)) => a == b,
                    (Attribute::Float(a), Attribute::Float(b)) => a == b,
                    (Attribute::String(a), Attribute::String(b)) => a == b,
                    _ => false,
                }
        })
}
