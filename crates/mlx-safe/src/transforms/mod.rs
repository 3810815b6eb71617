//! Evaluation, and functions made of functions.

mod compile;
mod custom;
mod grad;
mod recording;
mod vmap;

use mlx_sys as sys;

use crate::error::check;
use crate::handle::VectorArray;
use crate::{Array, Result};

pub use compile::{compile, compile_shapeless};
pub use custom::{checkpoint, custom_vjp};
pub use grad::{grad, jvp, value_and_grad, vjp};
pub use recording::Recording;
pub use vmap::vmap;

/// Computes `arrays` now, in one pass over their common graph.
///
/// # Errors
/// If any operation that they depend on fails.
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays = VectorArray::from_arrays(arrays)?;
    check("eval", || {
        // SAFETY: the vector is live.
        unsafe { sys::ortmlx_eval(arrays.raw()) }
    })
}

/// Starts computing `arrays` and returns.
///
/// # Errors
/// If the work cannot be started; errors of the work itself come at the next [`eval`].
pub fn async_eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays = VectorArray::from_arrays(arrays)?;
    check("async_eval", || {
        // SAFETY: the vector is live.
        unsafe { sys::ortmlx_async_eval(arrays.raw()) }
    })
}
