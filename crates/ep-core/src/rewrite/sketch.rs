//! Nodes that a rule would put into a graph: drawn without touching it, checked against the registry, then added.

use std::collections::HashSet;

use mlx_safe::DeviceType;
use onnx_graph::{
    Attribute, Dim, ElementType, Graph, Node, NodeId, Shape, Tensor, TensorType, ValueId, ValueType,
};

use crate::{NodeRef, registry};

/// The domain of this project's own operators.
pub(crate) const DOMAIN: &str = "ai.ortmlx";

/// The opset whose rules drawn nodes of ai.onnx follow, whatever the model's.
pub(crate) const OPSET: i64 = 18;

/// A value that drawn nodes read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// One of the graph's.
    Old(ValueId),
    /// An output of a drawn node.
    Node(usize, usize),
    /// A drawn constant.
    Constant(usize),
}

struct Draft<'a> {
    node: Node<'a>,
    inputs: Vec<Option<Wire>>,
    outputs: Vec<TensorType>,
}

/// Drawn nodes, and the values of the graph that they take over.
pub(crate) struct Sketch<'g, 'a> {
    graph: &'g Graph<'a>,
    drafts: Vec<Draft<'a>>,
    constants: Vec<Tensor<'static>>,
}

/// A finished sketch: what a rule gives back.
pub(crate) struct Replacement<'a> {
    /// The operator that stands for what is replaced.
    pub(crate) operator: &'static str,
    drafts: Vec<Draft<'a>>,
    constants: Vec<Tensor<'static>>,
    outputs: Vec<(ValueId, Wire)>,
    /// Whether drawn nodes read only what replaced values were computed from.
    downward: bool,
}

/// A tensor type of which the rank is known.
pub(crate) fn ranked(element: ElementType, rank: usize) -> TensorType {
    TensorType { element, shape: Some(Shape(vec![Dim::Unknown; rank])) }
}

impl<'g, 'a> Sketch<'g, 'a> {
    pub(crate) fn new(graph: &'g Graph<'a>) -> Self {
        Self { graph, drafts: Vec::new(), constants: Vec::new() }
    }

    /// The declared type of a wire.
    pub(crate) fn ty(&self, wire: Wire) -> Option<TensorType> {
        match wire {
            Wire::Old(value) => {
                let value = self.graph.value(value);
                let constant = value.constant.as_ref();
                let exact = constant
                    .map(|t| TensorType { element: t.element(), shape: Some(Shape::fixed(t.dims())) });
                exact.or_else(|| value.tensor_type().cloned())
            }
            Wire::Node(node, output) => self.drafts.get(node)?.outputs.get(output).cloned(),
            Wire::Constant(i) => {
                let tensor = self.constants.get(i)?;
                Some(TensorType { element: tensor.element(), shape: Some(Shape::fixed(tensor.dims())) })
            }
        }
    }

    /// The element type of a wire.
    pub(crate) fn element(&self, wire: Wire) -> Option<ElementType> {
        Some(self.ty(wire)?.element)
    }

    /// The rank of a wire.
    pub(crate) fn rank(&self, wire: Wire) -> Option<usize> {
        Some(self.ty(wire)?.shape?.rank())
    }

    /// Draws `node` with outputs of these types.
    pub(crate) fn node(
        &mut self,
        node: Node<'a>,
        inputs: Vec<Option<Wire>>,
        outputs: Vec<TensorType>,
    ) -> usize {
        self.drafts.push(Draft { node, inputs, outputs });
        self.drafts.len() - 1
    }

