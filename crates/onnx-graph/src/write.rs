//! Writes a graph as the bytes of a `.onnx` file.

use std::collections::{BTreeMap, HashSet};

use prost::Message;

use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto, kind,
};
use crate::{Attribute, Graph, Node, NodeId, Tensor, ValueId, topological_order, types};

/// A model of `graph` that imports `opsets` (by domain, ai.onnx under the empty name).
///
/// Nodes are written in topological order, bodies and types of inner values included. Initializers whose contents the
/// graph does not carry and attributes of kind [`Attribute::Other`] are left out.
pub fn write_bytes(graph: &Graph<'_>, opsets: &BTreeMap<String, i64>, ir_version: i64) -> Vec<u8> {
    let mut proto = graph_proto(graph);
    if ir_version < 4 {
        // Before IR 4 every initializer was an input as well.
        let initializers = graph.values().filter(|(_, v)| v.constant.is_some());
        proto.input.extend(initializers.map(|(id, _)| value_info(graph, id)));
    }
    let opset =
        |(domain, version): (&String, &i64)| OperatorSetIdProto { domain: domain.clone(), version: *version };
    let model = ModelProto {
        ir_version,
        producer_name: "onnx-graph".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: Some(proto),
        opset_import: opsets.iter().map(opset).collect(),
        functions: Vec::new(),
    };
    model.encode_to_vec()
}

fn graph_proto(graph: &Graph<'_>) -> GraphProto {
    let returned: HashSet<ValueId> = graph.outputs().iter().copied().collect();
    // A cycle cannot be ordered; whoever reads the model will say so.
    let order = topological_order(graph).unwrap_or_else(|_| (0..graph.node_count()).map(NodeId).collect());
    let inner = graph.values().filter(|(id, v)| {
        v.producer().is_some() && types::to_proto(&v.ty).is_some() && !returned.contains(id)
    });
    GraphProto {
        name: graph.name.clone(),
        node: order.into_iter().map(|id| node_proto(graph, graph.node(id))).collect(),
        initializer: graph
            .values()
            .filter_map(|(_, v)| v.constant.as_ref().map(|tensor| tensor_proto(&v.name, tensor)))
            .collect(),
        sparse_initializer: Vec::new(),
        input: graph.inputs().iter().map(|&id| value_info(graph, id)).collect(),
        output: graph.outputs().iter().map(|&id| value_info(graph, id)).collect(),
        value_info: inner.map(|(id, _)| value_info(graph, id)).collect(),
    }
}

fn value_info(graph: &Graph<'_>, id: ValueId) -> ValueInfoProto {
    let value = graph.value(id);
    ValueInfoProto { name: value.name.clone(), r#type: types::to_proto(&value.ty) }
}

fn node_proto(graph: &Graph<'_>, node: &Node<'_>) -> NodeProto {
    let names = |values: &[Option<ValueId>]| {
        values.iter().map(|v| v.map_or(String::new(), |v| graph.value(v).name.clone())).collect()
    };
    NodeProto {
        input: names(node.inputs()),
        output: names(node.outputs()),
        name: node.name.clone(),
        op_type: node.op_type.clone(),
        attribute: node.attributes.iter().filter_map(|(name, a)| attribute_proto(name, a)).collect(),
        domain: node.domain.clone(),
        overload: String::new(),
    }
}

fn attribute_proto(name: &str, attribute: &Attribute<'_>) -> Option<AttributeProto> {
    use Attribute as A;
    let mut proto = AttributeProto { name: name.to_owned(), ..Default::default() };
    proto.r#type = match attribute {
        A::Float(v) => {
            proto.f = Some(*v);
            kind::FLOAT
        }
        A::Int(v) => {
            proto.i = Some(*v);
            kind::INT
        }
        A::String(v) => {
            proto.s = Some(v.clone());
            kind::STRING
        }
        A::Tensor(v) => {
            proto.t = Some(Box::new(tensor_proto("", v)));
            kind::TENSOR
        }
        A::Graph(v) => {
            proto.g = Some(Box::new(graph_proto(v)));
            kind::GRAPH
        }
        A::Floats(v) => {
            proto.floats = v.clone();
            kind::FLOATS
        }
        A::Ints(v) => {
            proto.ints = v.clone();
            kind::INTS
        }
        A::Strings(v) => {
            proto.strings = v.clone();
            kind::STRINGS
        }
        A::Tensors(v) => {
            proto.tensors = v.iter().map(|t| tensor_proto("", t)).collect();
            kind::TENSORS
        }
        A::Graphs(v) => {
            proto.graphs = v.iter().map(|g| graph_proto(g)).collect();
            kind::GRAPHS
        }
        A::Other(_) => return None,
    };
    Some(proto)
}

fn tensor_proto(name: &str, tensor: &Tensor<'_>) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        // Only a tensor without elements can have a size beyond `i64`.
        dims: tensor.dims().iter().map(|&d| i64::try_from(d).unwrap_or(i64::MAX)).collect(),
        data_type: tensor.element().onnx(),
        raw_data: Some(tensor.data().to_vec()),
        ..Default::default()
    }
}
