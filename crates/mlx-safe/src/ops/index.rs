//! Reading by index. Indices are integers; negative ones count from the end, and one that is then out of range reads the
//! nearest element that is there.

use super::bounds::{bounded, bounded_starts};
use super::{functions, op};
use crate::error::argument;
use crate::handle::VectorArray;
use crate::{Array, Axes, Result};

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
    /// If the slices differ in length from the rank, or a stride is 0.
    pub fn slice(&self, start: &[i32], stop: &[i32], strides: &[i32]) -> Result<Array> {
        let [start, stop, strides] = steps("slice", self, [start, stop, strides])?;
        let (begin, end, by, n) = (start.as_ptr(), stop.as_ptr(), strides.as_ptr(), strides.len());
        let view = op!("slice", mlx_slice(self.raw(), begin, n, end, n, by, n))?;
        if strides.iter().any(|&stride| stride < 0) { view.contiguous() } else { Ok(view) }
    }

    /// Elements of `axis` at `indices` (any shape), which replaces the axis; `None` indexes the flattened array.
    ///
    /// # Errors
    /// If there is no such axis, or it has no elements.
    pub fn take(&self, indices: &Array, axis: impl Into<Option<i32>>) -> Result<Array> {
        const NAME: &str = "take";
        match axis.into() {
            None => {
                let indices = bounded(NAME, indices, self, &Axes::All.list(self.ndim()), 1)?;
                op!(NAME, mlx_take(self.raw(), indices.raw()))
            }
            Some(axis) => {
                let indices = bounded(NAME, indices, self, &[axis], 1)?;
                op!(NAME, mlx_take_axis(self.raw(), indices.raw(), axis))
            }
        }
    }

    /// Element `indices[i..]` along `axis` for every position of `indices`; the other axes broadcast.
    ///
    /// # Errors
    /// If shapes do not fit, or the axis has no elements.
    pub fn take_along_axis(&self, indices: &Array, axis: i32) -> Result<Array> {
        let indices = bounded("take_along_axis", indices, self, &[axis], 1)?;
        op!("take_along_axis", mlx_take_along_axis(self.raw(), indices.raw(), axis))
    }

    /// `size[i]` elements of every axis i, from `start[j]` (an integer array) on the axes `axes[j]` and from 0 on the
    /// others. A start that leaves too little is moved back.
    ///
    /// # Errors
    /// If numbers do not fit, or a size is negative or larger than its axis.
    pub fn slice_dynamic(&self, start: &Array, axes: &[i32], size: &[i32]) -> Result<Array> {
        const NAME: &str = "slice_dynamic";
        if size.iter().any(|&n| n < 0) {
            return argument(NAME, format!("sizes {size:?}: none may be negative"));
        }
        let sizes: Result<Vec<i32>> = axes
            .iter()
            .map(|&axis| size.get(self.axis(axis)?).copied().map_or_else(|| misfit(NAME, self, size), Ok))
            .collect();
        let start = bounded_starts(NAME, start, self, axes, &sizes?)?;
        let (axis, n, sizes, rank) = (axes.as_ptr(), axes.len(), size.as_ptr(), size.len());
        op!(NAME, mlx_slice_dynamic(self.raw(), start.raw(), axis, n, sizes, rank))
    }

    /// [`Array::gather`] with one index array, on `axis`.
    ///
    /// # Errors
    /// If the sizes do not fit.
    pub fn gather_single(&self, indices: &Array, axis: i32, slice_sizes: &[i32]) -> Result<Array> {
        self.gather(std::slice::from_ref(indices), &[axis], slice_sizes)
    }

    /// MLX's gather: one slice of `slice_sizes` for each position of the broadcast `indices`, whose i-th array indexes
    /// axis `axes[i]`. Shape: broadcast index shape followed by `slice_sizes`.
    ///
    /// # Errors
    /// If the numbers of axes, index arrays and sizes do not fit.
    pub fn gather(&self, indices: &[Array], axes: &[i32], slice_sizes: &[i32]) -> Result<Array> {
        if slice_sizes.len() != self.ndim() || indices.len() != axes.len() {
            return misfit("gather", self, slice_sizes);
        }
        let indices: Result<Vec<Array>> = indices
            .iter()
            .zip(axes)
            .map(|(indices, &axis)| bounded("gather", indices, self, &[axis], slice_sizes[self.axis(axis)?]))
            .collect();
        let indices = VectorArray::from_arrays(&indices?)?;
        let (sizes, n) = (slice_sizes.as_ptr(), slice_sizes.len());
        op!("gather", mlx_gather(self.raw(), indices.raw(), axes.as_ptr(), axes.len(), sizes, n))
    }
}

fn misfit<T>(op: &'static str, array: &Array, sizes: &[i32]) -> Result<T> {
    argument(
        op,
        format!("{array:?} and slice sizes {sizes:?}: one size an axis, one index array an indexed axis"),
    )
}

/// Starts, stops and strides as MLX may have them: it divides by strides, adds them to sizes in 32 bits, and forgets the one of
/// an axis of which one element is taken, so that its rules for derivatives take all up to the stop.
pub(super) fn steps(op: &'static str, array: &Array, given: [&[i32]; 3]) -> Result<[Vec<i32>; 3]> {
    let rank = array.ndim();
    if given.iter().any(|entries| entries.len() != rank) || given[2].contains(&0) {
        return argument(
            op,
            format!("starts, stops and strides {given:?} of {array:?}: one an axis, no stride 0"),
        );
    }
    let [mut start, mut stop, mut strides] = given.map(<[i32]>::to_vec);
    for (i, &n) in array.shape().iter().enumerate() {
        // A longer stride takes one element, as this one does.
        strides[i] = strides[i].clamp(-n.max(1), n.max(1));
        if let Some(at) = only(n.into(), start[i].into(), stop[i].into(), strides[i].into()) {
            (start[i], stop[i], strides[i]) = (at, at + 1, 1);
        }
    }
    Ok([start, stop, strides])
}

/// The element of an axis of `n` that a slice takes, if it is one.
fn only(n: i64, start: i64, stop: i64, stride: i64) -> Option<i32> {
    let wrap = |at: i64| if at < 0 { at + n } else { at };
    let (first, count) = if stride < 0 {
        let (first, end) = (wrap(start).min(n - 1), wrap(stop).max(-1));
        (first, (first - end).max(0).unsigned_abs().div_ceil(stride.unsigned_abs()))
    } else {
        let (first, end) = (wrap(start).clamp(0, n), wrap(stop).clamp(0, n));
        (first, (end - first).max(0).unsigned_abs().div_ceil(stride.unsigned_abs()))
    };
    if count != 1 || !(0..n).contains(&first) {
        return None;
    }
    i32::try_from(first).ok()
}
