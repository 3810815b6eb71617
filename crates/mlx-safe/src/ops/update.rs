//! Writing to a part: copies in which a slice is changed. `update` broadcasts to the slice.

use super::methods;
use crate::Array;

methods! {
    /// A copy with `update` written from `start` to `stop` by `strides`, one entry an axis.
    slice_update(update: &Array, start: &[i32], stop: &[i32], strides: &[i32]) => mlx_slice_update(
        update.raw(), start.as_ptr(), start.len(), stop.as_ptr(), stop.len(), strides.as_ptr(), strides.len());
    /// A copy with `update` added from `start` to `stop` by `strides`, one entry an axis.
    slice_update_add(update: &Array, start: &[i32], stop: &[i32], strides: &[i32]) => mlx_slice_update_add(
        update.raw(), start.as_ptr(), start.len(), stop.as_ptr(), stop.len(), strides.as_ptr(), strides.len());
    /// A copy with `update` multiplied in from `start` to `stop` by `strides`, one entry an axis.
    slice_update_prod(update: &Array, start: &[i32], stop: &[i32], strides: &[i32]) => mlx_slice_update_prod(
        update.raw(), start.as_ptr(), start.len(), stop.as_ptr(), stop.len(), strides.as_ptr(), strides.len());
    /// A copy with `update` where it is larger, from `start` to `stop` by `strides`, one entry an axis.
    slice_update_max(update: &Array, start: &[i32], stop: &[i32], strides: &[i32]) => mlx_slice_update_max(
        update.raw(), start.as_ptr(), start.len(), stop.as_ptr(), stop.len(), strides.as_ptr(), strides.len());
    /// A copy with `update` where it is smaller, from `start` to `stop` by `strides`, one entry an axis.
    slice_update_min(update: &Array, start: &[i32], stop: &[i32], strides: &[i32]) => mlx_slice_update_min(
        update.raw(), start.as_ptr(), start.len(), stop.as_ptr(), stop.len(), strides.as_ptr(), strides.len());
    /// A copy with `update` written from `start[j]` (an integer array) on the axes `axes[j]`, from 0 on the others. A start
    /// that leaves too little room is moved back.
    slice_update_dynamic(update: &Array, start: &Array, axes: &[i32]) => mlx_slice_update_dynamic(
        update.raw(), start.raw(), axes.as_ptr(), axes.len());
}
