//! Builds graphs in a few lines, for tests and rewrites.

use crate::{Attribute, Dim, ElementType, Error, Graph, Node, Shape, Tensor, TensorType, ValueId, ValueType};

/// Builds a [`Graph`]. Mistakes are kept until [`GraphBuilder::build`] reports the first.
///
/// ```
/// use onnx_graph::{ElementType, GraphBuilder, Tensor};
///
/// let mut b = GraphBuilder::new("g", 17);
/// let x = b.input("x", ElementType::Float, &["N".into(), 3.into()]);
/// let two = b.initializer("two", Tensor::scalar(2.0));
/// let y = b.node("Mul", &[Some(x), Some(two)]).output();
/// let z = b.node("Softmax", &[Some(y)]).attr("axis", -1).output_as("z");
/// b.output(z);
/// let graph = b.build()?;
/// assert_eq!(graph.node_count(), 2);
/// # Ok::<(), onnx_graph::Error>(())
/// ```
#[derive(Debug)]
pub struct GraphBuilder<'a> {
    graph: Graph<'a>,
    opset: i64,
    error: Option<Error>,
}

impl<'a> GraphBuilder<'a> {
    /// An empty graph whose ai.onnx nodes follow `opset`.
    pub fn new(name: impl Into<String>, opset: i64) -> Self {
        Self { graph: Graph::new(name), opset, error: None }
    }

    /// Appends a tensor input.
    pub fn input(&mut self, name: &str, element: ElementType, dims: &[Dim]) -> ValueId {
        self.input_of(name, tensor_type(element, dims))
    }

    /// Appends an input of any type.
    pub fn input_of(&mut self, name: &str, ty: ValueType) -> ValueId {
        let value = self.graph.value_named(name);
        self.graph.set_type(value, ty);
        self.graph.add_input(value);
        value
    }

    /// Adds a constant.
    pub fn initializer(&mut self, name: &str, tensor: Tensor<'a>) -> ValueId {
        let value = self.graph.value_named(name);
        self.graph.set_constant(value, tensor);
        value
    }

    /// A value of the outer scope, for bodies: `name` is its name there.
    pub fn outer(&mut self, name: &str) -> ValueId {
        self.graph.value_named(name)
    }

    /// Starts a node of ai.onnx; [`NodeBuilder::output`] or one of its siblings ends it. `None` leaves an optional
    /// input out.
    pub fn node(&mut self, op_type: &str, inputs: &[Option<ValueId>]) -> NodeBuilder<'_, 'a> {
        let node = Node::new(op_type, self.opset);
        NodeBuilder { builder: self, node, inputs: inputs.to_vec() }
    }

    /// Declares the tensor type of a value.
    pub fn declare(&mut self, value: ValueId, element: ElementType, dims: &[Dim]) {
        self.graph.set_type(value, tensor_type(element, dims));
    }

    /// Appends a graph output; its type is what [`GraphBuilder::declare`] said, or unknown.
    pub fn output(&mut self, value: ValueId) {
        self.graph.add_output(value);
    }

    /// The graph.
    ///
    /// # Errors
    /// [`Error::Graph`] if a value was defined twice.
    pub fn build(self) -> Result<Graph<'a>, Error> {
        match self.error {
            Some(error) => Err(error),
            None => self.graph.check().map(|()| self.graph),
        }
    }
}

fn tensor_type(element: ElementType, dims: &[Dim]) -> ValueType {
    ValueType::Tensor(TensorType { element, shape: Some(Shape(dims.to_vec())) })
}

/// A node under construction; made by [`GraphBuilder::node`].
#[derive(Debug)]
#[must_use = "the node is added when its outputs are asked for"]
pub struct NodeBuilder<'b, 'a> {
    builder: &'b mut GraphBuilder<'a>,
    node: Node<'a>,
    inputs: Vec<Option<ValueId>>,
}

