//! Indices made safe. MLX checks none and touches whatever memory one points to, so every operation of this crate that takes
//! an array of indices has it bounded in the graph: a negative one counts from the end, and one that is then out of range
//! becomes the nearest that is in it. Few indices that are at hand on the CPU are looked at instead, at no cost in the graph.

use mlx_sys as sys;

use crate::{Array, Result, Stream};

/// `indices` into `axes` of `of`, taken as one axis, such that `span` elements from each on are there.
pub(crate) fn bounded(
    op: &'static str,
    indices: &Array,
    of: &Array,
    axes: &[i32],
    span: i32,
) -> Result<Array> {
    Stream::with_current(|stream| {
        Array::from_op(op, |out| {
            // SAFETY: `out` is an empty handle, the others are live, and `axes` outlives the call with its length beside it.
            unsafe {
                sys::ortmlx_bounded_indices(
                    out,
                    indices.raw(),
                    of.raw(),
                    axes.as_ptr(),
                    axes.len(),
                    span,
                    stream,
                )
            }
        })
    })
}

/// `indices` into the leading axes of `of`, a batch of matrices.
pub(crate) fn bounded_batch(op: &'static str, indices: Option<&Array>, of: &Array) -> Result<Option<Array>> {
    let batch: Vec<i32> = (0..of.ndim() as i32 - 2).collect();
    indices.map(|indices| bounded(op, indices, of, &batch, 1)).transpose()
}

/// Where slices begin: `start` has one index for each of `axes`, on which the slice has `sizes`.
pub(crate) fn bounded_starts(
    op: &'static str,
    start: &Array,
    of: &Array,
    axes: &[i32],
    sizes: &[i32],
) -> Result<Array> {
    if sizes.len() != axes.len() || start.size() != axes.len() {
        return crate::error::argument(
            op,
            format!("{start:?} for axes {axes:?}: one start an axis is needed"),
        );
    }
    Stream::with_current(|stream| {
        Array::from_op(op, |out| {
            // SAFETY: `out` is an empty handle, the others are live, and both slices, of one length, outlive the call.
            unsafe {
                sys::ortmlx_bounded_starts(
                    out,
                    start.raw(),
                    of.raw(),
                    axes.as_ptr(),
                    sizes.as_ptr(),
                    axes.len(),
                    stream,
                )
            }
        })
    })
}
