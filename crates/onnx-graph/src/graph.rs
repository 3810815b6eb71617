//! The graph itself: arenas of nodes and values, with def-use kept up to date. `edit.rs` changes graphs.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{Attribute, Error, Tensor, TensorType};

/// Addresses a [`Node`] of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// Addresses a [`Value`] of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// One place where a value is read: input `index` of `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Use {
    /// The reading node.
    pub node: NodeId,
    /// Which of its inputs; indices past [`Node::inputs`] are outer-scope values its bodies read.
    pub index: usize,
}

/// The declared type of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueType {
    /// A dense tensor.
    Tensor(TensorType),
    /// A sequence, map, optional or sparse tensor, by description.
    Other(String),
    /// No type is declared.
    Unknown,
}

/// A value: a graph input, a constant, a node's output, or a name from an outer scope.
#[derive(Clone, Debug)]
pub struct Value<'a> {
    /// Its name, unique in the graph.
    pub name: String,
    /// Its declared type.
    pub ty: ValueType,
    /// Its contents, for an initializer that no caller may override.
    pub constant: Option<Tensor<'a>>,
    pub(crate) producer: Option<(NodeId, usize)>,
    pub(crate) uses: Vec<Use>,
    pub(crate) opaque: bool,
}

impl Value<'_> {
    /// Whether this is an initializer: one with [`Value::constant`], or one whose contents this crate does not carry
    /// (strings, sparse tensors, element types newer than it).
    pub fn is_initializer(&self) -> bool {
        self.opaque || self.constant.is_some()
    }

    /// The node and output index that make this value; `None` for inputs, constants and outer-scope values.
    pub fn producer(&self) -> Option<(NodeId, usize)> {
        self.producer
    }

    /// Every place in this graph where the value is read.
    pub fn uses(&self) -> &[Use] {
        &self.uses
    }

    /// The declared tensor type, if it is one.
    pub fn tensor_type(&self) -> Option<&TensorType> {
        match &self.ty {
            ValueType::Tensor(t) => Some(t),
            _ => None,
        }
    }
}

/// A node: one application of an operator.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// Its name; may be empty and need not be unique.
    pub name: String,
    /// The operator's domain; empty for ai.onnx.
    pub domain: String,
    /// The operator.
    pub op_type: String,
    /// The operator's version: when its schema was introduced if the source says so, else the opset the model
    /// imports. Either way `version >= n` asks for the rules of opset `n`.
    pub version: i64,
    /// Attributes by name.
    pub attributes: BTreeMap<String, Attribute<'a>>,
    pub(crate) inputs: Vec<Option<ValueId>>,
    pub(crate) outputs: Vec<Option<ValueId>>,
    pub(crate) implicit: Vec<ValueId>,
    /// Taken out of its graph; its place in the arena stays, so that other ids do.
    pub(crate) removed: bool,
}

impl<'a> Node<'a> {
    /// A node of ai.onnx at `version`, with no attributes.
    pub fn new(op_type: impl Into<String>, version: i64) -> Self {
        Self {
            name: String::new(),
            domain: String::new(),
            op_type: op_type.into(),
            version,
            attributes: BTreeMap::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            implicit: Vec::new(),
            removed: false,
        }
    }

    /// Its inputs; `None` where an optional one is left out.
    pub fn inputs(&self) -> &[Option<ValueId>] {
        &self.inputs
    }

    /// Its outputs; `None` where one is not asked for.
    pub fn outputs(&self) -> &[Option<ValueId>] {
        &self.outputs
    }

    /// Outer-scope values that its bodies read.
    pub fn implicit_inputs(&self) -> &[ValueId] {
        &self.implicit
    }

    /// Explicit and implicit inputs that are there.
    pub fn all_inputs(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.inputs.iter().flatten().chain(&self.implicit).copied()
    }

    /// The bodies among its attributes, by attribute name.
    pub fn bodies(&self) -> impl Iterator<Item = (&str, &Graph<'a>)> + '_ {
        self.attributes.iter().flat_map(|(name, attribute)| {
            let bodies = match attribute {
                Attribute::Graph(g) => std::slice::from_ref(g),
                Attribute::Graphs(gs) => gs.as_slice(),
                _ => &[],
            };
            bodies.iter().map(move |g| (name.as_str(), g.as_ref()))
        })
    }
}

/// A graph.
#[derive(Clone, Debug, Default)]
pub struct Graph<'a> {
    /// Its name.
    pub name: String,
    pub(crate) nodes: Vec<Node<'a>>,
    pub(crate) values: Vec<Value<'a>>,
    by_name: HashMap<String, ValueId>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
}

