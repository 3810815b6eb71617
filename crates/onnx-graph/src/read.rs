//! Reads `.onnx` files.
//!
//! Model-local functions are inlined. An initializer that is also an input may be overridden by the caller, so it stays
//! an input without a constant; before IR 4 every initializer was listed so, and there it is a constant and no input.
//! Initializers of strings, sparse ones and those of unknown element types become values without contents.

mod external;
mod function;
mod graph;
mod tensor;

use std::{cell::Cell, collections::BTreeMap, path::Path};

use prost::Message;

use crate::proto::{ModelProto, OperatorSetIdProto};
use crate::{Error, Graph};
use function::{Frame, Functions};

/// A model as a file holds it.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its graph, with every function call inlined. It owns its weights.
    pub graph: Graph<'static>,
    /// The version of each imported operator set by domain, ai.onnx under the empty name.
    pub opsets: BTreeMap<String, i64>,
    /// The version of the file format.
    pub ir_version: i64,
    /// Name and version of the program that made it; may be empty.
    pub producer: String,
    /// The model-local functions, as `domain.name`.
    pub functions: Vec<String>,
}

/// Reads a model whose tensors are all inside `bytes`.
///
/// # Errors
/// [`Error::Parse`] if these are no ONNX model or one with external data; [`Error::Graph`] and [`Error::Tensor`] for
/// what is wrong in it.
pub fn read_bytes(bytes: &[u8]) -> Result<Model, Error> {
    read(decode(bytes)?, None)
}

/// Reads the model in the file `path`. External data is looked for in its folder and nowhere else, but symbolic links
/// there are followed.
///
/// # Errors
/// Those of [`read_bytes`], and [`Error::Io`] for files that cannot be read.
pub fn read_file(path: impl AsRef<Path>) -> Result<Model, Error> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let proto = decode(&bytes)?;
    // Decoding copied the weights: do not hold them twice.
    drop(bytes);
    read(proto, Some(path.parent().unwrap_or(Path::new(""))))
}

fn decode(bytes: &[u8]) -> Result<ModelProto, Error> {
    ModelProto::decode(bytes).map_err(|e| Error::Parse(e.to_string()))
}

/// Turns messages into graphs.
struct Reader<'m> {
    functions: Functions,
    folder: Option<&'m Path>,
    ir_version: i64,
    /// How many calls were inlined, and the size of what that added.
    calls: Cell<usize>,
    inlined: Cell<usize>,
}

fn read(proto: ModelProto, folder: Option<&Path>) -> Result<Model, Error> {
    let graph = proto.graph.ok_or_else(|| Error::Parse("it has no graph".to_owned()))?;
    let mut opsets = opsets(&proto.opset_import);
    if proto.ir_version < 3 {
        // Before IR 3 a model did not say what it imports.
        opsets.entry(String::new()).or_insert(1);
    }
    let functions = Functions::new(proto.functions)?;
    let names = functions.names();
    let reader = Reader {
        functions,
        folder,
        ir_version: proto.ir_version,
        calls: Cell::new(0),
        inlined: Cell::new(0),
    };
    let graph = reader.graph(graph, &Frame::top(&opsets))?;
    if let Some(free) = graph.outer_values().next() {
        return Err(Error::Graph(format!("nothing makes the value '{}'", graph.value(free).name)));
    }
    let producer = format!("{} {}", proto.producer_name, proto.producer_version).trim().to_owned();
    Ok(Model { graph, opsets, ir_version: proto.ir_version, producer, functions: names })
}

fn opsets(imports: &[OperatorSetIdProto]) -> BTreeMap<String, i64> {
    imports.iter().map(|i| (domain(&i.domain).to_owned(), i.version)).collect()
}

/// A domain by its short name: `ai.onnx` is the empty one.
fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}
