//! `OrtGraph` to [`onnx_graph::Graph`], bodies included. Constants borrow ONNX Runtime's memory, which is theirs only
//! for the call that received the graph.

use std::sync::Arc;

use onnx_graph::{Attribute, Graph, Node, ValueId};

use crate::error::Error;
use crate::graph_ref::{GraphRef, NodeRef, ValueRef};

/// The graph of a cluster, and where its inputs come from.
pub struct Cluster<'a> {
    /// Its inputs and outputs are those of the node that replaces it; inputs that are constant are left out.
    pub graph: Graph<'a>,
    /// For each input of `graph`, which input of the node feeds it.
    pub feeds: Vec<usize>,
}

/// Imports a graph as it stands. Node `i` of the result is node `i` of `source`.
///
/// # Errors
/// [`Error::Ort`] if ONNX Runtime refuses to answer, [`Error::Graph`] if the graph breaks ONNX's rules.
pub fn graph<'a>(source: GraphRef<'a>) -> Result<Graph<'a>, Error> {
    let inputs = source.inputs()?.into_iter().map(Some).collect();
    let outputs = source.outputs()?.into_iter().map(Some).collect();
    Ok(import(source, inputs, outputs)?.graph)
}

/// Imports the graph of a cluster that `fused` replaces.
///
/// # Errors
/// As for [`graph`].
pub fn cluster<'a>(source: GraphRef<'a>, fused: NodeRef<'a>) -> Result<Cluster<'a>, Error> {
    import(source, fused.inputs()?, fused.outputs()?)
}

fn import<'a>(
    source: GraphRef<'a>,
    inputs: Vec<Option<ValueRef<'a>>>,
    outputs: Vec<Option<ValueRef<'a>>>,
) -> Result<Cluster<'a>, Error> {
    let mut importer = Importer { source, graph: Graph::new(source.name()?) };
    let mut feeds = Vec::with_capacity(inputs.len());
    for (index, input) in importer.values(inputs)?.into_iter().enumerate() {
        // Old models list their initializers among the inputs.
        let Some(input) = input.filter(|&id| !importer.graph.value(id).is_initializer()) else { continue };
        importer.graph.add_input(input);
        feeds.push(index);
    }
    for output in importer.values(outputs)?.into_iter().flatten() {
        importer.graph.add_output(output);
    }
    for node in source.nodes()? {
        importer.node(node)?;
    }
    Ok(Cluster { graph: importer.graph, feeds })
}

struct Importer<'a> {
    source: GraphRef<'a>,
    graph: Graph<'a>,
}

impl<'a> Importer<'a> {
    fn node(&mut self, source: NodeRef<'a>) -> Result<(), Error> {
        let domain = source.domain()?;
        let version = match source.since_version()? {
            since if since > 0 => since,
            _ => self.source.opset(domain)?.unwrap_or(1),
        };
        let mut node = Node::new(source.op_type()?, version);
        node.name = source.name()?.to_owned();
        node.domain = domain.to_owned();
        for attribute in source.attributes()? {
            if let Some(value) = attribute.value()? {
                node.attributes.insert(attribute.name()?.to_owned(), value);
            }
        }
        for (name, body) in source.bodies()? {
            node.attributes.insert(name.to_owned(), Attribute::Graph(Arc::new(graph(body)?)));
        }
        let inputs = self.values(source.inputs()?)?;
        let outputs = self.values(source.outputs()?)?;
        let implicit = self.values(source.implicit_inputs()?.into_iter().map(Some).collect())?;
        self.graph.add_node(node, inputs, outputs, implicit.into_iter().flatten().collect())?;
        Ok(())
    }

    fn values(&mut self, sources: Vec<Option<ValueRef<'a>>>) -> Result<Vec<Option<ValueId>>, Error> {
        sources.into_iter().map(|source| source.map_or(Ok(None), |source| self.value(source))).collect()
    }

    /// The value, with its type and contents when it is met first; `None` if it has no name, which means left out.
    fn value(&mut self, source: ValueRef<'a>) -> Result<Option<ValueId>, Error> {
        let name = source.name()?;
        if name.is_empty() {
            return Ok(None);
        }
        if let Some(id) = self.graph.find_value(name) {
            return Ok(Some(id));
        }
        let id = self.graph.value_named(name);
        self.graph.set_type(id, source.value_type()?);
        if source.is_constant()? {
            match source.contents()? {
                Some(contents) => self.graph.set_constant(id, contents.to_tensor()?),
                None => self.graph.set_opaque(id),
            }
        }
        Ok(Some(id))
    }
}
