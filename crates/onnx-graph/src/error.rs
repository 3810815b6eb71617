//! What can go wrong while a graph is built, read or partitioned.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A tensor's type, sizes and bytes do not fit each other.
    #[error("bad tensor: {0}")]
    Tensor(String),
    /// A graph breaks a rule of ONNX: a name used twice, an input from nowhere, a cycle.
    #[error("bad graph: {0}")]
    Graph(String),
    /// The bytes are no ONNX model.
    #[error("not an ONNX model: {0}")]
    Parse(String),
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: std::path::PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}
