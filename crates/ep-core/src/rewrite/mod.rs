//! Rules that replace many nodes by one with a kernel of its own. A rule looks at a graph from one node and draws a
//! replacement ([`sketch`]); one that an operator would decline is dropped, and the graph stays as it was.
//!
//! Rules recognise by meaning: [`view`] says what axes are, [`product`] what a value is made of, [`affine`] proves a
//! recurrence linear.

mod affine;
mod attention;
mod body;
mod contraction;
mod draw;
mod fuse;
mod grown;
mod linear;
mod loops;
mod outer;
mod product;
mod rank;
mod scan;
mod selective;
mod shapes;
mod size;
pub(crate) mod sketch;
mod spelled;
mod stack;
#[cfg(test)]
mod tests;
mod unrolled;
mod view;

use std::sync::Arc;

use mlx_safe::DeviceType;
use onnx_graph::{Attribute, Graph, NodeId, topological_order};

use crate::{Error, NodeRef, registry};
use sketch::Replacement;

/// Nodes that run as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fused {
    /// What stands for them.
    pub(crate) operator: &'static str,
    /// Whether it is worth claiming them for it. Else they only run so where they are claimed.
    pub(crate) claims: bool,
    /// The nodes of the graph as it was, in order; for what runs in a body, the node that has the body.
    pub(crate) nodes: Vec<NodeId>,
}

/// The kernel that runs an operator of a rule on the current stream, as traces name it.
pub(crate) fn kernel(operator: &'static str) -> String {
    let name = match operator {
        selective::OPERATOR => kernels_metal::selective_scan::SelectiveScan::default().kernel(),
        linear::OPERATOR => kernels_metal::linear_scan::LinearScan::default().kernel(),
        attention::FORWARD => attention::kernel("attention"),
        attention::BACKWARD => attention::kernel("attention_grad"),
        _ => Ok(operator.to_owned()),
    };
    name.unwrap_or_else(|_| operator.to_owned())
}

/// Which rules are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Those of recurrences.
    pub(crate) selective_scan: bool,
    /// Those of operators that models spell out.
    pub(crate) spelled: bool,
}

/// Looks from one node.
type Rule = for<'g, 'a> fn(&'g Graph<'a>, NodeId) -> Option<Replacement<'a>>;

/// Applies the rules wherever they fit. Says which of the nodes that `graph` had went into which kernel.
///
/// # Errors
/// If `graph` has a cycle.
pub(crate) fn apply(graph: &mut Graph<'_>, rules: Rules, device: DeviceType) -> Result<Vec<Fused>, Error> {
    let mut rewriter = Rewriter { count: graph.node_count(), device, fused: Vec::new(), claims: true };
    if rules.selective_scan {
        rewriter.everywhere(graph, fuse::selective_scan)?;
        rewriter.everywhere(graph, fuse::looped)?;
        for id in topological_order(graph)? {
            if linear::scan(graph, id, device) {
                rewriter.fused.push(Fused { operator: linear::OPERATOR, claims: true, nodes: vec![id] });
            }
        }
        for chain in unrolled::chains(graph) {
            let replacement = unrolled::fuse(graph, &chain);
            rewriter.put(graph, replacement);
        }
    }
    if rules.spelled {
        rewriter.claims = false;
        shapes::declare(graph)?;
        attention::declare(graph);
        // The pullback first: probabilities that it reads are not attention's alone.
        rewriter.everywhere(graph, attention::pullback)?;
        rewriter.everywhere(graph, attention::attention)?;
        rewriter.everywhere(graph, spelled::rule)?;
    }
    rewriter.bodies(graph, rules)?;
    Ok(rewriter.fused)
}

/// Whether the node that stands alone in `graph` may be replaced, depending on what is around it.
pub(crate) fn may_fit(graph: &Graph<'_>, rules: Rules) -> bool {
    rules.selective_scan && fuse::may_be_selective(graph)
}

/// Puts replacements into a graph and keeps account.
struct Rewriter {
    /// How many nodes the graph had.
    count: usize,
    device: DeviceType,
    fused: Vec<Fused>,
    /// Whether what is put in place of nodes is worth claiming them.
    claims: bool,
}

impl Rewriter {
    fn everywhere(&mut self, graph: &mut Graph<'_>, rule: Rule) -> Result<(), Error> {
        for id in topological_order(graph)? {
            if !graph.is_removed(id) {
                self.put(graph, rule(graph, id));
            }
        }
        Ok(())
    }

    /// Applies the rules inside the bodies of what is left.
    fn bodies(&mut self, graph: &mut Graph<'_>, rules: Rules) -> Result<(), Error> {
        let bodies: Vec<(NodeId, String)> = (graph.nodes())
            .flat_map(|(id, node)| node.bodies().map(move |(name, _)| (id, name.to_owned())))
            .collect();
        for (id, name) in bodies {
            let Some(Attribute::Graph(body)) = graph.node(id).attributes.get(&name).cloned() else {
                continue;
            };
            let mut rewritten = body.as_ref().clone();
            let lent = outer::lend(graph, &mut rewritten);
            let fused = apply(&mut rewritten, rules, self.device)?;
            outer::take_back(&mut rewritten, &lent);
            if fused.is_empty() {
                continue;
            }
            graph.attributes_mut(id).insert(name.clone(), Attribute::Graph(Arc::new(rewritten)));
            // What was accepted of constants has to be accepted of other values too.
            if registry::claim(&NodeRef::new(graph, id, self.device)).is_err() {
                graph.attributes_mut(id).insert(name, Attribute::Graph(body));
            } else if id.0 < self.count {
                // The node is taken with its bodies or not at all.
                self.fused.extend(fused.into_iter().map(|f| Fused { claims: false, nodes: vec![id], ..f }));
            }
        }
        Ok(())
    }

    fn put<'a>(&mut self, graph: &mut Graph<'a>, replacement: Option<Replacement<'a>>) {
        let Some(replacement) = replacement else { return };
        let operator = replacement.operator;
        if let Some(mut nodes) = replacement.apply(graph, self.device) {
            nodes.retain(|node| node.0 < self.count);
            tracing::debug!("{} nodes of '{}' run as {operator}", nodes.len(), graph.name);
            self.fused.push(Fused { operator, claims: self.claims, nodes });
        }
    }
}
