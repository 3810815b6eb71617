//! Splits the claimed nodes of a graph into clusters that can each run as one node.
//!
//! Contracting every cluster to one node must leave the graph acyclic: no path leaves a cluster and returns, neither
//! directly nor by way of other clusters. Reads made by bodies count like any other.

use std::collections::{HashMap, HashSet};

use crate::{Error, Graph, NodeId, ValueId, topological_order};

/// Claimed nodes that run as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its nodes in topological order.
    pub nodes: Vec<NodeId>,
}

impl Cluster {
    /// The values it reads and does not make, without initializers, in the order in which its nodes read them.
    pub fn inputs(&self, graph: &Graph<'_>) -> Vec<ValueId> {
        self.reads(graph, |v| !graph.value(v).is_initializer())
    }

    /// The initializers it reads, in the order in which its nodes read them.
    pub fn initializers(&self, graph: &Graph<'_>) -> Vec<ValueId> {
        self.reads(graph, |v| graph.value(v).is_initializer())
    }

    /// The values it makes that another node reads or that the graph returns, in the order in which it makes them.
    pub fn outputs(&self, graph: &Graph<'_>) -> Vec<ValueId> {
        let members = self.members();
        let returned: HashSet<ValueId> = graph.outputs().iter().copied().collect();
        let made = self.nodes.iter().flat_map(|&n| graph.node(n).outputs().iter().flatten().copied());
        made.filter(|v| {
            returned.contains(v) || graph.value(*v).uses().iter().any(|u| !members.contains(&u.node))
        })
        .collect()
    }

    fn reads(&self, graph: &Graph<'_>, wanted: impl Fn(ValueId) -> bool) -> Vec<ValueId> {
        let members = self.members();
        let made_here = |v| graph.value(v).producer().is_some_and(|(p, _)| members.contains(&p));
        let mut seen = HashSet::new();
        let reads = self.nodes.iter().flat_map(|&n| graph.node(n).all_inputs());
        reads.filter(|&v| !made_here(v) && wanted(v) && seen.insert(v)).collect()
    }

    fn members(&self) -> HashSet<NodeId> {
        self.nodes.iter().copied().collect()
    }
}

/// Which cluster every claimed node lies in.
#[derive(Debug)]
pub struct Membership(HashMap<NodeId, usize>);

impl Membership {
    /// That of these clusters.
    pub fn of(clusters: &[Cluster]) -> Self {
        let numbered = clusters.iter().enumerate();
        Self(numbered.flat_map(|(i, cluster)| cluster.nodes.iter().map(move |&node| (node, i))).collect())
    }

    /// Whether `nodes` all lie in the same cluster.
    pub fn is_shared(&self, nodes: &[NodeId]) -> bool {
        let mut clusters = nodes.iter().map(|node| self.0.get(node));
        let first = clusters.next().flatten();
        nodes.is_empty() || first.is_some() && clusters.all(|cluster| cluster == first)
    }
}

/// The fewest clusters that hold every node `n` with `claimed[n]` and leave the contracted graph acyclic, each after
/// those it depends on. Linear in the graph's size, but for the ordering of nodes.
///
/// The level of a node is how many times a path that ends there has come back from unclaimed to claimed nodes, at most;
/// a cluster is a level. *Acyclic*: place cluster `l` at 2l and an unclaimed node of level `l` at 2l + 1. Then no edge
/// leads down, and one that stays level is inside a cluster or joins two unclaimed nodes. *Fewest*: a node of level `l`
/// ends a path with `l + 1` claimed stretches, and two stretches with an unclaimed node between them cannot share a
/// cluster.
///
/// # Errors
/// [`Error::Graph`] if the graph has a cycle, or if `claimed` is not one flag for each node.
pub fn partition(graph: &Graph<'_>, claimed: &[bool]) -> Result<Vec<Cluster>, Error> {
    if claimed.len() != graph.node_count() {
        return Err(Error::Graph(format!(
            "{} claims for a graph of {} nodes",
            claimed.len(),
            graph.node_count()
        )));
    }
    let order = topological_order(graph)?;
    let mut levels = earliest_levels(graph, claimed, &order);
    delay(graph, claimed, &order, &mut levels);
    let claims = || order.iter().filter(|n| claimed[n.0]);
    let count = claims().map(|n| levels[n.0]).max().unwrap_or(0);
    let mut clusters = vec![Cluster { nodes: Vec::new() }; count];
    for &node in claims() {
        clusters[levels[node.0] - 1].nodes.push(node);
    }
    Ok(clusters)
}