    /// Draws a node of ai.onnx with one output.
    pub(crate) fn op(
        &mut self,
        op: &str,
        inputs: &[Wire],
        attributes: &[(&str, Attribute<'a>)],
        ty: TensorType,
    ) -> Wire {
        let mut node = Node::new(op, OPSET);
        node.attributes.extend(attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Wire::Node(self.node(node, inputs.iter().copied().map(Some).collect(), vec![ty]), 0)
    }

    /// Draws a node of this project's domain, with these attributes set to 1.
    pub(crate) fn own(
        &mut self,
        op: &str,
        inputs: Vec<Option<Wire>>,
        flags: &[&str],
        outputs: Vec<TensorType>,
    ) -> usize {
        let mut node = Node::new(op, 1);
        node.domain = DOMAIN.to_owned();
        node.attributes.extend(flags.iter().map(|&flag| (flag.to_owned(), Attribute::Int(1))));
        self.node(node, inputs, outputs)
    }

    pub(crate) fn constant(&mut self, tensor: Tensor<'static>) -> Wire {
        self.constants.push(tensor);
        Wire::Constant(self.constants.len() - 1)
    }

    pub(crate) fn ints(&mut self, values: &[i64]) -> Wire {
        self.constant(Tensor::from_ints(values))
    }

    /// The wire as `element`.
    pub(crate) fn cast(&mut self, wire: Wire, element: ElementType) -> Option<Wire> {
        let ty = self.ty(wire)?;
        if ty.element == element {
            return Some(wire);
        }
        let to = Attribute::Int(element.onnx().into());
        Some(self.op("Cast", &[wire], &[("to", to)], TensorType { element, ..ty }))
    }

    /// The wire times a number.
    pub(crate) fn scale(&mut self, wire: Wire, factor: f64) -> Option<Wire> {
        // Models write their factors in single precision: log2(e) ln(2) is 1 there.
        if (factor - 1.0).abs() < 1e-6 {
            return Some(wire);
        }
        let ty = self.ty(wire)?;
        let factor = self.constant(Tensor::scalar(factor as f32));
        let factor = self.cast(factor, ty.element)?;
        Some(self.op("Mul", &[wire, factor], &[], ty))
    }

    /// Entries of one axis: `len` from `start` on, or all; the last first if `reverse`.
    pub(crate) fn slice(
        &mut self,
        wire: Wire,
        axis: usize,
        range: Option<(i64, i64)>,
        reverse: bool,
    ) -> Option<Wire> {
        let (start, end, step) = match (range, reverse) {
            (None, false) => return Some(wire),
            (None, true) => (-1, i64::MIN, -1),
            (Some((start, len)), false) => (start, start + len, 1),
            (Some((0, len)), true) => (len - 1, i64::MIN, -1),
            (Some((start, len)), true) => (start + len - 1, start - 1, -1),
        };
        let ty = ranked(self.element(wire)?, self.rank(wire)?);
        let bounds: Vec<Wire> = [start, end, axis as i64, step].iter().map(|&v| self.ints(&[v])).collect();
        Some(self.op("Slice", &[wire, bounds[0], bounds[1], bounds[2], bounds[3]], &[], ty))
    }

    /// The first entries of an axis, as many as `length` says.
    pub(crate) fn first(&mut self, wire: Wire, axis: usize, length: Wire) -> Option<Wire> {
        let ty = ranked(self.element(wire)?, self.rank(wire)?);
        let (start, axes, flat) = (self.ints(&[0]), self.ints(&[axis as i64]), self.ints(&[-1]));
        let end = self.op("Reshape", &[length, flat], &[], ranked(ElementType::Int64, 1));
        Some(self.op("Slice", &[wire, start, end, axes], &[], ty))
    }

    /// `Transpose`, `Squeeze` or `Unsqueeze` by `axes`, or the wire itself where that does nothing.
    pub(crate) fn view(&mut self, op: &str, wire: Wire, axes: &[usize]) -> Option<Wire> {
        let (element, rank) = (self.element(wire)?, self.rank(wire)?);
        let ints: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
        if op == "Transpose" {
            if axes.iter().enumerate().all(|(i, &axis)| i == axis) {
                return Some(wire);
            }
            let perm = Attribute::Ints(ints);
            return Some(self.op(op, &[wire], &[("perm", perm)], ranked(element, rank)));
        }
        if axes.is_empty() {
            return Some(wire);
        }
        let rank = if op == "Squeeze" { rank.checked_sub(axes.len())? } else { rank + axes.len() };
        let axes = self.ints(&ints);
        Some(self.op(op, &[wire, axes], &[], ranked(element, rank)))
    }

    /// Ends the sketch: each value is from now on made by the wire beside it, which gets the value's type.
    pub(crate) fn replace(
        mut self,
        operator: &'static str,
        outputs: Vec<(ValueId, Wire)>,
    ) -> Option<Replacement<'a>> {
        let mut made = Vec::with_capacity(outputs.len());
        for (value, wire) in outputs {
            let element = self.graph.value(value).tensor_type()?.element;
            let cast = self.cast(wire, element)?;
            let taken = made.iter().any(|(_, other)| *other == cast);
            // A wire can become one value only, and values of the graph and constants none.
            let wire = match cast {
                Wire::Node(..) if !taken => cast,
                _ => {
                    let ty = self.ty(cast)?;
                    self.op("Identity", &[cast], &[], ty)
                }
            };
            made.push((value, wire));
        }
        Some(Replacement {
            operator,
            drafts: self.drafts,
            constants: self.constants,
            outputs: made,
            downward: false,
        })
    }
}

impl<'a> Replacement<'a> {
    /// Says that drawn nodes read only what the values that they make were computed from, so that no cycle can close.
    pub(crate) fn downward(self) -> Self {
        Self { downward: true, ..self }
    }

    /// Adds the nodes, has them take over their values, and sweeps away what nobody reads any more. Gives the nodes swept;
    /// `None`, with the graph as it was, if an operator declines one of the nodes.
    pub(crate) fn apply(self, graph: &mut Graph<'a>, device: DeviceType) -> Option<Vec<NodeId>> {
        if !self.downward && self.closes_a_cycle(graph) {
            return None;
        }
        let stem = format!("{}/{}", self.operator, graph.node_count());
        let constants: Vec<ValueId> = (self.constants.into_iter().enumerate())
            .map(|(i, tensor)| {
                let value = fresh(graph, &format!("{stem}/constant{i}"));
                graph.set_constant(value, tensor);
                value
            })
            .collect();
        let mut made: Vec<Vec<ValueId>> = Vec::with_capacity(self.drafts.len());
        let mut added = Vec::with_capacity(self.drafts.len());
        let mut accepted = true;
        for (i, draft) in self.drafts.into_iter().enumerate() {
            let inputs = draft.inputs.iter().map(|wire| {
                wire.map(|wire| match wire {
                    Wire::Old(value) => value,
                    Wire::Node(node, output) => made[node][output],
                    Wire::Constant(constant) => constants[constant],
                })
            });
            let inputs = inputs.collect();
            let outputs: Vec<ValueId> = (draft.outputs.into_iter().enumerate())
                .map(|(output, ty)| {
                    let value = fresh(graph, &format!("{stem}/{i}.{output}"));
                    graph.set_type(value, ValueType::Tensor(ty));
                    value
                })
                .collect();
            let mut node = draft.node;
            node.name = format!("{stem}/{i}");
            let listed = outputs.iter().copied().map(Some).collect();
            let Ok(id) = graph.add_node(node, inputs, listed, Vec::new()) else {
                accepted = false;
                break;
            };
            added.push(id);
            made.push(outputs);
        }
        for &id in &added {
            if let Err(decline) = registry::claim(&NodeRef::new(graph, id, device)) {
                tracing::debug!("{} is not used: {} {decline}", self.operator, graph.node(id).op_type);
                accepted = false;
            }
        }
        if !accepted {
            added.iter().rev().for_each(|&id| graph.remove_node(id));
            return None;
        }
        let mut old = Vec::new();
        for (value, wire) in self.outputs {
            old.extend(graph.value(value).producer().map(|(node, _)| node));
            let Wire::Node(node, output) = wire else { continue };
            let ty = graph.value(value).ty.clone();
            // Both are outputs of nodes, so this holds.
            graph.take_over(value, made[node][output]).ok()?;
            graph.set_type(value, ty);
        }
        Some(graph.sweep(old))
    }
}

impl Replacement<'_> {
    /// Whether a value that the drawn nodes read depends on one that they take over.
    fn closes_a_cycle(&self, graph: &Graph<'_>) -> bool {
        let mut seen: HashSet<ValueId> = self.outputs.iter().map(|(value, _)| *value).collect();
        let mut left: Vec<ValueId> = seen.iter().copied().collect();
        while let Some(value) = left.pop() {
            for used in graph.value(value).uses() {
                left.extend(graph.node(used.node).outputs().iter().flatten().filter(|v| seen.insert(**v)));
            }
        }
        let reads = self.drafts.iter().flat_map(|draft| draft.inputs.iter().flatten());
        reads.into_iter().any(|wire| matches!(wire, Wire::Old(value) if seen.contains(value)))
    }
}

/// A new value whose name begins with `name`.
fn fresh(graph: &mut Graph<'_>, name: &str) -> ValueId {
    let mut unique = name.to_owned();
    while graph.find_value(&unique).is_some() {
        unique.push('\'');
    }
    graph.value_named(&unique)
}
