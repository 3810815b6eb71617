//! Node attributes of every kind that ONNX has.

use std::sync::Arc;

use crate::{Graph, Tensor};

/// The value of a node's attribute (`AttributeProto`).
#[derive(Clone, Debug)]
pub enum Attribute<'a> {
    /// `FLOAT`
    Float(f32),
    /// `INT`
    Int(i64),
    /// `STRING`: bytes, by convention UTF-8.
    String(Vec<u8>),
    /// `TENSOR`
    Tensor(Tensor<'a>),
    /// `GRAPH`: the body of a control flow node.
    Graph(Arc<Graph<'a>>),
    /// `FLOATS`
    Floats(Vec<f32>),
    /// `INTS`
    Ints(Vec<i64>),
    /// `STRINGS`
    Strings(Vec<Vec<u8>>),
    /// `TENSORS`
    Tensors(Vec<Tensor<'a>>),
    /// `GRAPHS`
    Graphs(Vec<Arc<Graph<'a>>>),
    /// A kind that this crate does not carry, by name: sparse tensors, types, tensors of strings.
    Other(&'static str),
}

impl Attribute<'_> {
    /// The kind's name, as `AttributeProto.AttributeType` writes it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Float(_) => "FLOAT",
            Self::Int(_) => "INT",
            Self::String(_) => "STRING",
            Self::Tensor(_) => "TENSOR",
            Self::Graph(_) => "GRAPH",
            Self::Floats(_) => "FLOATS",
            Self::Ints(_) => "INTS",
            Self::Strings(_) => "STRINGS",
            Self::Tensors(_) => "TENSORS",
            Self::Graphs(_) => "GRAPHS",
            Self::Other(kind) => kind,
        }
    }
}

macro_rules! from {
    ($($source:ty => $variant:ident($convert:expr);)*) => {$(
        impl<'a> From<$source> for Attribute<'a> {
            fn from(value: $source) -> Self {
                Self::$variant($convert(value))
            }
        }
    )*};
}

from! {
    f32 => Float(std::convert::identity);
    i64 => Int(std::convert::identity);
    &str => String(|s: &str| s.as_bytes().to_vec());
    Vec<f32> => Floats(std::convert::identity);
    Vec<i64> => Ints(std::convert::identity);
    Vec<&str> => Strings(|s: Vec<&str>| s.iter().map(|s| s.as_bytes().to_vec()).collect());
    Tensor<'a> => Tensor(std::convert::identity);
    Graph<'a> => Graph(Arc::new);
}
