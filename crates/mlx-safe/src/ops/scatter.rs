//! Writing by index: copies with some elements changed.
//!
//! MLX does not check indices: one out of range writes foreign memory on some back ends. Bound them first.

use mlx_sys as sys;

use super::methods;
use crate::handle::VectorArray;
use crate::{Array, Result, Stream};

methods! {
    /// A copy with `values` put at `indices` along `axis`. Indices must be in range.
    put_along_axis(indices: &Array, values: &Array, axis: i32) => mlx_put_along_axis(indices.raw(), values.raw(), axis);
    /// A copy with `values` added at `indices` along `axis`. Indices must be in range.
    scatter_add_axis(indices: &Array, values: &Array, axis: i32) => mlx_scatter_add_axis(indices.raw(), values.raw(), axis);
    /// A copy with `values`, in order, where `mask` (of this shape, or of its first axes) is true. There must be enough.
    masked_scatter(mask: &Array, values: &Array) => mlx_masked_scatter(mask.raw(), values.raw());
}

/// What a scatter does with the value that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterMode {
    /// Replaces it.
    Set,
    /// Adds to it.
    Add,
    /// Multiplies it.
    Prod,
    /// Keeps the larger.
    Max,
    /// Keeps the smaller.
    Min,
}

impl Array {
    /// MLX's scatter: writes `updates` (broadcast index shape followed by one slice, of rank `self.ndim()`) at
    /// `indices` of `axes`. Indices must be in range.
    ///
    /// # Errors
    /// If shapes and numbers do not fit.
    pub fn scatter(
        &self,
        mode: ScatterMode,
        indices: &[Array],
        updates: &Array,
        axes: &[i32],
    ) -> Result<Array> {
        let function = match mode {
            ScatterMode::Set => sys::mlx_scatter,
            ScatterMode::Add => sys::mlx_scatter_add,
            ScatterMode::Prod => sys::mlx_scatter_prod,
            ScatterMode::Max => sys::mlx_scatter_max,
            ScatterMode::Min => sys::mlx_scatter_min,
        };
        let indices = VectorArray::from_arrays(indices)?;
        Stream::with_current(|s| {
            Array::from_op("scatter", |out| {
                // SAFETY: every handle is live and `axes` outlives the call with its length beside it.
                unsafe {
                    function(out, self.raw(), indices.raw(), updates.raw(), axes.as_ptr(), axes.len(), s)
                }
            })
        })
    }

    /// [`Array::scatter`] with one index array, on `axis`.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn scatter_single(
        &self,
        mode: ScatterMode,
        indices: &Array,
        updates: &Array,
        axis: i32,
    ) -> Result<Array> {
        let function = match mode {
            ScatterMode::Set => sys::mlx_scatter_single,
            ScatterMode::Add => sys::mlx_scatter_add_single,
            ScatterMode::Prod => sys::mlx_scatter_prod_single,
            ScatterMode::Max => sys::mlx_scatter_max_single,
            ScatterMode::Min => sys::mlx_scatter_min_single,
        };
        Stream::with_current(|s| {
            Array::from_op("scatter_single", |out| {
                // SAFETY: every handle is live; `out` is empty.
                unsafe { function(out, self.raw(), indices.raw(), updates.raw(), axis, s) }
            })
        })
    }
}