impl<'a> Graph<'a> {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The value called `name`, made on first mention. Until something else is said of it, it is an outer-scope value
    /// of unknown type.
    pub fn value_named(&mut self, name: &str) -> ValueId {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let id = ValueId(self.values.len());
        self.values.push(Value {
            name: name.to_owned(),
            ty: ValueType::Unknown,
            constant: None,
            producer: None,
            uses: Vec::new(),
            opaque: false,
        });
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// Looks a value up by name.
    pub fn find_value(&self, name: &str) -> Option<ValueId> {
        self.by_name.get(name).copied()
    }

    /// Declares the type of a value.
    pub fn set_type(&mut self, value: ValueId, ty: ValueType) {
        self.values[value.0].ty = ty;
    }

    /// Gives a value constant contents; its type becomes the tensor's where none was declared.
    pub fn set_constant(&mut self, value: ValueId, tensor: Tensor<'a>) {
        let value = &mut self.values[value.0];
        if !matches!(value.ty, ValueType::Tensor(_)) {
            value.ty = ValueType::Tensor(TensorType {
                element: tensor.element(),
                shape: Some(crate::Shape::fixed(tensor.dims())),
            });
        }
        value.constant = Some(tensor);
    }

    /// Takes a value's constant contents away: from then on it is an outer-scope value, of the type that it had.
    pub fn clear_constant(&mut self, value: ValueId) {
        self.values[value.0].constant = None;
    }

    /// Says that a value is an initializer whose contents this crate does not carry.
    pub fn set_opaque(&mut self, value: ValueId) {
        self.values[value.0].opaque = true;
    }

    /// Appends a graph input.
    pub fn add_input(&mut self, value: ValueId) {
        self.inputs.push(value);
    }

    /// Appends a graph output.
    pub fn add_output(&mut self, value: ValueId) {
        self.outputs.push(value);
    }

    /// Appends `node` with its inputs, outputs and the outer-scope values its bodies read.
    ///
    /// # Errors
    /// [`Error::Graph`] if an output already has a producer: ONNX graphs are in single-assignment form.
    pub fn add_node(
        &mut self,
        mut node: Node<'a>,
        inputs: Vec<Option<ValueId>>,
        outputs: Vec<Option<ValueId>>,
        implicit: Vec<ValueId>,
    ) -> Result<NodeId, Error> {
        let id = NodeId(self.nodes.len());
        for (index, output) in outputs.iter().enumerate() {
            let Some(output) = output else { continue };
            let value = &mut self.values[output.0];
            if value.producer.is_some() {
                return Err(Error::Graph(format!("two nodes make the value '{}'", value.name)));
            }
            value.producer = Some((id, index));
        }
        (node.inputs, node.outputs, node.implicit) = (inputs, outputs, implicit);
        let reads = node.inputs.iter().copied().chain(node.implicit.iter().copied().map(Some));
        for (index, input) in reads.enumerate() {
            if let Some(input) = input {
                self.values[input.0].uses.push(Use { node: id, index });
            }
        }
        self.nodes.push(node);
        Ok(id)
    }

    /// The nodes, in the order they were added, without those that were removed.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node<'a>)> {
        self.nodes.iter().enumerate().filter(|(_, n)| !n.removed).map(|(i, n)| (NodeId(i), n))
    }

    /// How many nodes were ever added: every [`NodeId`] of this graph is below it.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node<'a> {
        &self.nodes[id.0]
    }

    /// The values, in the order they were first mentioned.
    pub fn values(&self) -> impl ExactSizeIterator<Item = (ValueId, &Value<'a>)> {
        self.values.iter().enumerate().map(|(i, v)| (ValueId(i), v))
    }

    /// How many values there are.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// One value.
    pub fn value(&self, id: ValueId) -> &Value<'a> {
        &self.values[id.0]
    }

    /// Graph inputs, in order.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// Graph outputs, in order.
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// Values that the graph reads but neither declares nor makes: names of an outer scope. Linear in the graph's size.
    pub fn outer_values(&self) -> impl Iterator<Item = ValueId> + '_ {
        let mut free: Vec<bool> = self
            .values
            .iter()
            .map(|v| v.producer.is_none() && !v.is_initializer() && !v.uses.is_empty())
            .collect();
        for output in &self.outputs {
            let value = self.value(*output);
            free[output.0] = value.producer.is_none() && !value.is_initializer();
        }
        for input in &self.inputs {
            free[input.0] = false;
        }
        free.into_iter().enumerate().filter_map(|(i, free)| free.then_some(ValueId(i)))
    }

    /// The outer-scope values that the bodies of `node` read, as values of this graph: what [`Graph::add_node`] takes
    /// as `implicit`. Each is there once, in order of first mention.
    pub fn capture(&mut self, node: &Node<'a>) -> Vec<ValueId> {
        let mut captured = Vec::new();
        let mut seen = HashSet::new();
        for (_, body) in node.bodies() {
            for outer in body.outer_values() {
                let id = self.value_named(&body.value(outer).name);
                if seen.insert(id) {
                    captured.push(id);
                }
            }
        }
        captured
    }

    /// Checks that no value has two origins: each is at most one of an input, an initializer and a node's output.
    ///
    /// # Errors
    /// [`Error::Graph`] naming the first value that has two.
    pub fn check(&self) -> Result<(), Error> {
        let mut origins: Vec<usize> = self
            .values
            .iter()
            .map(|v| usize::from(v.producer.is_some()) + usize::from(v.is_initializer()))
            .collect();
        for input in &self.inputs {
            origins[input.0] += 1;
        }
        match origins.iter().position(|&n| n > 1) {
            Some(i) => Err(Error::Graph(format!("the value '{}' is defined twice", self.values[i].name))),
            None => Ok(()),
        }
    }
}
