//! Where a value goes: its readers behind everything that passes it on.

use onnx_graph::pattern::Maker;
use onnx_graph::{Graph, Use, ValueId};

/// Whether a node passes its input `index` on, as far as the reader is told.
pub(crate) type Passes<'p> = dyn Fn(&Maker<'_, '_>, usize) -> bool + 'p;

/// The readers of `value` behind nodes that pass it on; `None` if it leaves the graph, or is a body's to read.
pub(crate) fn readers(graph: &Graph<'_>, value: ValueId, passes: &Passes<'_>) -> Option<Vec<Use>> {
    let mut found = Vec::new();
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        if graph.outputs().contains(&value) {
            return None;
        }
        for used in graph.value(value).uses() {
            let node = graph.node(used.node);
            if used.index >= node.inputs().len() {
                return None;
            }
            let maker = Maker { depth: 0, id: used.node, node, output: 0 };
            match node.outputs() {
                [Some(output)] if rearranges(&maker, used.index) || passes(&maker, used.index) => {
                    left.push(*output);
                }
                _ => found.push(*used),
            }
        }
    }
    Some(found)
}

/// Whether a node is one that views move through.
fn rearranges(maker: &Maker<'_, '_>, index: usize) -> bool {
    const OPS: &[&str] =
        &["Cast", "CastLike", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"];
    index == 0 && OPS.contains(&maker.node.op_type.as_str()) && maker.is(&maker.node.op_type)
}
