//! Where a spelling ends: the values furthest down that still mean the operator.

use onnx_graph::{Graph, Node, Use, ValueId};

/// Operators that a spelling may go on with.
const ARITHMETIC: &[&str] =
    &["Add", "Cast", "CastLike", "Concat", "Div", "Identity", "Mul", "Neg", "Reciprocal", "Sub", "Sum"];

/// Past this many steps down, a value is no part of a spelling.
const DEEPEST: usize = 10;
/// Past this many values looked at, there is none.
const MOST: usize = 64;

/// What a value may be.
pub(super) enum Role {
    /// What the operator means.
    Whole,
    /// Something on the way that the operator can give beside it.
    Extra,
}

/// The values below `from` that the operator makes, as `role` says: the furthest that mean it, and on the way to them what
/// else is read and it can give. `None` unless they are all that needs `from`: a spelling of which another part is read
/// elsewhere, as in gradients, is computed anyway.
pub(super) fn roots(
    graph: &Graph<'_>,
    from: ValueId,
    role: &dyn Fn(ValueId) -> Option<Role>,
) -> Option<Vec<ValueId>> {
    let mut search = Search { graph, role, left: MOST };
    let mut found = search.below(from, DEEPEST)?;
    found.sort_unstable();
    found.dedup();
    Some(found)
}

struct Search<'g, 'a> {
    graph: &'g Graph<'a>,
    role: &'g dyn Fn(ValueId) -> Option<Role>,
    left: usize,
}

impl Search<'_, '_> {
    fn below(&mut self, value: ValueId, depth: usize) -> Option<Vec<ValueId>> {
        self.left = self.left.checked_sub(1)?;
        let of_readers: Vec<_> = match depth {
            0 => Vec::new(),
            _ => self.graph.value(value).uses().iter().map(|used| self.of_reader(used, depth)).collect(),
        };
        let all = of_readers.iter().all(Option::is_some) && !self.graph.outputs().contains(&value);
        let found: Vec<ValueId> = of_readers.into_iter().flatten().flatten().collect();
        if all && !found.is_empty() {
            return Some(found);
        }
        match (self.role)(value)? {
            Role::Whole => Some(vec![value]),
            Role::Extra if found.is_empty() => None,
            Role::Extra => Some(found.into_iter().chain([value]).collect()),
        }
    }

    /// What lies below a reader.
    fn of_reader(&mut self, used: &Use, depth: usize) -> Option<Vec<ValueId>> {
        let node = self.graph.node(used.node);
        let [Some(output)] = node.outputs() else { return None };
        let goes_on = is_arithmetic(node) && used.index < node.inputs().len();
        if goes_on { self.below(*output, depth - 1) } else { None }
    }
}

fn is_arithmetic(node: &Node<'_>) -> bool {
    node.domain.is_empty() && ARITHMETIC.contains(&node.op_type.as_str())
}