impl<'a> NodeBuilder<'_, 'a> {
    /// Sets an attribute. What a graph reads from outside becomes an implicit input of the node.
    pub fn attr(mut self, name: &str, value: impl Into<Attribute<'a>>) -> Self {
        self.node.attributes.insert(name.to_owned(), value.into());
        self
    }

    /// Names the node.
    pub fn name(mut self, name: &str) -> Self {
        self.node.name = name.to_owned();
        self
    }

    /// Takes the operator from `domain` at `version`.
    pub fn domain(mut self, domain: &str, version: i64) -> Self {
        self.node.domain = domain.to_owned();
        self.version(version)
    }

    /// Sets the operator's version.
    pub fn version(mut self, version: i64) -> Self {
        self.node.version = version;
        self
    }

    /// Adds the node with one output, named after the graph and the operator.
    pub fn output(self) -> ValueId {
        let [output] = self.outputs();
        output
    }

    /// Adds the node with `N` outputs, named after the graph and the operator.
    pub fn outputs<const N: usize>(self) -> [ValueId; N] {
        let graph = &mut self.builder.graph;
        // The graph's name keeps a body's names apart from those around it, as ONNX demands.
        let stem = format!("{}/{}{}", graph.name, self.node.op_type, graph.node_count());
        let outputs = std::array::from_fn(|i| graph.value_named(&format!("{stem}.{i}")));
        self.add(outputs.map(Some).to_vec());
        outputs
    }

    /// Adds the node with one output called `name`.
    pub fn output_as(self, name: &str) -> ValueId {
        let output = self.builder.graph.value_named(name);
        self.add(vec![Some(output)]);
        output
    }

    /// Adds the node with outputs of these names; an empty name leaves one out.
    pub fn outputs_as(self, names: &[&str]) -> Vec<Option<ValueId>> {
        let graph = &mut self.builder.graph;
        let outputs: Vec<_> =
            names.iter().map(|name| (!name.is_empty()).then(|| graph.value_named(name))).collect();
        self.add(outputs.clone());
        outputs
    }

    fn add(self, outputs: Vec<Option<ValueId>>) {
        let graph = &mut self.builder.graph;
        let implicit = graph.capture(&self.node);
        if let Err(error) = graph.add_node(self.node, self.inputs, outputs, implicit) {
            self.builder.error.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn links_values_and_nodes() {
        let mut b = GraphBuilder::new("g", 17);
        let x = b.input("x", ElementType::Float, &["N".into(), 8.into()]);
        let k = b.initializer("k", Tensor::from_ints(&[2]));
        let [values, indices] = b.node("TopK", &[Some(x), Some(k)]).attr("axis", -1).outputs();
        let outputs = b.node("Dropout", &[Some(values), None, None]).outputs_as(&["", "mask"]);
        b.output(indices);
        let graph = b.build().unwrap();

        assert_eq!(graph.value(indices).producer(), Some((NodeId(0), 1)));
        assert_eq!(graph.value(x).uses().len(), 1);
        assert_eq!(graph.node(NodeId(1)).inputs(), [Some(values), None, None]);
        assert_eq!(outputs, [None, graph.find_value("mask")]);
        assert_eq!(graph.value(k).tensor_type().unwrap().to_string(), "int64[1]");
        assert_eq!(graph.value(x).tensor_type().unwrap().to_string(), "float[N, 8]");
        assert_eq!(graph.node(NodeId(0)).version, 17);
        assert_eq!(graph.outer_values().count(), 0);
    }

    #[test]
    fn nested_bodies_hand_their_reads_outwards() {
        let mut inner = GraphBuilder::new("inner", 17);
        let (a, b) = (inner.outer("a"), inner.outer("b"));
        let sum = inner.node("Add", &[Some(a), Some(b)]).output();
        inner.output(sum);

        let mut outer = GraphBuilder::new("outer", 17);
        let cond = outer.outer("cond");
        let b = outer.initializer("b", Tensor::scalar(1.0));
        let y = outer.node("If", &[Some(cond)]).attr("then_branch", inner.build().unwrap()).output();
        outer.output(y);
        outer.output(b);

        let mut g = GraphBuilder::new("g", 17);
        let cond = g.input("cond", ElementType::Bool, &[]);
        let a = g.input("a", ElementType::Float, &[]);
        g.node("If", &[Some(cond)]).attr("then_branch", outer.build().unwrap()).output();
        let g = g.build().unwrap();
        assert_eq!(g.node(NodeId(0)).implicit_inputs(), [cond, a]);
        assert_eq!(g.value(cond).uses().len(), 2);
        assert_eq!(g.outer_values().count(), 0);
    }

    #[test]
    fn a_value_defined_twice_is_an_error() {
        let mut b = GraphBuilder::new("g", 17);
        let x = b.input("x", ElementType::Float, &[]);
        b.node("Relu", &[Some(x)]).output_as("y");
        b.node("Relu", &[Some(x)]).output_as("y");
        assert!(b.build().unwrap_err().to_string().contains("'y'"));

        let mut b = GraphBuilder::new("g", 17);
        let x = b.input("x", ElementType::Float, &[]);
        b.node("Relu", &[Some(x)]).output_as("x");
        assert!(b.build().unwrap_err().to_string().contains("'x'"));
    }

    #[test]
    fn a_body_may_return_an_outer_value() {
        let mut b = GraphBuilder::new("body", 17);
        let x = b.outer("x");
        b.output(x);
        let body = b.build().unwrap();
        assert_eq!(body.outer_values().collect::<Vec<_>>(), [x]);
    }
}
