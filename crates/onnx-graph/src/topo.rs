//! Topological order.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{Error, Graph, NodeId};

/// The nodes in an order in which each comes after those whose values it reads, its bodies' reads included. Among the
/// nodes that could come next, the one added first does, so an ordered graph keeps its order.
///
/// # Errors
/// [`Error::Graph`] naming a node on a cycle.
pub fn topological_order(graph: &Graph<'_>) -> Result<Vec<NodeId>, Error> {
    let mut waiting = vec![0; graph.node_count()];
    let mut ready = BinaryHeap::new();
    let mut count = 0;
    for (id, node) in graph.nodes() {
        waiting[id.0] = node.all_inputs().filter(|&v| graph.value(v).producer().is_some()).count();
        if waiting[id.0] == 0 {
            ready.push(Reverse(id.0));
        }
        count += 1;
    }
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(i)) = ready.pop() {
        let id = NodeId(i);
        order.push(id);
        for &output in graph.node(id).outputs().iter().flatten() {
            for read in graph.value(output).uses() {
                let left = &mut waiting[read.node.0];
                *left -= 1;
                if *left == 0 {
                    ready.push(Reverse(read.node.0));
                }
            }
        }
    }
    if order.len() < count {
        return Err(cycle_through(graph, &waiting));
    }
    Ok(order)
}

/// Walks back from a node that never became ready; the walk must at last run round a cycle.
fn cycle_through(graph: &Graph<'_>, waiting: &[usize]) -> Error {
    let stuck_before = |id: NodeId| {
        let producers = graph.node(id).all_inputs().filter_map(|v| graph.value(v).producer());
        producers.map(|(p, _)| p).find(|p| waiting[p.0] > 0)
    };
    let mut at = waiting.iter().position(|&n| n > 0).map(NodeId);
    for _ in 0..waiting.len() {
        at = at.and_then(stuck_before);
    }
    match at {
        Some(id) => {
            let node = graph.node(id);
            Error::Graph(format!("a cycle runs through {} node {} '{}'", node.op_type, id.0, node.name))
        }
        None => Error::Graph("a cycle".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ElementType, GraphBuilder, Node};

    /// A graph whose node `i` makes `v{i}` and reads `reads[i]`.
    fn graph_of(reads: &[Vec<usize>]) -> Graph<'static> {
        let mut graph = Graph::new("g");
        for (i, reads) in reads.iter().enumerate() {
            let inputs = reads.iter().map(|r| Some(graph.value_named(&format!("v{r}")))).collect();
            let output = graph.value_named(&format!("v{i}"));
            let mut node = Node::new("Op", 1);
            node.name = format!("n{i}");
            graph.add_node(node, inputs, vec![Some(output)], Vec::new()).unwrap();
        }
        graph
    }

    #[test]
    fn keeps_the_order_of_an_ordered_graph_and_repairs_another() {
        let ordered = graph_of(&[vec![], vec![], vec![0], vec![1, 2, 2]]);
        assert_eq!(topological_order(&ordered).unwrap(), [0, 1, 2, 3].map(NodeId));
        let reversed = graph_of(&[vec![1], vec![2], vec![], vec![]]);
        assert_eq!(topological_order(&reversed).unwrap(), [2, 1, 0, 3].map(NodeId));
    }

    #[test]
    fn names_a_node_that_is_on_the_cycle() {
        // Node 0 hangs behind the cycle 1 -> 2 -> 1 without being part of it.
        let error = topological_order(&graph_of(&[vec![1], vec![2], vec![1]])).unwrap_err().to_string();
        assert!(error.contains("cycle") && (error.contains("'n1'") || error.contains("'n2'")), "{error}");
        assert!(topological_order(&graph_of(&[vec![0]])).unwrap_err().to_string().contains("'n0'"));
    }

    #[test]
    fn waits_for_what_bodies_read() {
        let mut then = GraphBuilder::new("then", 17);
        let late = then.outer("late");
        let y = then.node("Relu", &[Some(late)]).output();
        then.output(y);
        let mut b = GraphBuilder::new("g", 17);
        let cond = b.input("cond", ElementType::Bool, &[]);
        b.node("If", &[Some(cond)]).attr("then_branch", then.build().unwrap()).output();
        b.node("Not", &[Some(cond)]).output_as("late");
        assert_eq!(topological_order(&b.build().unwrap()).unwrap(), [1, 0].map(NodeId));
    }

    proptest! {
        #[test]
        fn every_producer_comes_first(
            reads in prop::collection::vec(prop::collection::vec(0usize..8, 0..3), 8),
            shuffle in Just((0..8usize).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            // Node shuffle[i] may read only nodes shuffle[j] with j < i.
            let mut edges = vec![Vec::new(); 8];
            for (i, reads) in reads.iter().enumerate() {
                edges[shuffle[i]] = reads.iter().filter(|&&r| r < i).map(|&r| shuffle[r]).collect();
            }
            let order = topological_order(&graph_of(&edges)).unwrap();
            let place = |n: usize| order.iter().position(|o| o.0 == n).unwrap();
            for (node, reads) in edges.iter().enumerate() {
                prop_assert!(reads.iter().all(|&r| place(r) < place(node)));
            }
        }
    }
}
