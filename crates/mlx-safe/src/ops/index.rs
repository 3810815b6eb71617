//! Reading and writing by index.
//!
//! MLX does not check indices: one out of range reads or writes foreign memory on some back ends. Bound them first.

use mlx_sys as sys;

use super::methods;
use crate::error::argument;
use crate::handle::VectorArray;
use crate::{Array, Result, Stream};

methods! {
    /// Elements of `axis` at `indices` (any shape), which replaces the axis. Indices must be in range.
    take(indices: &Array, axis: i32) => mlx_take_axis(indices.raw(), axis);
    /// Element `indices[i..]` along `axis` for every position of `indices`. Indices must be in range.
    take_along_axis(indices: &Array, axis: i32) => mlx_take_along_axis(indices.raw(), axis);
    /// A copy with `values` put at `indices` along `axis`. Indices must be in range.
    put_along_axis(indices: &Array, values: &Array, axis: i32) => mlx_put_along_axis(indices.raw(), values.raw(), axis);
    /// A copy with `values` added at `indices` along `axis`. Indices must be in range.
    scatter_add_axis(indices: &Array, values: &Array, axis: i32) => mlx_scatter_add_axis(indices.raw(), values.raw(), axis);
    /// A copy with `update` written from `start` to `stop` by `strides`.
    slice_update(update: &Array, start: &[i32], stop: &[i32], strides: &[i32]) => mlx_slice_update(
        update.raw(), start.as_ptr(), start.len(), stop.as_ptr(), stop.len(), strides.as_ptr(), strides.len());
}

/// `x` where `condition`, else `y`; the three broadcast.
pub fn where_(condition: &Array, x: &Array, y: &Array) -> Result<Array> {
    Stream::with_current(|s| {
        Array::from_op("where", |out| {
            // SAFETY: every handle is live; `out` is empty.
            unsafe { sys::mlx_where(out, condition.raw(), x.raw(), y.raw(), s) }
        })
    })
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
    /// Elements from `start` to `stop` by `strides`, one entry an axis. Negative strides make a copy: of a view that
    /// runs backwards, MLX's `split` takes the axis for one that is broadcast, and what follows repeats its first element.
    pub fn slice(&self, start: &[i32], stop: &[i32], strides: &[i32]) -> Result<Array> {
        let view = Stream::with_current(|s| {
            Array::from_op("slice", |out| {
                // SAFETY: handles are live and each slice outlives the call with its length beside it.
                unsafe {
                    sys::mlx_slice(
                        out,
                        self.raw(),
                        start.as_ptr(),
                        start.len(),
                        stop.as_ptr(),
                        stop.len(),
                        strides.as_ptr(),
                        strides.len(),
                        s,
                    )
                }
            })
        })?;
        if strides.iter().any(|&stride| stride < 0) { view.contiguous() } else { Ok(view) }
    }

    /// MLX's gather: one slice of `slice_sizes` for each position of the broadcast `indices`, whose i-th array indexes
    /// axis `axes[i]`. Shape: broadcast index shape followed by `slice_sizes`. Indices must be in range.
    pub fn gather(&self, indices: &[Array], axes: &[i32], slice_sizes: &[i32]) -> Result<Array> {
        if slice_sizes.len() != self.ndim() || indices.len() != axes.len() {
            return argument(
                "gather",
                "one slice size an axis and one index array an indexed axis are needed",
            );
        }
        let indices = VectorArray::from_arrays(indices)?;
        Stream::with_current(|s| {
            Array::from_op("gather", |out| {
                // SAFETY: every handle is live and each slice outlives the call with its length beside it.
                unsafe {
                    sys::mlx_gather(
                        out,
                        self.raw(),
                        indices.raw(),
                        axes.as_ptr(),
                        axes.len(),
                        slice_sizes.as_ptr(),
                        slice_sizes.len(),
                        s,
                    )
                }
            })
        })
    }

    /// MLX's scatter: writes `updates` (broadcast index shape followed by one slice, of rank `self.ndim()`) at
    /// `indices` of `axes`. Indices must be in range.
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
}
