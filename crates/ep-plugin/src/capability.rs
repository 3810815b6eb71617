//! `GetCapability`: which nodes of a graph we take, and in which clusters.

use ep_core::{Claims, Decline, DeclineCode};
use onnx_graph::{Cluster, Graph, Node, ValueId};
use ort_sys::OrtNode;

use crate::abi::{self, OrtEpGraphSupportInfo, OrtNodeFusionOptions};
use crate::ep::Ep;
use crate::error::Error;
use crate::graph_ref::GraphRef;
use crate::import;

/// Claims what the engine can run of `source` and tells ONNX Runtime through `sink`.
///
/// # Errors
/// [`Error::Ort`], [`Error::Graph`] and [`Error::Core`] as the steps give them.
///
/// # Safety
/// `sink` must be the live one that came with `source`.
pub unsafe fn claim(ep: &Ep, source: GraphRef<'_>, sink: *mut OrtEpGraphSupportInfo) -> Result<(), Error> {
    if inside_sequence_map(source)? {
        tracing::debug!("graph '{}' lies inside a SequenceMap, nothing of it is claimed", source.name()?);
        return Ok(());
    }
    let graph = import::graph(source)?;
    let parent = import::parent(source)?;
    let taken = parent.map(|parent| ep.engine().may_take(&parent, &forbids(ep, &parent))).transpose()?;
    let (claims, clusters) = if taken == Some(true) {
        tracing::debug!("graph '{}' is claimed with the node whose body it is", graph.name);
        (Claims { nodes: vec![Ok(()); graph.node_count()], fusions: Vec::new() }, Vec::new())
    } else {
        let claims = ep.engine().claim(&graph, &forbids(ep, &graph))?;
        let clusters = ep.engine().clusters(&graph, &claims)?;
        (claims, clusters)
    };
    log(&graph, &claims, &clusters);
    if let Some(report) = ep.report() {
        let body_of = source.parent()?.map(|node| node.op_type()).transpose()?;
        report.claims(&graph, body_of, &claims, &clusters);
    }
    let nodes = source.nodes()?;
    for cluster in &clusters {
        let nodes: Vec<*const OrtNode> = cluster.nodes.iter().map(|id| nodes[id.0].raw()).collect();
        // SAFETY: nodes and sink are live for this call; the options are copied.
        unsafe { fuse(ep, &nodes, sink) }?;
    }
    Ok(())
}

/// What this runtime does not let a provider take.
fn forbids<'g>(ep: &Ep, graph: &'g Graph<'_>) -> impl Fn(&Node<'_>) -> Option<Decline> + 'g {
    let feeds_bodies = ep.api().version() >= abi::FEEDS_BODIES;
    move |node| {
        let fed = |v: &ValueId| graph.value(*v).constant.is_some() || node.inputs().contains(&Some(*v));
        let detail = || {
            format!(
                "its body reads values from outside, which ONNX Runtime before 1.{} does not hand over",
                abi::FEEDS_BODIES
            )
        };
        let starved = !feeds_bodies && !node.implicit_inputs().iter().all(fed);
        starved.then(|| Decline::new(DeclineCode::Form, detail()))
    }
}

/// # Safety
/// `nodes` and `sink` must belong to the graph that is asked about.
unsafe fn fuse(ep: &Ep, nodes: &[*const OrtNode], sink: *mut OrtEpGraphSupportInfo) -> Result<(), Error> {
    let api = ep.api();
    let options =
        OrtNodeFusionOptions { ort_version_supported: api.version(), drop_constant_initializers: true };
    // SAFETY: by the caller's word; the status is ours.
    unsafe {
        let add = (*api.ep_table()).EpGraphSupportInfo_AddNodesToFuse;
        api.check(add(sink, nodes.as_ptr(), nodes.len(), &raw const options))
    }
}

/// ONNX Runtime cannot load a model in which nodes of a `SequenceMap` body, however deep, are claimed.
fn inside_sequence_map(graph: GraphRef<'_>) -> Result<bool, Error> {
    let mut around = Some(graph);
    while let Some(graph) = around {
        let Some(node) = graph.parent()? else { return Ok(false) };
        if node.op_type()? == "SequenceMap" {
            return Ok(true);
        }
        around = node.graph()?;
    }
    Ok(false)
}

fn log(graph: &Graph<'_>, claims: &Claims, clusters: &[Cluster]) {
    let claimed = claims.nodes.iter().filter(|claim| claim.is_ok()).count();
    let taken: usize = clusters.iter().map(|cluster| cluster.nodes.len()).sum();
    tracing::info!(
        "graph '{}': {claimed} of {} nodes can be claimed, {taken} are, in {} clusters",
        graph.name,
        graph.node_count(),
        clusters.len()
    );
    for ((id, node), claim) in graph.nodes().zip(&claims.nodes) {
        if let Err(reason) = claim {
            let name = if node.name.is_empty() { format!("#{}", id.0) } else { format!("'{}'", node.name) };
            tracing::debug!("{} node {name} stays with ONNX Runtime: {reason}", node.op_type);
        }
    }
}
