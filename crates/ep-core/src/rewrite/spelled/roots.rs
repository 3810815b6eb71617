//! Where a spelling ends: the values furthest down that still mean the operator.

use onnx_graph::{Graph, Node, ValueId};

/// Operators that a spelling may go on with.
const ARITHMETIC: &[&str] =
    &["Add", "Cast", "CastLike", "Concat", "Div", "Identity", "Mul", "Neg", "Reciprocal", "Sub", "Sum"];

/// Past this many steps down, a value is no part of a spelling.
const DEEPEST: usize = 10;
/// Past this many values looked at, there is none.
const MOST: usize = 64;

/// The values below `from` that mean the operator, which is what `means` says. `None` unless they are all that needs
/// `from`: a spelling of which a part is read elsewhere, as in gradients, is computed anyway.
pub(super) fn roots(
    graph: &Graph<'_>,
    from: ValueId,
    means: &dyn Fn(ValueId) -> bool,
) -> Option<Vec<ValueId>> {
    let mut search = Search { graph, means, left: MOST };
    let mut found = search.below(from, DEEPEST)?;
    found.sort_unstable();
    found.dedup();
    Some(found)
}

struct Search<'g, 'a> {
    graph: &'g Graph<'a>,
    means: &'g dyn Fn(ValueId) -> bool,
    left: usize,
}

impl Search<'_, '_> {
    fn below(&mut self, value: ValueId, depth: usize) -> Option<Vec<ValueId>> {
        self.left = self.left.checked_sub(1)?;
        let further = if depth == 0 { None } else { self.of_readers(value, depth) };
        further.or_else(|| (self.means)(value).then(|| vec![value]))
    }

    /// What lies below all readers.
    fn of_readers(&mut self, value: ValueId, depth: usize) -> Option<Vec<ValueId>> {
        let uses = self.graph.value(value).uses();
        if uses.is_empty() || self.graph.outputs().contains(&value) {
            return None;
        }
        let mut found = Vec::new();
        for used in uses {
            let node = self.graph.node(used.node);
            let [Some(output)] = node.outputs() else { return None };
            let goes_on = is_arithmetic(node) && used.index < node.inputs().len();
            found.extend(goes_on.then(|| self.below(*output, depth - 1))??);
        }
        Some(found)
    }
}

fn is_arithmetic(node: &Node<'_>) -> bool {
    node.domain.is_empty() && ARITHMETIC.contains(&node.op_type.as_str())
}
