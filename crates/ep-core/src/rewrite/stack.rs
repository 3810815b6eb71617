//! All steps at once: a body's values that do not depend on the state, and those that depend on it only through values
//! that are known for all steps, are computed for every step by the same nodes with the steps as a new first axis.

use std::collections::HashMap;

use onnx_graph::pattern::{Maker, Place, from_front};
use onnx_graph::{Attribute, Node, TensorType, ValueId};

use crate::rewrite::sketch::{Sketch, Wire, ranked};
use crate::rewrite::view::{Source, Steps, outermost};

/// A body's value over all steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stacked {
    pub(crate) wire: Wire,
    /// Whether the steps are the first axis; else the value is the same at every step.
    pub(crate) over_time: bool,
}

/// Draws values over all steps, each once.
pub(crate) struct Stack<'s, 'g, 'a> {
    steps: &'s Steps<'g, 'a>,
    known: HashMap<Place, Stacked>,
}

impl<'s, 'g, 'a> Stack<'s, 'g, 'a> {
    pub(crate) fn new(steps: &'s Steps<'g, 'a>) -> Self {
        Self { steps, known: HashMap::new() }
    }

    /// Says what a body's value is over all steps, its axes in order behind the first.
    pub(crate) fn know(&mut self, place: Place, wire: Wire) {
        self.known.insert(place, Stacked { wire, over_time: true });
    }

    /// The value over all steps; `None` where it depends on a state that is not known, or an operator cannot be stacked.
    pub(crate) fn value(&mut self, sketch: &mut Sketch<'g, 'a>, place: Place) -> Option<Stacked> {
        let place = self.steps.scopes.resolve(place);
        if place.depth == 0 {
            return Some(Stacked { wire: Wire::Old(place.value), over_time: false });
        }
        if let Some(stacked) = self.known.get(&place) {
            return Some(*stacked);
        }
        let stacked = self.draw(sketch, place)?;
        self.known.insert(place, stacked);
        Some(stacked)
    }

    fn draw(&mut self, sketch: &mut Sketch<'g, 'a>, place: Place) -> Option<Stacked> {
        if let Some(stacked) = self.scanned(sketch, place) {
            return Some(stacked);
        }
        if let Some(stacked) = self.counted(sketch, place) {
            return Some(stacked);
        }
        let steps = self.steps;
        if let Some(constant) = &steps.scopes.graph(place.depth).value(place.value).constant {
            let wire = sketch.constant(constant.clone().into_owned());
            return Some(Stacked { wire, over_time: false });
        }
        let maker = steps.scopes.maker(place)?;
        if maker.node.bodies().next().is_some() {
            return None;
        }
        let given = maker.node.inputs().iter().map(|input| {
            input
                .map(|value| self.value(sketch, Place { depth: maker.depth, value }))
                .map_or(Some(None), |s| s.map(Some))
        });
        let given: Vec<Option<Stacked>> = given.collect::<Option<_>>()?;
        let over_time = given.iter().flatten().any(|s| s.over_time);
        let (node, inputs) =
            if over_time { self.over_time(sketch, &maker, &given)? } else { same(maker.node, &given) };
        let outputs = maker.node.outputs().iter().map(|output| {
            let value = Place { depth: maker.depth, value: (*output)? };
            let element = steps.scopes.element(value)?;
            let rank = steps.rank(value)? + usize::from(over_time);
            Some(ranked(element, rank))
        });
        let outputs: Vec<TensorType> = outputs.collect::<Option<_>>()?;
        let made = sketch.node(node, inputs, outputs);
        Some(Stacked { wire: Wire::Node(made, maker.output), over_time })
    }

    /// As many entries of an axis as there are steps.
    pub(crate) fn bounded(&self, sketch: &mut Sketch<'g, 'a>, wire: Wire, axis: usize) -> Option<Wire> {
        match self.steps.length {
            Some(length) => sketch.first(wire, axis, Wire::Old(length)),
            None => Some(wire),
        }
    }

    /// The entries of a value that the counter picks, step by step.
    fn counted(&mut self, sketch: &mut Sketch<'g, 'a>, place: Place) -> Option<Stacked> {
        let maker = self.steps.scopes.made_by(place, "Gather")?;
        let indices = maker.input(1).filter(|&i| self.steps.counts(i))?;
        let data = self.value(sketch, maker.input(0)?).filter(|s| !s.over_time)?;
        let rank = self.steps.rank(maker.input(0)?)?;
        let axis = from_front(maker.int_or("axis", 0)?, rank)?;
        let mut perm: Vec<usize> = (0..rank).filter(|&i| i != axis).collect();
        perm.insert(0, axis);
        let front = sketch.view("Transpose", data.wire, &perm)?;
        let wire = self.bounded(sketch, front, 0)?;
        let wire = match self.steps.rank(indices)? {
            0 => wire,
            1 => sketch.view("Unsqueeze", wire, &[axis + 1])?,
            _ => return None,
        };
        Some(Stacked { wire, over_time: true })
    }

    /// What comes in from outside step by step.
    fn scanned(&self, sketch: &mut Sketch<'g, 'a>, place: Place) -> Option<Stacked> {
        match self.steps.sources.get(&place.value)? {
            Source::Held(outer) => Some(Stacked { wire: Wire::Old(*outer), over_time: false }),
            Source::Scanned { outer, axis, reverse } => {
                let rank = self.steps.rank(outermost(*outer))?;
                let mut perm: Vec<usize> = (0..rank).filter(|i| i != axis).collect();
                perm.insert(0, *axis);
                let front = sketch.view("Transpose", Wire::Old(*outer), &perm)?;
                Some(Stacked { wire: sketch.slice(front, 0, None, *reverse)?, over_time: true })
            }
        }
    }

