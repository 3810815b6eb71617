//! Evaluation and compilation.

use mlx_sys as sys;

use crate::error::check;
use crate::handle::VectorArray;
use crate::{Array, Closure, Result};

/// Computes `arrays` now, in one pass over their common graph.
///
/// # Errors
/// If any operation that they depend on fails.
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    let arrays = VectorArray::from_arrays(arrays)?;
    check("eval", || {
        // SAFETY: the vector is live.
        unsafe { sys::mlx_eval(arrays.raw()) }
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
        unsafe { sys::mlx_async_eval(arrays.raw()) }
    })
}

/// A compiled form of `function`, traced once for every new input shape, or once in all if `shapeless`.
///
/// # Errors
/// If MLX refuses.
pub fn compile(function: &Closure, shapeless: bool) -> Result<Closure> {
    Closure::from_op("compile", |out| {
        // SAFETY: `out` is empty, `function` is live; MLX shares its reference.
        unsafe { sys::mlx_compile(out, function.raw(), shapeless) }
    })
}
