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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttributeProto, GraphProto, ModelProto, OperatorSetIdProto, ValueInfoProto};

    fn node(op_type: &str, input: &[&str], output: &[&str]) -> NodeProto {
        let owned = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
        NodeProto {
            op_type: op_type.to_owned(),
            input: owned(input),
            output: owned(output),
            ..Default::default()
        }
    }

    fn function(name: &str, input: &[&str], output: &[&str], node: Vec<NodeProto>) -> FunctionProto {
        let owned = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 18 }];
        let (name, input, output) = (name.to_owned(), owned(input), owned(output));
        FunctionProto { name, input, output, node, opset_import, ..Default::default() }
    }

    /// A model whose node calls the first function with `x` for `y`.
    fn read(functions: Vec<FunctionProto>) -> Result<Graph<'static>, Error> {
        let info = |name: &str| ValueInfoProto { name: name.to_owned(), r#type: None };
        let graph = GraphProto {
            node: vec![node(&functions[0].name, &["x"], &["y"])],
            input: vec![info("x")],
            output: vec![info("y")],
            ..Default::default()
        };
        let model = ModelProto {
            ir_version: 10,
            graph: Some(graph),
            opset_import: vec![OperatorSetIdProto { domain: "ai.onnx".to_owned(), version: 17 }],
            functions,
            ..Default::default()
        };
        crate::read_bytes(&model.encode_to_vec()).map(|m| m.graph)
    }

    #[test]
    fn nodes_follow_the_function_s_opset() {
        let graph = read(vec![function("F", &["a"], &["b"], vec![node("Relu", &["a"], &["b"])])]).unwrap();
        assert_eq!(graph.nodes().map(|(_, n)| n.version).collect::<Vec<_>>(), [18]);
    }

    #[test]
    fn a_parameter_returned_is_copied() {
        let graph = read(vec![function("F", &["a"], &["a"], Vec::new())]).unwrap();
        let (_, copy) = graph.nodes().next().unwrap();
        assert_eq!((copy.op_type.as_str(), copy.inputs()), ("Identity", &[graph.find_value("x")][..]));
    }

    #[test]
    fn inner_names_cannot_meet_outer_ones() {
        // `x` is local to the function here, and not the graph's input.
        let body = vec![node("Relu", &["a"], &["x"]), node("Neg", &["x"], &["b"])];
        let graph = read(vec![function("F", &["a"], &["b"], body)]).unwrap();
        assert_eq!(graph.value(graph.inputs()[0]).uses().len(), 1);
    }

    #[test]
    fn endless_calls_and_exploding_ones_are_refused() {
        let recursive = function("F", &["a"], &["b"], vec![node("F", &["a"], &["b"])]);
        let error = read(vec![recursive]).unwrap_err().to_string();
        assert!(error.contains(".F") && error.contains("deeper than"), "{error}");

        let twice = |next: &str| vec![node(next, &["a"], &["t"]), node(next, &["t"], &["b"])];
        let mut functions: Vec<_> = (0..MAX_DEPTH - 1)
            .map(|i| function(&format!("F{i}"), &["a"], &["b"], twice(&format!("F{}", i + 1))))
            .collect();
        let last = format!("F{}", MAX_DEPTH - 1);
        let mut leaf = node("Relu", &["a"], &["b"]);
        leaf.attribute.push(AttributeProto {
            name: "bulk".to_owned(),
            s: Some(vec![0; INLINE_BUDGET / 50]),
            ..Default::default()
        });
        functions.push(function(&last, &["a"], &["b"], vec![leaf]));
        let error = read(functions).unwrap_err().to_string();
        assert!(error.contains("too large"), "{error}");
    }

    #[test]
    fn wrong_calls_are_named() {
        let narrow = function("F", &[], &["b"], Vec::new());
        assert!(read(vec![narrow]).unwrap_err().to_string().contains("function .F"));
        let twins = vec![function("F", &["a"], &["a"], Vec::new()); 2];
        assert!(read(twins).unwrap_err().to_string().contains("two functions"));
        let silent = function("F", &["a"], &["b"], Vec::new());
        assert!(read(vec![silent]).unwrap_err().to_string().contains("nothing makes the value 'y'"));
    }
}