    /// The node and its inputs with the steps as first axis.
    fn over_time(
        &self,
        sketch: &mut Sketch<'g, 'a>,
        maker: &Maker<'g, 'a>,
        given: &[Option<Stacked>],
    ) -> Option<(Node<'a>, Vec<Option<Wire>>)> {
        if !matches!(maker.node.domain.as_str(), "" | "ai.onnx") {
            return None;
        }
        let rank = |i: usize| self.steps.rank(maker.input(i)?);
        let mut node = maker.node.clone();
        let op = maker.node.op_type.as_str();
        // Steps are in front of the data alone: what says how to treat it has to be the same at every step.
        let settings = match op {
            "Unsqueeze" | "Squeeze" | "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin" => 1,
            _ => given.len(),
        };
        if given.iter().skip(settings).flatten().any(|s| s.over_time) {
            return None;
        }
        let mut inputs: Vec<Option<Wire>> = given.iter().map(|s| s.map(|s| s.wire)).collect();
        match op {
            _ if ELEMENTWISE.contains(&op) => self.align(sketch, maker, given, &mut inputs)?,
            "Unsqueeze" | "Squeeze" | "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin" => {
                let data = rank(0)?;
                let counted = match op {
                    "Unsqueeze" => data + self.steps.axis_count(maker)?,
                    _ => data,
                };
                let axes = self.steps.scopes.axes(maker, counted)?;
                let axes: Vec<i64> = axes.into_iter().map(|a| a as i64 + 1).collect();
                if node.attributes.contains_key("axes") {
                    node.attributes.insert("axes".to_owned(), Attribute::Ints(axes));
                } else {
                    inputs[1] = Some(sketch.ints(&axes));
                }
            }
            "Transpose" => {
                let perm: Vec<i64> = match maker.ints("perm") {
                    Some(perm) => perm.to_vec(),
                    None => (0..rank(0)? as i64).rev().collect(),
                };
                let perm = std::iter::once(0).chain(perm.into_iter().map(|p| p + 1)).collect();
                node.attributes.insert("perm".to_owned(), Attribute::Ints(perm));
            }
            "Softmax" | "LogSoftmax" | "Split" | "Concat" if node.version >= 13 => {
                let default = if op == "Split" { 0 } else { -1 };
                let axis = maker.int_or("axis", default)?;
                node.attributes
                    .insert("axis".to_owned(), Attribute::Int(if axis < 0 { axis } else { axis + 1 }));
                if op == "Concat" && !given.iter().flatten().all(|s| s.over_time) {
                    return None;
                }
                if op == "Split" && given.get(1).copied().flatten().is_some_and(|s| s.over_time) {
                    return None;
                }
            }
            "MatMul" => {
                // Vectors are rows or columns according to the side they stand on.
                if rank(0)? < 2 || rank(1)? < 2 {
                    return None;
                }
                self.align(sketch, maker, given, &mut inputs)?;
            }
            "Einsum" => {
                let over_time: Vec<bool> = given.iter().flatten().map(|s| s.over_time).collect();
                let equation = einsum(maker, &over_time)?;
                node.attributes.insert("equation".to_owned(), Attribute::String(equation.into_bytes()));
            }
            _ => return None,
        }
        Some((node, inputs))
    }

    /// Inserts axes behind the steps where an operand has fewer than another, so that they meet as they did in a step.
    fn align(
        &self,
        sketch: &mut Sketch<'g, 'a>,
        maker: &Maker<'g, 'a>,
        given: &[Option<Stacked>],
        inputs: &mut [Option<Wire>],
    ) -> Option<()> {
        let ranks: Vec<usize> = (0..given.len())
            .map(|i| if given[i].is_some() { self.steps.rank(maker.input(i)?) } else { Some(0) })
            .collect::<Option<_>>()?;
        let most = ranks.iter().copied().max()?;
        for ((input, stacked), rank) in inputs.iter_mut().zip(given).zip(ranks) {
            if let (Some(wire), Some(Stacked { over_time: true, .. })) = (input.as_mut(), stacked) {
                let axes: Vec<usize> = (1..=most - rank).collect();
                *wire = sketch.view("Unsqueeze", *wire, &axes)?;
            }
        }
        Some(())
    }
}

/// The equation with an axis of steps in front of the result and of the operands that have one.
fn einsum(maker: &Maker<'_, '_>, over_time: &[bool]) -> Option<String> {
    let (operands, result) = maker.equation()?;
    let time = ('a'..='z').find(|c| !operands.iter().flatten().any(|l| l == c))?;
    let with_time = |letters: &Vec<char>, over: bool| {
        let front = over.then_some(time);
        front.iter().chain(letters).collect::<String>()
    };
    let operands: Vec<String> = operands.iter().zip(over_time).map(|(o, &over)| with_time(o, over)).collect();
    Some(format!("{}->{}", operands.join(","), with_time(&result, true)))
}

/// The node as it is, on values that are the same at every step.
fn same<'a>(node: &Node<'a>, given: &[Option<Stacked>]) -> (Node<'a>, Vec<Option<Wire>>) {
    (node.clone(), given.iter().map(|s| s.map(|s| s.wire)).collect())
}

/// Operators that compute every element on its own, their operands broadcast.
pub(crate) const ELEMENTWISE: &[&str] = &[
    "Abs",
    "Add",
    "And",
    "Cast",
    "Ceil",
    "Cos",
    "Div",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "Pow",
    "Reciprocal",
    "Relu",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Tan",
    "Tanh",
    "Where",
    "Xor",
];

/// A body's value by id.
pub(crate) fn inside(value: ValueId) -> Place {
    Place { depth: 1, value }
}
