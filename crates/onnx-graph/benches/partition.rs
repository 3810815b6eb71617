//! Partitioning of large graphs: `cargo bench -p onnx-graph`.

use onnx_graph::{Graph, Node, partition};

fn main() {
    divan::main();
}

/// Two chains with rungs between them, `nodes` in all.
fn ladder(nodes: usize) -> Graph<'static> {
    let mut graph = Graph::new("ladder");
    let values: Vec<_> = (0..nodes).map(|i| graph.value_named(&format!("v{i}"))).collect();
    for i in 0..nodes {
        let inputs = if i < 2 { vec![] } else { vec![Some(values[i - 2]), Some(values[i - 1 - i % 2])] };
        let added = graph.add_node(Node::new("Op", 1), inputs, vec![Some(values[i])], vec![]);
        added.expect("each value is made once");
    }
    graph
}

/// Every `apart`-th step of the ladder is left unclaimed.
#[divan::bench(args = [2, 100, 50_000])]
fn fifty_thousand_nodes(bencher: divan::Bencher<'_, '_>, apart: usize) {
    let graph = ladder(50_000);
    let claimed: Vec<bool> = (0..graph.node_count()).map(|i| i / 2 % apart != apart - 1).collect();
    bencher.bench(|| partition(&graph, &claimed));
}

/// The boundaries of all clusters, which must not cost the size of the graph for each.
#[divan::bench(args = [2, 100, 50_000])]
fn boundaries(bencher: divan::Bencher<'_, '_>, apart: usize) {
    let graph = ladder(50_000);
    let claimed: Vec<bool> = (0..graph.node_count()).map(|i| i / 2 % apart != apart - 1).collect();
    let clusters = partition(&graph, &claimed).expect("no cycle");
    bencher
        .bench(|| clusters.iter().map(|c| c.inputs(&graph).len() + c.outputs(&graph).len()).sum::<usize>());
}
