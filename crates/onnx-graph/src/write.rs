//! Writes a graph as the bytes of a `.onnx` file.

use std::collections::{BTreeMap, HashSet};

use prost::Message;

use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto, kind,
};
use crate::{Attribute, Graph, Node, Tensor, ValueId, topological_order, types};

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
    let order = topological_order(graph).unwrap_or_else(|_| graph.nodes().map(|(id, _)| id).collect());
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::NodeId;
    use crate::{ElementType, GraphBuilder, ValueType, read_bytes};

    fn body(name: &str) -> Graph<'static> {
        let mut b = GraphBuilder::new(name, 17);
        let x = b.outer("x");
        let y = b.node("Neg", &[Some(x)]).output();
        b.declare(y, ElementType::Float16, &["N".into()]);
        b.output(y);
        b.build().unwrap()
    }

    #[test]
    fn every_kind_of_attribute_survives() {
        let mut b = GraphBuilder::new("g", 17);
        let x = b.input("x", ElementType::Float16, &["N".into()]);
        let bodies = vec![Arc::new(body("first")), Arc::new(body("second"))];
        let y = b
            .node("Odd", &[None, Some(x)])
            .domain("com.example", 2)
            .name("odd")
            .attr("float", f32::MIN_POSITIVE)
            .attr("int", 0)
            .attr("string", "")
            .attr("tensor", Tensor::from_ints(&[]))
            .attr("graph", body("third"))
            .attr("floats", vec![0.5f32, f32::INFINITY])
            .attr("ints", vec![i64::MIN, -1])
            .attr("strings", vec!["", "ü"])
            .attr("tensors", Attribute::Tensors(vec![Tensor::scalar(1.0), Tensor::from_ints(&[2])]))
            .attr("graphs", Attribute::Graphs(bodies))
            .attr("lost", Attribute::Other("TYPE_PROTO"))
            .output();
        b.output(y);
        let graph = b.build().unwrap();
        let opsets = BTreeMap::from([(String::new(), 17), ("com.example".to_owned(), 2)]);
        let read = read_bytes(&write_bytes(&graph, &opsets, 10)).unwrap();

        assert_eq!(read.opsets, opsets);
        let (wrote, read) = (graph.node(NodeId(0)), read.graph.node(NodeId(0)));
        assert_eq!((&read.name, &read.domain, read.version), (&wrote.name, &wrote.domain, 2));
        assert_eq!(read.inputs(), [None, Some(x)]);
        assert_eq!(read.implicit_inputs(), [x]);
        assert_eq!(read.attributes.len(), wrote.attributes.len() - 1);
        for (name, attribute) in &read.attributes {
            // A graph holds maps, whose order varies: bodies are compared below.
            if !name.starts_with("graph") {
                assert_eq!(format!("{attribute:?}"), format!("{:?}", wrote.attributes[name]));
            }
        }
        let bodies: Vec<_> = read.bodies().map(|(_, g)| g).collect();
        assert_eq!(bodies.iter().map(|g| g.name.as_str()).collect::<Vec<_>>(), ["third", "first", "second"]);
        for body in bodies {
            let output = body.value(body.outputs()[0]);
            assert_eq!(output.tensor_type().unwrap().to_string(), "float16[N]");
            assert_eq!(body.node(NodeId(0)).op_type, "Neg");
        }
    }

    #[test]
    fn types_of_inputs_outputs_and_inner_values_survive() {
        let mut b = GraphBuilder::new("g", 17);
        let sequence = ValueType::Other("seq(tensor(int64))".to_owned());
        let x = b.input_of("x", sequence.clone());
        let i = b.initializer("i", Tensor::from_ints(&[0]));
        let inner = b.node("SequenceAt", &[Some(x), Some(i)]).output();
        b.declare(inner, ElementType::Int64, &["M".into(), 4.into()]);
        let y = b.node("Abs", &[Some(inner)]).output();
        b.output(y);
        let graph = b.build().unwrap();
        let read =
            read_bytes(&write_bytes(&graph, &BTreeMap::from([(String::new(), 17)]), 10)).unwrap().graph;
        for (_, value) in graph.values() {
            let same = read.value(read.find_value(&value.name).unwrap());
            assert_eq!((&same.ty, &same.constant), (&value.ty, &value.constant), "{}", value.name);
        }
    }
}
