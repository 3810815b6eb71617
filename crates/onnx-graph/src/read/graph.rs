//! Graphs, nodes and attributes.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::{Reader, domain, function::Frame, tensor};
use crate::proto::{
    AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto, kind,
};
use crate::{
    Attribute, ElementType, Error, Graph, Node, Shape, Tensor, TensorType, ValueId, ValueType, types,
};

impl Reader<'_> {
    /// The graph of `proto`. What it reads from outside, if it is a body, stays free.
    pub fn graph(&self, proto: GraphProto, frame: &Frame<'_>) -> Result<Graph<'static>, Error> {
        let mut graph = Graph::new(proto.name);
        let initialized: HashSet<&str> = proto.initializer.iter().map(|t| t.name.as_str()).collect();
        for input in &proto.input {
            let value = graph.value_named(&frame.resolve(&input.name));
            // Before IR 4 an initializer had to be an input too, and was constant all the same.
            if self.ir_version >= 4 || !initialized.contains(input.name.as_str()) {
                graph.add_input(value);
            }
        }
        self.declare_all(&mut graph, &proto.input, frame);
        let inputs: HashSet<ValueId> = graph.inputs().iter().copied().collect();
        for tensor in proto.initializer {
            let value = graph.value_named(&frame.resolve(&tensor.name));
            if !inputs.contains(&value) {
                self.initializer(&mut graph, value, tensor)?;
            }
        }
        for sparse in proto.sparse_initializer {
            sparse_initializer(&mut graph, sparse, &inputs, frame)?;
        }
        for node in proto.node {
            self.node(&mut graph, node, frame)?;
        }
        for output in &proto.output {
            let value = graph.value_named(&frame.resolve(&output.name));
            graph.add_output(value);
        }
        self.declare_all(&mut graph, &proto.output, frame);
        self.declare_all(&mut graph, &proto.value_info, frame);
        graph.check()?;
        Ok(graph)
    }

    /// Declares the types of those values that the graph has and no type is known of.
    pub fn declare_all(&self, graph: &mut Graph<'static>, infos: &[ValueInfoProto], frame: &Frame<'_>) {
        for info in infos {
            let (Some(ty), Some(value)) = (&info.r#type, graph.find_value(&frame.resolve(&info.name))) else {
                continue;
            };
            if graph.value(value).ty == ValueType::Unknown {
                graph.set_type(value, types::from_proto(ty));
            }
        }
    }

    fn initializer(
        &self,
        graph: &mut Graph<'static>,
        value: ValueId,
        proto: TensorProto,
    ) -> Result<(), Error> {
        let (number, dims) = (proto.data_type, tensor::sizes(&proto.dims));
        let name = proto.name.clone();
        let tensor = tensor::tensor(proto, self.folder)?;
        if name.is_empty() || graph.value(value).is_initializer() {
            return Err(Error::Graph(format!("an initializer without a name of its own: '{name}'")));
        }
        let declared = graph.value(value).tensor_type().map(|t| t.element);
        if let Some(declared) = declared.filter(|d| d.onnx() != number) {
            return Err(Error::Graph(format!("the initializer '{name}' is declared as {declared}")));
        }
        match tensor {
            Some(tensor) => graph.set_constant(value, tensor),
            None => opaque(graph, value, number, dims?),
        }
        Ok(())
    }

    /// Adds the node of `proto`, or what it stands for if it calls a function.
    pub fn node(&self, graph: &mut Graph<'static>, proto: NodeProto, frame: &Frame<'_>) -> Result<(), Error> {
        if let Some(function) = self.functions.called_by(&proto) {
            return self.inline(graph, function, proto, frame);
        }
        let domain = domain(&proto.domain);
        let version = frame.opsets.get(domain).ok_or_else(|| {
            let domain = if domain.is_empty() { "ai.onnx" } else { domain };
            Error::Graph(format!(
                "the {} node '{}' is of {domain}, of which the model imports no version",
                proto.op_type, proto.name
            ))
        })?;
        let mut node = Node::new(proto.op_type, *version);
        node.domain = domain.to_owned();
        node.name = frame.resolve(&proto.name).into_owned();
        self.attributes(&mut node.attributes, proto.attribute, frame)?;
        let mut values = |names: &[String]| names.iter().map(|n| value(graph, &frame.resolve(n))).collect();
        let (inputs, outputs) = (values(&proto.input), values(&proto.output));
        let implicit = graph.capture(&node);
        graph.add_node(node, inputs, outputs, implicit)?;
        Ok(())
    }

    /// Adds the attributes of `protos` to `attributes`, in place of those with the same name.
    pub fn attributes(
        &self,
        attributes: &mut BTreeMap<String, Attribute<'static>>,
        protos: Vec<AttributeProto>,
        frame: &Frame<'_>,
    ) -> Result<(), Error> {
        for mut proto in protos {
            let name = std::mem::take(&mut proto.name);
            let attribute = if proto.ref_attr_name.is_empty() {
                Some(self.attribute(&name, proto, frame)?)
            } else {
                let argument = frame.argument(&proto.ref_attr_name)?;
                self.charge(argument.map_or(0, size))?;
                argument.cloned()
            };
            if let Some(attribute) = attribute {
                attributes.insert(name, attribute);
            }
        }
        Ok(())
    }

    fn attribute(
        &self,
        name: &str,
        proto: AttributeProto,
        frame: &Frame<'_>,
    ) -> Result<Attribute<'static>, Error> {
        use Attribute as A;
        let missing = || Error::Graph(format!("the attribute '{name}' has no value"));
        let graph = |g| Ok::<_, Error>(Arc::new(self.graph(g, &frame.body()?)?));
        Ok(match kind_of(&proto) {
            kind::FLOAT => A::Float(proto.f.unwrap_or_default()),
            kind::INT => A::Int(proto.i.unwrap_or_default()),
            kind::STRING => A::String(proto.s.unwrap_or_default()),
            kind::TENSOR => match tensor::tensor(*proto.t.ok_or_else(missing)?, self.folder)? {
                Some(tensor) => A::Tensor(tensor),
                None => A::Other("TENSOR of strings or of a newer type"),
            },
            kind::GRAPH => A::Graph(graph(*proto.g.ok_or_else(missing)?)?),
            kind::FLOATS => A::Floats(proto.floats),
            kind::INTS => A::Ints(proto.ints),
            kind::STRINGS => A::Strings(proto.strings),
            kind::TENSORS => {
                let tensors: Result<Option<Vec<Tensor<'static>>>, Error> =
                    proto.tensors.into_iter().map(|t| tensor::tensor(t, self.folder)).collect();
                tensors?.map_or(A::Other("TENSORS of strings or of a newer type"), A::Tensors)
            }
            kind::GRAPHS => A::Graphs(proto.graphs.into_iter().map(graph).collect::<Result<_, _>>()?),
            kind::SPARSE_TENSOR => A::Other("SPARSE_TENSOR"),
            kind::SPARSE_TENSORS => A::Other("SPARSE_TENSORS"),
            kind::TYPE_PROTO => A::Other("TYPE_PROTO"),
            kind::TYPE_PROTOS => A::Other("TYPE_PROTOS"),
            0 => return Err(missing()),
            other => {
                return Err(Error::Graph(format!("the attribute '{name}' is of the unknown kind {other}")));
            }
        })
    }
}

