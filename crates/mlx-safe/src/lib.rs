//! MLX for Rust: lazily evaluated arrays on Metal, CUDA and CPU.
//!
//! ```
//! use mlx_safe::Array;
//! let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
//! let y = x.matmul(&x)?.add(&Array::scalar(1.0f32))?;
//! assert_eq!(y.to_vec::<f32>()?, [8.0, 11.0, 16.0, 23.0]);
//! # Ok::<(), mlx_safe::Error>(())
//! ```
//!
//! # Threads
//! An [`Array`] is a reference to a node of MLX's lazy graph, and evaluating one mutates the graph that it shares with
//! others; a stream belongs to the thread that made it. So neither [`Array`] nor [`Stream`] is `Send`: keep all MLX work
//! of a device on one thread and move plain data.
//!
//! # Errors
//! Every call returns MLX's own message in [`Error`]. Nothing prints or ends the process, but that LAPACK may
//! print when a function of [`linalg`] meets NaN. What can only be found out while
//! computing (a singular matrix, a [`HostOp`] that fails) is an error of the evaluation: of [`eval`], [`Array::item`],
//! [`Array::to_vec`] and the like. The arrays of a failed evaluation hold no values to rely on.
//!
//! # Depth
//! A graph of any depth can be evaluated and dropped. Transformations ([`fn@vjp`], [`fn@grad`], [`fn@jvp`], [`fn@vmap`], [`fn@compile`]) recurse: some
//! 40000 operations one after another fit on a stack of 8 MiB, and more is an error that tells how much stack they need.
//!
//! # Indices and empty arrays
//! Arrays of indices are bounded: a negative index counts from the end, and one that is then out of range becomes the nearest
//! that is in it. An array without elements is an ordinary array on every device; an operation that cannot make elements of
//! nothing (a convolution can, a mean cannot) is an error or gives NaN, as in NumPy.
//!
//! # Devices
//! Work goes to a GPU where there is one; [`Stream::scope`] and [`Device::set_default`] choose. MLX has no GPU code for most of
//! [`linalg`], which is an error there.

mod array;
mod block;
mod callback;
mod closure;
pub mod cuda;
mod device;
mod dtype;
pub mod environment;
mod error;
pub mod fast;
pub mod fft;
mod handle;
mod host_op;
mod host_view;
mod interop;
pub mod io;
mod kernel;
mod lend;
pub mod linalg;
pub mod memory;
pub mod metal;
mod ops;
pub mod random;
mod spec;
mod stream;
mod transforms;

pub use array::{Array, CopiedBy};
pub use block::Block;
pub use closure::Closure;
pub use device::{Device, DeviceType, Property};
pub use dtype::{Dtype, Element};
pub use error::{Error, Result};
pub use host_op::{HostError, HostOp};
pub use host_view::{HostView, HostViewMut};
pub use kernel::{CudaKernel, KernelSource, Launch, MetalKernel, TemplateArg};
pub use lend::{Loans, Traffic, lend};
pub use ops::{Axes, Indexing, PadMode, Pick, Picks, Quantization, ScatterMode, Side, conv::ConvGeometry};
pub use ops::{
    arange, bartlett, blackman, broadcast_arrays, concatenate, depends, einsum, eye, full, hamming, hanning,
    identity, linspace, linspace_endpoint, meshgrid, ones, stack, tri, where_, zeros,
};
pub use spec::Spec;
pub use stream::Stream;
pub use transforms::{Recording, async_eval, checkpoint, compile, compile_shapeless, custom_vjp, eval};
pub use transforms::{grad, jvp, value_and_grad, vjp, vmap};

/// The version of the MLX library that is loaded, such as `0.32.2`.
pub fn version() -> Result<String> {
    handle::read_string("version", |out| {
        // SAFETY: `out` is a valid, empty string handle.
        unsafe { mlx_sys::mlx_version(out) }
    })
}

/// Runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
