//! Fused kernels for MLX, and the plain forms that define them.
//!
//! Every kernel has a composed form in MLX operations, which is its definition and the oracle that it is tested against; the
//! composed forms themselves are tested against float64. The `host` modules are plain Rust over slices and need no MLX.
#![forbid(unsafe_code)]

pub mod attention;
mod emitter;
mod error;
mod exp;
pub mod linear_scan;
pub mod sample;
pub mod selective_scan;

pub use emitter::Emitter;
pub use error::{Error, Result};
