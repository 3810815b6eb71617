//! A node as a claim reads it: typed, with defaults, and with declines instead of errors.

use std::cell::RefCell;
use std::collections::BTreeSet;

use mlx_safe::{DeviceType, Dtype};
use onnx_graph::{Attribute, ElementType, Graph, Node, NodeId, Shape, Tensor, Value, ValueId, ValueType};

use crate::{Decline, DeclineCode, dtype};

/// The newest opset of ai.onnx whose rules are known here.
pub(crate) const NEWEST_OPSET: i64 = 28;

/// The answer for every node of a graph, by [`NodeId`].
#[derive(Debug)]
pub struct Claims {
    /// `Ok` if the node can run on MLX.
    pub nodes: Vec<Result<(), Decline>>,
    /// The nodes that will run together as a fused kernel.
    pub fusions: Vec<Fusion>,
}

/// Nodes that will run as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fusion {
    /// The operator that stands for them, of the domain ai.ortmlx.
    pub operator: &'static str,
    /// The kernel that runs it here, such as `selective_scan/host`.
    pub kernel: String,
    /// The nodes, in order.
    pub nodes: Vec<NodeId>,
}

/// A node under the question whether MLX can run it.
pub struct NodeRef<'g> {
    graph: &'g Graph<'g>,
    node: &'g Node<'g>,
    device: DeviceType,
    /// The attributes that were asked for: one that no claim asks for may change what the operator means.
    read: RefCell<BTreeSet<String>>,
}

impl<'g> NodeRef<'g> {
    pub(crate) fn new(graph: &'g Graph<'g>, id: NodeId, device: DeviceType) -> Self {
        Self { graph, node: graph.node(id), device, read: RefCell::default() }
    }

