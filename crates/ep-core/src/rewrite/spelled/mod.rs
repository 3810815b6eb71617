//! Operators that models spell out in smaller ones. A rule looks from the one node that is rarest in its spellings.
//!
//! These rules claim nothing: they apply inside a cluster, to nodes that are taken anyway.

mod activation;
mod conv;
mod marks;
mod norm;
mod operands;
pub(crate) mod polynomial;
mod roots;
mod rotary;
mod sizes;
#[cfg(test)]
mod tests;

use onnx_graph::{Graph, NodeId};

use crate::rewrite::sketch::Replacement;

/// Looks from one node.
pub(super) fn rule<'a>(graph: &Graph<'a>, id: NodeId) -> Option<Replacement<'a>> {
    let node = graph.node(id);
    if !node.domain.is_empty() {
        return None;
    }
    match node.op_type.as_str() {
        "Sqrt" | "Pow" => norm::rule(graph, id),
        "Erf" | "Tanh" | "Sigmoid" | "Clip" | "HardSigmoid" => activation::rule(graph, id),
        "BatchNormalization" | "Mul" | "Add" | "Sub" => conv::rule(graph, id),
        "Concat" => rotary::rule(graph, id),
        _ => None,
    }
}