/// The level of every node, counted from 1; 0 for an unclaimed node that no claimed one leads to.
fn earliest_levels(graph: &Graph<'_>, claimed: &[bool], order: &[NodeId]) -> Vec<usize> {
    let mut levels = vec![0; claimed.len()];
    for &node in order {
        let least = usize::from(claimed[node.0]);
        let after =
            producers(graph, node).map(|p| levels[p.0] + usize::from(!claimed[p.0] && claimed[node.0]));
        levels[node.0] = after.max().unwrap_or(0).max(least);
    }
    levels
}

/// Moves a claimed node to the level of its first reader where at least as many values stop crossing between clusters
/// as start. Readers never come before it and none is unclaimed, so levels still never fall along an edge.
fn delay(graph: &Graph<'_>, claimed: &[bool], order: &[NodeId], levels: &mut [usize]) {
    let returned: HashSet<ValueId> = graph.outputs().iter().copied().collect();
    for &id in order.iter().rev().filter(|id| claimed[id.0]) {
        let made = || graph.node(id).outputs().iter().flatten().copied();
        let readers = || made().flat_map(|v| graph.value(v).uses()).map(|u| u.node);
        if made().any(|v| returned.contains(&v)) || readers().any(|r| !claimed[r.0]) {
            continue;
        }
        let Some(level) = readers().map(|r| levels[r.0]).min().filter(|&l| l > levels[id.0]) else {
            continue;
        };
        let stop = made()
            .filter(|&v| {
                let uses = graph.value(v).uses();
                !uses.is_empty() && uses.iter().all(|u| levels[u.node.0] == level)
            })
            .count();
        let read: HashSet<ValueId> = graph.node(id).all_inputs().collect();
        let start =
            read.iter().filter(|&&v| graph.value(v).producer().is_some_and(|(p, _)| claimed[p.0])).count();
        if stop >= start {
            levels[id.0] = level;
        }
    }
}

