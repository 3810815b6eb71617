//! Ranks that nobody declares because a mask's size is computed: between a product of matrices and one with values, whose
//! result has a known rank, no value can have more axes than the result or fewer than the product.

use onnx_graph::pattern::{Place, Scopes};
use onnx_graph::{Dim, Graph, NodeId, Shape, TensorType, ValueId, ValueType};

use super::flow::readers;
use super::probabilities::{is_question, passes_probabilities};
use super::softmax_at;

/// Declares the ranks around every softmax where they follow.
pub(crate) fn declare(graph: &mut Graph<'_>) {
    let nodes: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
    for id in nodes {
        let Some((values, rank)) = around(graph, id) else { continue };
        for value in values {
            let Some(TensorType { element, shape: None }) = graph.value(value).tensor_type().cloned() else {
                continue;
            };
            let shape = Some(Shape(vec![Dim::Unknown; rank]));
            graph.set_type(value, ValueType::Tensor(TensorType { element, shape }));
        }
    }
}

/// The values around a softmax that all have this rank.
fn around(graph: &Graph<'_>, id: NodeId) -> Option<(Vec<ValueId>, usize)> {
    let scopes = Scopes::new(graph);
    let at = |value| Place { depth: 0, value };
    let softmax = softmax_at(graph, id)?;
    let probabilities = softmax.node.outputs().first().copied().flatten()?;
    let mut values = vec![probabilities];
    for used in graph.value(probabilities).uses() {
        if matches!(graph.node(used.node).op_type.as_str(), "IsNaN" | "Where") {
            values.extend(graph.node(used.node).outputs().iter().flatten());
        }
    }
    let readers = readers(graph, probabilities, &passes_probabilities)?;
    let mut readers = readers.iter().filter(|used| !is_question(graph.node(used.node)));
    let reader =
        readers.next().filter(|used| graph.node(used.node).op_type == "MatMul" && used.index == 0)?;
    let node = graph.node(reader.node);
    let (v, y) = (node.inputs().get(1).copied().flatten()?, node.outputs().first().copied().flatten()?);
    let rank = scopes.rank(at(v))?;
    let permuted = |value: ValueId| {
        let transposes = graph.value(value).uses().iter().map(|used| graph.node(used.node));
        transposes.filter(|node| node.op_type == "Transpose").find_map(|node| {
            match node.attributes.get("perm") {
                Some(onnx_graph::Attribute::Ints(perm)) => Some(perm.len()),
                _ => None,
            }
        })
    };
    if scopes.rank(at(y)).or_else(|| permuted(y)) != Some(rank) {
        return None;
    }
    values.push(y);
    let scores = softmax.input(0)?;
    (reaches(&scopes, scores, rank, &mut values, 0)).then_some((values, rank))
}

/// Whether `place` has at least as many axes as a product of `rank` axes behind it; `values` gets those on the way.
fn reaches(
    scopes: &Scopes<'_, '_>,
    place: Place,
    rank: usize,
    values: &mut Vec<ValueId>,
    depth: usize,
) -> bool {
    if let Some(known) = scopes.rank(place) {
        return known == rank;
    }
    let Some(maker) = scopes.maker(place).filter(|_| depth < 8) else { return false };
    let inputs = (0..maker.node.inputs().len()).filter_map(|i| maker.input(i));
    let found = match maker.node.op_type.as_str() {
        "MatMul" => inputs.filter_map(|input| scopes.rank(input)).max() == Some(rank),
        "Add" | "Mul" | "Div" | "Where" => {
            inputs.into_iter().any(|input| reaches(scopes, input, rank, values, depth + 1))
        }
        _ => false,
    };
    if found {
        values.push(place.value);
    }
    found
}
