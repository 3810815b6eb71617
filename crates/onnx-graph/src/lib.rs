//! An owned model of ONNX graphs, independent of who made them: ONNX Runtime, a `.onnx` file, or a test.
//!
//! A [`Graph`] holds [`Node`]s and [`Value`]s in arenas addressed by [`NodeId`] and [`ValueId`]. Bodies of control
//! flow nodes are whole `Graph`s inside attributes. Weights borrow from their source for `'a`.
//!
//! This crate knows nothing of MLX or of ONNX Runtime.
#![forbid(unsafe_code)]

mod attribute;
mod builder;
mod edit;
mod element;
mod error;
mod graph;
mod partition;
pub mod pattern;
mod proto;
mod read;
mod shape;
mod tensor;
mod topo;
mod types;
mod write;

pub use attribute::Attribute;
pub use builder::{GraphBuilder, NodeBuilder};
pub use element::ElementType;
pub use error::Error;
pub use graph::{Graph, Node, NodeId, Use, Value, ValueId, ValueType};
pub use partition::{Cluster, Membership, partition};
pub use read::{Model, read_bytes, read_file};
pub use shape::{Dim, Shape, TensorType};
pub use tensor::Tensor;
pub use topo::topological_order;
pub use write::write_bytes;
