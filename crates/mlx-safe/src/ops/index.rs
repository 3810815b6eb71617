//! Reading by index.
//!
//! MLX does not check indices: one out of range reads foreign memory on some back ends. Bound them first.

use super::{by_axis, functions, methods, op};
use crate::error::argument;
use crate::handle::VectorArray;
use crate::{Array, Result};

by_axis! {
    /// Elements of `axis` at `indices` (any shape), which replaces the axis; `None` indexes the flattened array. Indices
    /// must be in range.
    take[axis](indices: &Array, axis: impl Into<Option<i32>>)
        => mlx_take(indices.raw()), mlx_take_axis(indices.raw(), axis);
}

methods! {
    /// Element `indices[i..]` along `axis` for every position of `indices`. Indices must be in range.
    take_along_axis(indices: &Array, axis: i32) => mlx_take_along_axis(indices.raw(), axis);
    /// `size[i]` elements of every axis i, from `start[j]` (an integer array) on the axes `axes[j]` and from 0 on the
    /// others. A start that leaves too little is moved back.
    slice_dynamic(start: &Array, axes: &[i32], size: &[i32]) => mlx_slice_dynamic(
        start.raw(), axes.as_ptr(), axes.len(), size.as_ptr(), size.len());
    /// [`Array::gather`] with one index array, on `axis`.
    gather_single(indices: &Array, axis: i32, slice_sizes: &[i32]) => mlx_gather_single(
        indices.raw(), axis, slice_sizes.as_ptr(), slice_sizes.len());
}

functions! {
    /// `x` where `condition`, else `y`; the three broadcast.
    where_(condition: &Array, x: &Array, y: &Array) => mlx_where(condition.raw(), x.raw(), y.raw());
}

impl Array {
    /// Elements from `start` to `stop` by `strides`, one entry an axis; see [`Array::index`] for ranges. Negative strides
    /// make a copy: of a view that runs backwards, MLX's `split` takes the axis for one that is broadcast, and what follows
    /// repeats its first element.
    ///
    /// # Errors
    /// If the slices differ in length from the rank.
    pub fn slice(&self, start: &[i32], stop: &[i32], strides: &[i32]) -> Result<Array> {
        let (begin, end, by) = (start.as_ptr(), stop.as_ptr(), strides.as_ptr());
        let (b, e, n) = (start.len(), stop.len(), strides.len());
        let view = op!("slice", mlx_slice(self.raw(), begin, b, end, e, by, n))?;
        if strides.iter().any(|&stride| stride < 0) { view.contiguous() } else { Ok(view) }
    }

    /// MLX's gather: one slice of `slice_sizes` for each position of the broadcast `indices`, whose i-th array indexes
    /// axis `axes[i]`. Shape: broadcast index shape followed by `slice_sizes`. Indices must be in range.
    ///
    /// # Errors
    /// If the numbers of axes, index arrays and sizes do not fit.
    pub fn gather(&self, indices: &[Array], axes: &[i32], slice_sizes: &[i32]) -> Result<Array> {
        if slice_sizes.len() != self.ndim() || indices.len() != axes.len() {
            return argument(
                "gather",
                "one slice size an axis and one index array an indexed axis are needed",
            );
        }
        let indices = VectorArray::from_arrays(indices)?;
        let (sizes, n) = (slice_sizes.as_ptr(), slice_sizes.len());
        op!("gather", mlx_gather(self.raw(), indices.raw(), axes.as_ptr(), axes.len(), sizes, n))
    }
}
