//! `OrtGraph` to [`onnx_graph::Graph`], bodies included. Constants borrow ONNX Runtime's memory, which is theirs only
//! for the call that received the graph.

use std::sync::Arc;

use onnx_graph::{Attribute, Graph, Node, ValueId};

use crate::error::Error;
use crate::graph_ref::{GraphRef, NodeRef, ValueRef};

/// The graph of a cluster, and where its inputs come from.
pub struct Cluster<'a> {
    /// Its inputs and outputs are those of the node that replaces it.
    pub graph: Graph<'a>,
    /// For each input of `graph`, which input of the node feeds it.
    pub feeds: Vec<usize>,
}

/// Imports a graph as it stands. Node `i` of the result is node `i` of `source`.
///
/// # Errors
/// [`Error::Ort`] if ONNX Runtime refuses to answer, [`Error::Graph`] if the graph breaks ONNX's rules.
pub fn graph<'a>(source: GraphRef<'a>) -> Result<Graph<'a>, Error> {
    let mut importer = Importer { source, graph: Graph::new(source.name()?) };
    for input in importer.values(source.inputs()?.into_iter().map(Some).collect())?.into_iter().flatten() {
        // Old models list their initializers among the inputs.
        if !importer.graph.value(input).is_initializer() {
            importer.graph.add_input(input);
        }
    }
    importer.finish(source.outputs()?.into_iter().map(Some).collect())
}

/// Imports the node whose body `source` is, if it is one: a graph of that node alone.
///
/// # Errors
/// As for [`graph`].
pub fn parent<'a>(source: GraphRef<'a>) -> Result<Option<Graph<'a>>, Error> {
    let Some(node) = source.parent()? else { return Ok(None) };
    // ONNX Runtime does not say which graph holds the node; the opsets of a body are those of the model.
    let mut importer = Importer { source, graph: Graph::new("parent") };
    importer.node(node)?;
    // All that it makes counts as wanted.
    for output in importer.values(node.outputs()?)?.into_iter().flatten() {
        importer.graph.add_output(output);
    }
    Ok(Some(importer.graph))
}

/// Imports the graph of a cluster that `fused` replaces.
///
/// # Errors
/// As for [`graph`].
pub fn cluster<'a>(source: GraphRef<'a>, fused: NodeRef<'a>) -> Result<Cluster<'a>, Error> {
    let mut importer = Importer { source, graph: Graph::new(source.name()?) };
    let mut feeds = Vec::new();
    for (index, input) in fused.inputs()?.into_iter().enumerate() {
        // What the node is fed counts, even where the cluster's graph knows a default for it.
        let Some(input) = input.map(|input| importer.declare(input)).transpose()?.flatten() else { continue };
        importer.graph.add_input(input);
        feeds.push(index);
    }
    Ok(Cluster { graph: importer.finish(fused.outputs()?)?, feeds })
}

struct Importer<'a> {
    source: GraphRef<'a>,
    graph: Graph<'a>,
}

impl<'a> Importer<'a> {
    /// Adds the outputs and every node.
    fn finish(mut self, outputs: Vec<Option<ValueRef<'a>>>) -> Result<Graph<'a>, Error> {
        for output in self.values(outputs)?.into_iter().flatten() {
            self.graph.add_output(output);
        }
        for node in self.source.nodes()? {
            self.node(node)?;
        }
        Ok(self.graph)
    }

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
        if let Some(id) = self.graph.find_value(source.name()?) {
            return Ok(Some(id));
        }
        let Some(id) = self.declare(source)? else { return Ok(None) };
        if source.is_constant()? {
            match source.contents()? {
                Some(contents) => self.graph.set_constant(id, contents.to_tensor()?),
                None => self.graph.set_opaque(id),
            }
        }
        Ok(Some(id))
    }

    /// A new value with its type; `None` if it has no name.
    fn declare(&mut self, source: ValueRef<'a>) -> Result<Option<ValueId>, Error> {
        let name = source.name()?;
        if name.is_empty() {
            return Ok(None);
        }
        let id = self.graph.value_named(name);
        self.graph.set_type(id, source.value_type()?);
        Ok(Some(id))
    }
}
