//! Model-local functions: their calls are replaced by their nodes while the graph is read.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use prost::Message;

use super::{Reader, domain, opsets};
use crate::proto::{FunctionProto, NodeProto};
use crate::{Attribute, Error, Graph, Node};

/// How deep calls and bodies may nest together.
const MAX_DEPTH: usize = 48;
/// How many bytes inlining may add: a few functions that call each other twice can ask for 2^48 nodes.
const INLINE_BUDGET: usize = 64 << 20;

/// Functions by domain, name and overload.
pub struct Functions(HashMap<(String, String, String), FunctionProto>);

impl Functions {
    /// # Errors
    /// [`Error::Graph`] if two have the same key.
    pub fn new(protos: Vec<FunctionProto>) -> Result<Self, Error> {
        let mut functions = HashMap::new();
        for proto in protos {
            let key = (domain(&proto.domain).to_owned(), proto.name.clone(), proto.overload.clone());
            if let Some(twin) = functions.insert(key, proto) {
                return Err(Error::Graph(format!("two functions are called {}", title(&twin))));
            }
        }
        Ok(Self(functions))
    }

    /// `domain.name` of each, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.values().map(title).collect();
        names.sort();
        names
    }

    /// The function that `node` calls, if it is no operator.
    pub fn called_by(&self, node: &NodeProto) -> Option<&FunctionProto> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(domain(&node.domain).to_owned(), node.op_type.clone(), node.overload.clone()))
    }
}

fn title(function: &FunctionProto) -> String {
    format!("{}.{}", function.domain, function.name)
}

/// What names, attributes and versions mean where nodes are being read.
pub struct Frame<'f> {
    /// Imported operator sets.
    pub opsets: &'f BTreeMap<String, i64>,
    /// Set inside a function.
    call: Option<&'f Call>,
    depth: usize,
}

struct Call {
    /// What the function's parameters are called outside.
    names: HashMap<String, String>,
    /// Goes before all its other names.
    prefix: String,
    attributes: BTreeMap<String, Attribute<'static>>,
}

impl<'f> Frame<'f> {
    /// The model's own graph.
    pub fn top(opsets: &'f BTreeMap<String, i64>) -> Self {
        Self { opsets, call: None, depth: 0 }
    }

    /// A body inside this frame.
    ///
    /// # Errors
    /// [`Error::Graph`] if that nests too deep.
    pub fn body(&self) -> Result<Self, Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error::Graph(format!("calls and bodies nest deeper than {MAX_DEPTH}")));
        }
        Ok(Self { depth: self.depth + 1, ..*self })
    }

    /// What the value `name` of this frame is called in the graph; empty for an input or output that is left out.
    pub fn resolve<'n>(&'n self, name: &'n str) -> Cow<'n, str> {
        match self.call {
            Some(_) if name.is_empty() => Cow::Borrowed(name),
            Some(call) => match call.names.get(name) {
                Some(outside) => Cow::Borrowed(outside),
                None => Cow::Owned(format!("{}{name}", call.prefix)),
            },
            None => Cow::Borrowed(name),
        }
    }

    /// The attribute of the call that a node of the function refers to; `None` if the call has none.
    ///
    /// # Errors
    /// [`Error::Graph`] outside of functions.
    pub fn argument(&self, name: &str) -> Result<Option<&'f Attribute<'static>>, Error> {
        match self.call {
            Some(call) => Ok(call.attributes.get(name)),
            None => {
                Err(Error::Graph(format!("an attribute refers to '{name}' of a function, but is in none")))
            }
        }
    }
}

impl Reader<'_> {
    /// Counts `bytes` that inlining adds.
    pub fn charge(&self, bytes: usize) -> Result<(), Error> {
        self.inlined.set(self.inlined.get().saturating_add(bytes));
        if self.inlined.get() > INLINE_BUDGET {
            return Err(Error::Graph("inlining makes the model too large".to_owned()));
        }
        Ok(())
    }

    /// Adds the nodes of `function` to `graph` in place of `node`, which lies in `frame`.
    pub fn inline(
        &self,
        graph: &mut Graph<'static>,
        function: &FunctionProto,
        node: NodeProto,
        frame: &Frame<'_>,
    ) -> Result<(), Error> {
        let wrong = |why: &str| Error::Graph(format!("in the function {}: {why}", title(function)));
        let named = |error| match error {
            Error::Graph(why) => wrong(&why),
            other => other,
        };
        self.charge(function.encoded_len() + 64 * function.node.len()).map_err(named)?;
        if node.input.len() > function.input.len() || node.output.len() > function.output.len() {
            return Err(wrong(&format!("'{}' passes more values than it takes", node.name)));
        }
        let opsets = opsets(&function.opset_import);
        let body = frame.body().map_err(named)?;

        let mut attributes = BTreeMap::new();
        let defaults = Frame { opsets: &opsets, call: None, depth: body.depth };
        self.attributes(&mut attributes, function.attribute_proto.clone(), &defaults)?;
        self.attributes(&mut attributes, node.attribute, frame)?;

        let serial = self.calls.replace(self.calls.get() + 1);
        let mut names = HashMap::new();
        for (i, parameter) in function.input.iter().enumerate() {
            let outside = node.input.get(i).map_or("".into(), |name| frame.resolve(name));
            names.insert(parameter.clone(), outside.into_owned());
        }
        // An output that is also a parameter, or another output, is a copy.
        let mut copies = Vec::new();
        for (result, outside) in function.output.iter().zip(&node.output).filter(|(_, o)| !o.is_empty()) {
            let outside = frame.resolve(outside).into_owned();
            match names.get(result) {
                Some(source) => copies.push((source.clone(), outside)),
                None => _ = names.insert(result.clone(), outside),
            }
        }
        let call = Call { names, prefix: format!("{}#{serial}/", function.name), attributes };
        let inside = Frame { opsets: &opsets, call: Some(&call), depth: body.depth };
        for node in &function.node {
            self.node(graph, node.clone(), &inside)?;
        }
        for (source, copy) in copies {
            let version = opsets.get("").or(frame.opsets.get("")).copied().unwrap_or(1);
            let (source, copy) = (super::graph::value(graph, &source), super::graph::value(graph, &copy));
            graph.add_node(Node::new("Identity", version), vec![source], vec![copy], Vec::new())?;
        }
        self.declare_all(graph, &function.value_info, &inside);
        Ok(())
    }
}
