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
        let strides = &steps("slice", self, strides)?[..];
        let (begin, end, by) = (start.as_ptr(), stop.as_ptr(), strides.as_ptr());
        let (b, e, n) = (start.len(), stop.len(), strides.len());
        let view = op!("slice", mlx_slice(self.raw(), begin, b, end, e, by, n))?;
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

/// Strides as MLX may have them: it divides by them, and adds them to sizes in 32 bits.
pub(super) fn steps(op: &'static str, array: &Array, strides: &[i32]) -> Result<Vec<i32>> {
    if strides.len() != array.ndim() || strides.contains(&0) {
        return argument(op, format!("strides {strides:?} of {array:?}: one an axis, none 0"));
    }
    // A longer stride takes one element, as this one does.
    let longest = array.shape().iter().map(|&n| n.max(1));
    Ok(strides.iter().zip(longest).map(|(&stride, n)| stride.clamp(-n, n)).collect())
}