fn producers<'g>(graph: &'g Graph<'_>, node: NodeId) -> impl Iterator<Item = NodeId> + 'g {
    graph.node(node).all_inputs().filter_map(|v| graph.value(v).producer()).map(|(p, _)| p)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ElementType, GraphBuilder, Node, Tensor};

    /// Node `i` makes `v{i}` and reads `v{j}` for every edge `(j, i)`; each third edge is a body's read.
    fn graph_of(nodes: usize, edges: &[(usize, usize)]) -> Graph<'static> {
        let mut graph = Graph::new("g");
        let values: Vec<_> = (0..nodes).map(|i| graph.value_named(&format!("v{i}"))).collect();
        for i in 0..nodes {
            let reads = edges.iter().enumerate().filter(|(_, e)| e.1 == i).map(|(k, e)| (k, values[e.0]));
            let (implicit, explicit): (Vec<_>, Vec<_>) = reads.partition(|(k, _)| k % 3 == 2);
            let explicit = explicit.into_iter().map(|(_, v)| Some(v)).collect();
            let implicit = implicit.into_iter().map(|(_, v)| v).collect();
            graph.add_node(Node::new("Op", 1), explicit, vec![Some(values[i])], implicit).unwrap();
        }
        graph
    }

    /// Whether the graph stays acyclic when nodes of one group become one; removes groups without predecessors.
    fn contracts(groups: &[usize], edges: &[(usize, usize)]) -> bool {
        let mut left: HashSet<usize> = groups.iter().copied().collect();
        let outer: HashSet<(usize, usize)> =
            edges.iter().map(|&(a, b)| (groups[a], groups[b])).filter(|(a, b)| a != b).collect();
        while !left.is_empty() {
            let free: Vec<usize> = left
                .iter()
                .copied()
                .filter(|g| !outer.iter().any(|(a, b)| b == g && left.contains(a)))
                .collect();
            if free.is_empty() {
                return false;
            }
            left.retain(|g| !free.contains(g));
        }
        true
    }

    /// Whether the claimed nodes fit into at most `clusters` groups: tries every way.
    fn fits(clusters: usize, claimed: &[bool], edges: &[(usize, usize)]) -> bool {
        fn place(
            at: usize,
            used: usize,
            max: usize,
            groups: &mut [usize],
            try_: &impl Fn(&[usize]) -> bool,
        ) -> bool {
            if at == groups.len() {
                return try_(groups);
            }
            if groups[at] != usize::MAX {
                return place(at + 1, used, max, groups, try_);
            }
            let found = (0..max.min(used + 1)).any(|g| {
                groups[at] = g;
                place(at + 1, used.max(g + 1), max, groups, try_)
            });
            groups[at] = usize::MAX;
            found
        }
        let mut groups: Vec<usize> =
            claimed.iter().enumerate().map(|(i, &c)| if c { usize::MAX } else { 100 + i }).collect();
        place(0, 0, clusters, &mut groups, &|groups| contracts(groups, edges))
    }

    fn groups_of(clusters: &[Cluster], nodes: usize) -> Vec<usize> {
        let mut groups: Vec<usize> = (0..nodes).map(|i| clusters.len() + i).collect();
        for (c, cluster) in clusters.iter().enumerate() {
            cluster.nodes.iter().for_each(|n| groups[n.0] = c);
        }
        groups
    }

    fn dags() -> impl Strategy<Value = (Vec<bool>, Vec<(usize, usize)>)> {
        (1usize..=9).prop_flat_map(|n| {
            let edges = prop::collection::vec((0..n, 0..n), 0..=2 * n)
                .prop_map(|es| es.into_iter().filter(|(a, b)| a < b).collect());
            (prop::collection::vec(any::<bool>(), n), edges)
        })
    }

    #[test]
    fn nodes_share_a_cluster_or_do_not() {
        let cluster = |nodes: &[usize]| Cluster { nodes: nodes.iter().copied().map(NodeId).collect() };
        let membership = Membership::of(&[cluster(&[0, 2]), cluster(&[3])]);
        assert!(membership.is_shared(&[NodeId(0), NodeId(2)]) && membership.is_shared(&[NodeId(3)]));
        assert!(!membership.is_shared(&[NodeId(2), NodeId(3)]));
        assert!(!membership.is_shared(&[NodeId(0), NodeId(1)]) && !membership.is_shared(&[NodeId(1)]));
        assert!(membership.is_shared(&[]));
    }

    proptest! {
        #[test]
        fn finds_the_fewest_clusters((claimed, edges) in dags()) {
            let nodes = claimed.len();
            let clusters = partition(&graph_of(nodes, &edges), &claimed).unwrap();

            let groups = groups_of(&clusters, nodes);
            prop_assert!(contracts(&groups, &edges));
            for (i, &claimed) in claimed.iter().enumerate() {
                prop_assert_eq!(claimed, groups[i] < clusters.len());
            }
            prop_assert!(clusters.iter().all(|c| !c.nodes.is_empty()));
            // A cluster reads only earlier ones, and inside it producers come first.
            for &(a, b) in &edges {
                if claimed[a] && claimed[b] {
                    prop_assert!(groups[a] <= groups[b]);
                    let place = |n: usize| clusters[groups[n]].nodes.iter().position(|m| m.0 == n);
                    prop_assert!(groups[a] < groups[b] || place(a) < place(b));
                }
            }
            prop_assert!(clusters.is_empty() || !fits(clusters.len() - 1, &claimed, &edges));
        }

        #[test]
        fn moving_nodes_to_later_clusters_never_widens_boundaries((claimed, edges) in dags()) {
            let graph = graph_of(claimed.len(), &edges);
            let order = topological_order(&graph).unwrap();
            let crossing = |levels: &[usize]| {
                let leaves = |(a, b): &&(usize, usize)| claimed[*a] && (!claimed[*b] || levels[*a] != levels[*b]);
                edges.iter().filter(leaves).map(|e| e.0).collect::<HashSet<_>>().len()
            };
            let mut levels = earliest_levels(&graph, &claimed, &order);
            let before = crossing(&levels);
            delay(&graph, &claimed, &order, &mut levels);
            prop_assert!(crossing(&levels) <= before);
        }

        #[test]
        fn boundaries_are_what_crosses((claimed, edges) in dags()) {
            let graph = graph_of(claimed.len(), &edges);
            for cluster in partition(&graph, &claimed).unwrap() {
                let inside = |n: usize| cluster.nodes.contains(&NodeId(n));
                let mut entering: Vec<_> =
                    edges.iter().filter(|e| !inside(e.0) && inside(e.1)).map(|e| ValueId(e.0)).collect();
                let mut leaving: Vec<_> =
                    edges.iter().filter(|e| inside(e.0) && !inside(e.1)).map(|e| ValueId(e.0)).collect();
                for crossing in [&mut entering, &mut leaving] {
                    crossing.sort();
                    crossing.dedup();
                }
                let sorted = |mut v: Vec<ValueId>| { v.sort(); v };
                prop_assert_eq!(sorted(cluster.inputs(&graph)), entering);
                prop_assert_eq!(sorted(cluster.outputs(&graph)), leaving);
            }
        }
    }

    #[test]
    fn convex_clusters_that_need_each_other_are_kept_apart() {
        // 0 -> 1(unclaimed) -> 2 and 3 -> 4(unclaimed) -> 5: {0, 5} and {2, 3} are convex, but form a cycle.
        let edges = [(0, 1), (1, 2), (3, 4), (4, 5)];
        let claimed = [true, false, true, true, false, true];
        let clusters = partition(&graph_of(6, &edges), &claimed).unwrap();
        assert_eq!(clusters.len(), 2);
        assert!(contracts(&groups_of(&clusters, 6), &edges));
    }

    #[test]
    fn what_a_later_cluster_alone_reads_moves_there() {
        // 3 -> 4 hangs on nothing and is read by 2 only, which an unclaimed node keeps out of the first cluster.
        let clusters =
            partition(&graph_of(5, &[(0, 1), (1, 2), (3, 4), (4, 2)]), &[true, false, true, true, true])
                .unwrap();
        let nodes: Vec<Vec<usize>> = clusters.iter().map(|c| c.nodes.iter().map(|n| n.0).collect()).collect();
        assert_eq!(nodes, [vec![0], vec![3, 4, 2]]);
    }

    #[test]
    fn boundaries_keep_order_and_tell_initializers_apart() {
        let mut b = GraphBuilder::new("g", 17);
        let x = b.input("x", ElementType::Float, &[]);
        let y = b.input("y", ElementType::Float, &[]);
        let w = b.initializer("w", Tensor::scalar(1.0));
        let p = b.node("Add", &[Some(y), Some(w)]).output();
        let q = b.node("Mul", &[Some(p), Some(x)]).output();
        let r = b.node("Sub", &[Some(q), Some(y)]).output();
        b.output(r);
        b.output(p);
        let graph = b.build().unwrap();
        let clusters = partition(&graph, &[true; 3]).unwrap();
        assert_eq!(clusters.len(), 1);
        assert_eq!(clusters[0].inputs(&graph), [y, x]);
        assert_eq!(clusters[0].initializers(&graph), [w]);
        assert_eq!(clusters[0].outputs(&graph), [p, r]);
    }

    #[test]
    fn refuses_cycles_and_a_wrong_number_of_claims() {
        assert!(partition(&graph_of(2, &[(0, 1), (1, 0)]), &[true; 2]).is_err());
        assert!(partition(&graph_of(2, &[]), &[true]).is_err());
        assert!(partition(&Graph::new("empty"), &[]).unwrap().is_empty());
    }

    #[test]
    fn fifty_thousand_nodes() {
        // A ladder: two chains with rungs, an unclaimed pair at every hundredth step.
        let nodes = 50_000;
        let edges: Vec<_> = (2..nodes).flat_map(|i| [(i - 2, i), (i - 1 - i % 2, i)]).collect();
        let claimed: Vec<bool> = (0..nodes).map(|i| i / 2 % 100 != 99).collect();
        let mut graph = Graph::new("g");
        let values: Vec<_> = (0..nodes).map(|i| graph.value_named(&format!("v{i}"))).collect();
        for i in 0..nodes {
            let inputs = if i < 2 { vec![] } else { vec![Some(values[i - 2]), Some(values[i - 1 - i % 2])] };
            graph.add_node(Node::new("Op", 1), inputs, vec![Some(values[i])], vec![]).unwrap();
        }
        let clusters = partition(&graph, &claimed).unwrap();
        assert_eq!(clusters.len(), 250);
        assert!(clusters.iter().all(|c| c.nodes.len() == 198));
        let groups = groups_of(&clusters, nodes);
        for (a, b) in edges {
            assert!(groups[a] <= groups[b] || !claimed[a] || !claimed[b]);
        }
        let read: usize = clusters.iter().map(|c| c.inputs(&graph).len()).sum();
        assert_eq!(read, 2 * 249);
    }
}
