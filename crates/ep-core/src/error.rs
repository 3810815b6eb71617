//! Errors, and the normal answer "no".

use std::fmt;

use onnx_graph::ElementType;

use crate::Precision;

/// Why a node stays with ONNX Runtime: a class for statistics and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decline {
    /// The class.
    pub code: DeclineCode,
    /// The sentence.
    pub detail: String,
}

/// Classes of [`Decline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeclineCode {
    /// No entry in the registry.
    Unknown,
    /// An element type that MLX, or the operator here, does not have.
    Type,
    /// An attribute value that is not supported.
    Attribute,
    /// A form of the operator that is not supported: an input, an output, a rank.
    Form,
    /// The model breaks the operator's rules; ONNX Runtime will say so better.
    Invalid,
    /// The claim policy keeps the node away.
    Policy,
}

impl Decline {
    /// A decline of class `code`.
    pub fn new(code: DeclineCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    /// The element type of something is not supported.
    pub fn dtype(what: &str, element: ElementType) -> Self {
        Self::new(DeclineCode::Type, format!("{what} is {element}, which is not supported here"))
    }

    /// An attribute's value is not supported.
    pub fn attribute(name: &str, value: impl fmt::Display) -> Self {
        Self::new(DeclineCode::Attribute, format!("{name} = {value} is not supported"))
    }

    /// A form of the operator is not supported.
    pub fn form(detail: impl Into<String>) -> Self {
        Self::new(DeclineCode::Form, detail)
    }

    /// The model is wrong.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(DeclineCode::Invalid, detail)
    }
}

impl fmt::Display for Decline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

/// Why one node could not be lowered or run.
#[derive(Debug, thiserror::Error)]
pub enum LowerError {
    /// MLX refused.
    #[error(transparent)]
    Mlx(#[from] mlx_safe::Error),
    /// The values at run time break the operator's rules.
    #[error("{0}")]
    Invalid(String),
    /// A trace cannot go on without values.
    #[error("reads on the host what the device computes")]
    Values,
    /// Something inside the node's body failed.
    #[error(transparent)]
    Body(#[from] Box<Error>),
    /// A broken invariant of this crate.
    #[error("bug in ort-mlx, please report it: {0}")]
    Bug(String),
}

impl From<Error> for LowerError {
    fn from(error: Error) -> Self {
        Self::Body(Box::new(error))
    }
}

impl From<kernels_metal::Error> for LowerError {
    fn from(error: kernels_metal::Error) -> Self {
        match error {
            kernels_metal::Error::Mlx(error) => Self::Mlx(error),
            // What else a kernel refuses is what it was given.
            other => Self::Invalid(other.to_string()),
        }
    }
}

impl LowerError {
    /// The values at run time break the operator's rules.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::Invalid(detail.into())
    }
}

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One node failed.
    #[error("{op} node {node}: {source}")]
    Node {
        /// The operator.
        op: String,
        /// The node's name in quotes, or its index where it has none.
        node: String,
        /// What went wrong.
        source: LowerError,
    },
    /// MLX refused outside any node.
    #[error(transparent)]
    Mlx(#[from] mlx_safe::Error),
    /// The graph is malformed.
    #[error(transparent)]
    Graph(#[from] onnx_graph::Error),
    /// A device that was asked for is not there.
    #[error("device {wanted} is not available: {hint}")]
    Device {
        /// What was asked for.
        wanted: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// Sessions of one process ask for different precisions.
    #[error(
        "precision={wanted} cannot be had: an earlier session of this process runs with precision={agreed}, and MLX asks once. \
         Give both sessions the same, or each a process of its own"
    )]
    Precision {
        /// What this session asks for.
        wanted: Precision,
        /// What the earlier one asked for.
        agreed: Precision,
    },
    /// An input does not fit the program.
    #[error("input {index}: {detail}")]
    Input {
        /// Which one.
        index: usize,
        /// What is wrong.
        detail: String,
    },
    /// The output buffer could not be had.
    #[error("output {index}: {source}")]
    Output {
        /// Which one.
        index: usize,
        /// The host's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A trace cannot go on without an evaluation.
    #[error("a loop evaluates as it goes, because it is long or its arrays are large")]
    Evaluates,
    /// The process was forked after the session was made.
    #[error(
        "this session was made before fork(): MLX's threads do not exist in the child. Create the session in the child, \
         or start processes with 'spawn'"
    )]
    Forked,
    /// The process was forked after MLX was used, and a session wants another limit of MLX's.
    #[error(
        "memory_cache cannot be set in a process forked from one that used MLX: set it there, or start processes with 'spawn'"
    )]
    ForkedCache,
    /// A thread that serves a device is gone or could not be started.
    #[error("the MLX worker thread failed: {0}")]
    Worker(String),
    /// A broken invariant of this crate.
    #[error("bug in ort-mlx, please report it: {0}")]
    Bug(String),
}
