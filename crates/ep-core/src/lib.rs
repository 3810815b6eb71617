//! Lowers ONNX graphs to MLX: which nodes can run there, how they run, and the programs made of them.
//!
//! The way of a graph: [`Engine::claim`] asks the [`registry`] about every node, [`Engine::clusters`] groups what the
//! policy keeps, [`Engine::compile`] turns one cluster into an [`Executable`], and [`Executable::run`] runs it.
//! ONNX Runtime is not known here: `ep-plugin` brings its graphs and buffers.
#![forbid(unsafe_code)]

mod axes;
mod broadcast;
mod claim;
mod cluster;
mod compile;
mod constants;
mod convert;
mod dtype;
mod engine;
mod error;
mod executable;
mod host;
mod io;
mod lowering;
mod op;
mod ops;
mod options;
mod policy;
mod precision;
mod precompute;
mod program;
pub mod registry;
mod rewrite;
mod run;
mod sums;
#[cfg(test)]
mod testing;
mod worker;

pub use claim::{Claims, Fusion, NodeRef};
pub use engine::{Engine, Executable, allocate, gpu_available, mlx_version};
pub use error::{Decline, DeclineCode, Error, LowerError};
pub use executable::mode::{Decision, Mode};
pub use io::{Elements, OutputSink, Ran, TensorView, Traffic};
pub use mlx_safe::Block;
pub(crate) use op::ShapeMode;
pub use options::{
    ClaimPolicy, CompileChoice, DeviceChoice, OptionError, Options, Precision, RewriteChoice,
    SelectiveScanChoice,
};
