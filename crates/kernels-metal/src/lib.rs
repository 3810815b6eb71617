//! Fused kernels for MLX, and the plain forms that define them.
//!
//! Every kernel has a composed form in MLX operations, which is its definition and the oracle that it is tested against; the
//! composed forms themselves are tested against float64. The `host` modules are plain Rust over slices and need no MLX.
#![deny(unsafe_code)]

mod arguments;
pub mod attention;
pub mod convolution;
pub mod elementwise;
mod emitter;
mod error;
mod gpu;
pub mod linear_scan;
mod pieces;
pub mod rows;
pub mod sample;
pub mod selective_scan;
pub mod simd;
mod vector_math;
mod worth;

#[cfg(test)]
extern crate self as kernels_metal; // The reference of the tests names this crate.

pub use emitter::Emitter;
pub use error::{Error, Result};