/// The kind of an attribute: the one it states, or for models older than that field the one it has a value of.
fn kind_of(proto: &AttributeProto) -> i32 {
    let held = [
        (proto.f.is_some(), kind::FLOAT),
        (proto.i.is_some(), kind::INT),
        (proto.s.is_some(), kind::STRING),
        (proto.t.is_some(), kind::TENSOR),
        (proto.g.is_some(), kind::GRAPH),
        (!proto.floats.is_empty(), kind::FLOATS),
        (!proto.ints.is_empty(), kind::INTS),
        (!proto.strings.is_empty(), kind::STRINGS),
        (!proto.tensors.is_empty(), kind::TENSORS),
        (!proto.graphs.is_empty(), kind::GRAPHS),
    ];
    match proto.r#type {
        0 => held.iter().find(|(held, _)| *held).map_or(0, |&(_, kind)| kind),
        stated => stated,
    }
}

/// The bytes that a copy of `attribute` takes; bodies are shared.
fn size(attribute: &Attribute<'_>) -> usize {
    match attribute {
        Attribute::Tensor(t) => t.data().len(),
        Attribute::Tensors(ts) => ts.iter().map(|t| t.data().len() + 64).sum(),
        Attribute::String(s) => s.len(),
        Attribute::Strings(ss) => ss.iter().map(|s| s.len() + 24).sum(),
        Attribute::Floats(fs) => 4 * fs.len(),
        Attribute::Ints(is) => 8 * is.len(),
        Attribute::Graphs(gs) => 8 * gs.len(),
        Attribute::Float(_) | Attribute::Int(_) | Attribute::Graph(_) | Attribute::Other(_) => 0,
    }
}

/// The value called `name`; `None` where the name is empty, which leaves an optional one out.
pub fn value(graph: &mut Graph<'static>, name: &str) -> Option<ValueId> {
    (!name.is_empty()).then(|| graph.value_named(name))
}

fn sparse_initializer(
    graph: &mut Graph<'static>,
    proto: SparseTensorProto,
    inputs: &HashSet<ValueId>,
    frame: &Frame<'_>,
) -> Result<(), Error> {
    let values =
        proto.values.ok_or_else(|| Error::Tensor("a sparse initializer without values".to_owned()))?;
    let value = graph.value_named(&frame.resolve(&values.name));
    if !inputs.contains(&value) {
        opaque(graph, value, values.data_type, tensor::sizes(&proto.dims)?);
    }
    Ok(())
}

/// Makes `value` an initializer of this type whose contents are not carried.
fn opaque(graph: &mut Graph<'static>, value: ValueId, element: i32, dims: Vec<usize>) {
    let ty = match ElementType::from_onnx(element) {
        Some(element) => ValueType::Tensor(TensorType { element, shape: Some(Shape::fixed(&dims)) }),
        None => ValueType::Other(format!("tensor({element})")),
    };
    graph.set_type(value, ty);
    graph.set_opaque(value);
}