    /// The operator's name.
    pub fn op_type(&self) -> &'g str {
        &self.node.op_type
    }

    /// The operator's domain; empty for ai.onnx.
    pub fn domain(&self) -> &'g str {
        match self.node.domain.as_str() {
            "ai.onnx" => "",
            domain => domain,
        }
    }

    /// `version() >= n` asks for the rules of opset `n`.
    pub fn version(&self) -> i64 {
        self.node.version
    }

    /// The kind of device that would run it.
    pub fn device(&self) -> DeviceType {
        self.device
    }

    /// How many inputs are listed, left-out ones included.
    pub fn input_count(&self) -> usize {
        self.node.inputs().len()
    }

    /// How many outputs are listed, unwanted ones included.
    pub fn output_count(&self) -> usize {
        self.node.outputs().len()
    }

    /// Whether input `i` is given.
    pub fn has_input(&self, i: usize) -> bool {
        self.input(i).is_some()
    }

    /// Whether output `i` is asked for.
    pub fn has_output(&self, i: usize) -> bool {
        self.node.outputs().get(i).is_some_and(Option::is_some)
    }

    fn input(&self, i: usize) -> Option<ValueId> {
        self.node.inputs().get(i).copied().flatten()
    }

    /// The element type of input `i`.
    pub fn input_type(&self, i: usize) -> Result<ElementType, Decline> {
        let id = self.input(i).ok_or_else(|| Decline::invalid(format!("input {i} is missing")))?;
        self.type_of(id, "input", i)
    }

    /// The element type of output `i`.
    pub fn output_type(&self, i: usize) -> Result<ElementType, Decline> {
        let id = self.node.outputs().get(i).copied().flatten();
        let id = id.ok_or_else(|| Decline::invalid(format!("output {i} is missing")))?;
        self.type_of(id, "output", i)
    }

    fn type_of(&self, id: ValueId, what: &str, i: usize) -> Result<ElementType, Decline> {
        element_of(self.graph.value(id), || format!("{what} {i}"))
    }

    /// Declines unless input `i` has one of `allowed`; gives its type.
    pub fn expect_type(
        &self,
        i: usize,
        allowed: impl Fn(ElementType) -> bool,
    ) -> Result<ElementType, Decline> {
        let element = self.input_type(i)?;
        if allowed(element) { Ok(element) } else { Err(Decline::dtype(&format!("input {i}"), element)) }
    }

    /// Declines unless input `i` is float32, float16 or bfloat16; gives its type.
    pub fn expect_float(&self, i: usize) -> Result<ElementType, Decline> {
        self.expect_type(i, |e| e.is_float() && dtype::to_mlx(e).is_some())
    }

    /// The declared shape of input `i`. The run may bring another one: use it to decline, never to compute.
    pub fn input_shape(&self, i: usize) -> Option<&'g Shape> {
        self.graph.value(self.input(i)?).tensor_type()?.shape.as_ref()
    }

    /// The declared rank of input `i`.
    pub fn input_rank(&self, i: usize) -> Option<usize> {
        Some(self.input_shape(i)?.rank())
    }

    /// The contents of input `i`, if it is a constant.
    pub fn constant(&self, i: usize) -> Option<&'g Tensor<'g>> {
        self.graph.value(self.input(i)?).constant.as_ref()
    }

    /// The integers of input `i`, if it is a constant of them.
    pub fn constant_ints(&self, i: usize) -> Option<Vec<i64>> {
        self.constant(i)?.ints()
    }

    fn attribute(&self, name: &str) -> Option<&'g Attribute<'g>> {
        let attribute = self.node.attributes.get(name)?;
        self.read.borrow_mut().insert(name.to_owned());
        Some(attribute)
    }

    /// Says that attributes have no effect on what is computed here.
    pub fn ignore(&self, names: &[&str]) {
        for name in names {
            self.attribute(name);
        }
    }

    /// Declines if the node has an attribute that the claim did not ask for: a newer opset's, or another vendor's.
    pub(crate) fn check_attributes(&self) -> Result<(), Decline> {
        let read = self.read.borrow();
        match self.node.attributes.keys().find(|name| !read.contains(*name)) {
            None => Ok(()),
            Some(name) => {
                Err(Decline::new(DeclineCode::Attribute, format!("attribute {name} is not known here")))
            }
        }
    }

    /// Whether the attribute is given.
    pub fn has_attribute(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    /// An `INT` attribute.
    pub fn int(&self, name: &str) -> Result<Option<i64>, Decline> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Int(v)) => Ok(Some(*v)),
            Some(other) => Err(wrong_kind(name, "INT", other)),
        }
    }

    /// An `INT` attribute with its default.
    pub fn int_or(&self, name: &str, default: i64) -> Result<i64, Decline> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// An `INT` attribute that is a flag, with its default. Declines what is neither 0 nor 1: operators differ in what
    /// they make of it.
    pub fn flag_or(&self, name: &'static str, default: bool) -> Result<bool, Decline> {
        match self.int(name)? {
            None => Ok(default),
            Some(0) => Ok(false),
            Some(1) => Ok(true),
            Some(other) => Err(Decline::attribute(name, other)),
        }
    }

    /// A `FLOAT` attribute.
    pub fn float(&self, name: &str) -> Result<Option<f32>, Decline> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Float(v)) => Ok(Some(*v)),
            Some(other) => Err(wrong_kind(name, "FLOAT", other)),
        }
    }

    /// A `FLOAT` attribute with its default.
    pub fn float_or(&self, name: &str, default: f32) -> Result<f32, Decline> {
        Ok(self.float(name)?.unwrap_or(default))
    }

    /// An `INTS` attribute. An empty list may arrive without a kind, as `FLOATS`, `STRINGS` and so on.
    pub fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, Decline> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Ints(v)) => Ok(Some(v.clone())),
            Some(Attribute::Floats(v)) if v.is_empty() => Ok(Some(Vec::new())),
            Some(other) => Err(wrong_kind(name, "INTS", other)),
        }
    }

    /// A `FLOATS` attribute.
    pub fn floats(&self, name: &str) -> Result<Option<Vec<f32>>, Decline> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Floats(v)) => Ok(Some(v.clone())),
            Some(Attribute::Ints(v)) if v.is_empty() => Ok(Some(Vec::new())),
            Some(other) => Err(wrong_kind(name, "FLOATS", other)),
        }
    }

    /// A `STRING` attribute with its default.
    pub fn string_or(&self, name: &str, default: &'static str) -> Result<&'g str, Decline> {
        match self.attribute(name) {
            None => Ok(default),
            Some(Attribute::String(v)) => {
                std::str::from_utf8(v).map_err(|_| Decline::invalid(format!("attribute {name} is not UTF-8")))
            }
            Some(other) => Err(wrong_kind(name, "STRING", other)),
        }
    }

    /// A `STRINGS` attribute.
    pub fn strings(&self, name: &str) -> Result<Option<Vec<&'g str>>, Decline> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Strings(v)) => {
                (v.iter().map(|v| std::str::from_utf8(v)).collect::<Result<_, _>>())
                    .map(Some)
                    .map_err(|_| Decline::invalid(format!("attribute {name} is not UTF-8")))
            }
            Some(Attribute::Ints(v)) if v.is_empty() => Ok(Some(Vec::new())),
            Some(other) => Err(wrong_kind(name, "STRINGS", other)),
        }
    }

    /// A `TENSOR` attribute.
    pub fn tensor(&self, name: &str) -> Result<Option<&'g Tensor<'g>>, Decline> {
        match self.attribute(name) {
            None => Ok(None),
            Some(Attribute::Tensor(v)) => Ok(Some(v)),
            Some(other) => Err(wrong_kind(name, "TENSOR", other)),
        }
    }

    /// The graph in attribute `name`: a body whose every node is claimed, and which handles tensors only.
    pub(crate) fn body(&self, name: &str) -> Result<&'g Graph<'g>, Decline> {
        let body = match self.attribute(name) {
            Some(Attribute::Graph(body)) => body.as_ref(),
            Some(other) => return Err(wrong_kind(name, "GRAPH", other)),
            None => return Err(Decline::invalid(format!("attribute {name} is missing"))),
        };
        let declines = body.nodes().filter_map(|(id, node)| {
            let inner = NodeRef::new(body, id, self.device);
            let decline = crate::registry::claim(&inner).err()?;
            // What another provider, or an earlier claim, made of a part says less than what kept the rest.
            Some((!matches!(inner.domain(), "" | "com.microsoft"), node, id, decline))
        });
        if let Some((_, node, id, decline)) = declines.min_by_key(|(foreign, ..)| *foreign) {
            let inner = if node.name.is_empty() { format!("#{}", id.0) } else { format!("'{}'", node.name) };
            let detail = format!("{name}: {} node {inner}: {}", node.op_type, decline.detail);
            return Err(Decline::new(decline.code, detail));
        }
        for &id in body.inputs().iter().chain(body.outputs()) {
            body_type(body, id)
                .map_err(|decline| Decline::new(decline.code, format!("{name}: {decline}")))?;
        }
        for outer in body.outer_values() {
            self.captured(&body.value(outer).name)?;
        }
        Ok(body)
    }

    /// Where the outer-scope value `name` of a body stands among the inputs of a lowering.
    pub(crate) fn captured(&self, name: &str) -> Result<usize, Decline> {
        let position = self.node.implicit_inputs().iter().position(|&v| self.graph.value(v).name == name);
        let position = position
            .ok_or_else(|| Decline::invalid(format!("nothing around the body is called '{name}'")))?;
        Ok(self.input_count() + position)
    }

    /// Declines what no operator here can take: versions newer than this crate and element types without an MLX type.
    pub(crate) fn check_basics(&self) -> Result<(), Decline> {
        if self.domain().is_empty() && self.version() > NEWEST_OPSET {
            let detail =
                format!("opset {} is newer than this version knows ({NEWEST_OPSET})", self.version());
            return Err(Decline::new(DeclineCode::Unknown, detail));
        }
        let inputs = self.node.inputs().iter().enumerate().map(|(i, v)| ("input", i, v));
        let outputs = self.node.outputs().iter().enumerate().map(|(i, v)| ("output", i, v));
        for (what, i, value) in inputs.chain(outputs) {
            let Some(value) = value else { continue };
            let element = self.type_of(*value, what, i)?;
            if dtype::to_mlx(element).is_none() {
                return Err(Decline::dtype(&format!("{what} {i}"), element));
            }
        }
        Ok(())
    }

    /// The MLX type of output `i`.
    pub fn output_dtype(&self, i: usize) -> Result<Dtype, Decline> {
        let element = self.output_type(i)?;
        dtype::to_mlx(element).ok_or_else(|| Decline::dtype(&format!("output {i}"), element))
    }
}

/// The element type of an input or output of a body.
pub(crate) fn body_type(body: &Graph<'_>, id: ValueId) -> Result<ElementType, Decline> {
    let value = body.value(id);
    let what = || format!("'{}'", value.name);
    let element = element_of(value, what)?;
    if dtype::to_mlx(element).is_none() {
        return Err(Decline::dtype(&what(), element));
    }
    Ok(element)
}

fn element_of(value: &Value<'_>, what: impl Fn() -> String) -> Result<ElementType, Decline> {
    let detail = match &value.ty {
        ValueType::Tensor(t) => return Ok(t.element),
        ValueType::Other(other) => format!("{} is no tensor but of another kind: {other}", what()),
        ValueType::Unknown => format!("{} has no known type", what()),
    };
    Err(Decline::new(DeclineCode::Type, detail))
}

fn wrong_kind(name: &str, wanted: &str, got: &Attribute<'_>) -> Decline {
    Decline::invalid(format!("attribute {name} is {}, not {wanted}", got.kind()))
}
