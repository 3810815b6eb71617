//! Writing to a part: copies in which a slice is changed. `update` broadcasts to the slice.

use super::bounds::bounded_starts;
use super::index::steps;
use super::op;
use crate::error::argument;
use crate::{Array, Result};

macro_rules! updates {
    ($($(#[$doc:meta])* $name:ident => $raw:ident;)*) => {
        impl Array {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// If the slices differ in length from the rank, a stride is 0, or `update` does not broadcast to the part.
            pub fn $name(&self, update: &Array, start: &[i32], stop: &[i32], strides: &[i32]) -> Result<Array> {
                const NAME: &str = stringify!($name);
                let [start, stop, strides] = steps(NAME, self, [start, stop, strides])?;
                let (begin, end, by, n) = (start.as_ptr(), stop.as_ptr(), strides.as_ptr(), strides.len());
                op!(NAME, $raw(self.raw(), update.raw(), begin, n, end, n, by, n))
            }
        )*}
    };
}

updates! {
    /// A copy with `update` written from `start` to `stop` by `strides`, one entry an axis.
    slice_update => mlx_slice_update;
    /// A copy with `update` added from `start` to `stop` by `strides`, one entry an axis.
    slice_update_add => mlx_slice_update_add;
    /// A copy with `update` multiplied in from `start` to `stop` by `strides`, one entry an axis.
    slice_update_prod => mlx_slice_update_prod;
    /// A copy with `update` where it is larger, from `start` to `stop` by `strides`, one entry an axis.
    slice_update_max => mlx_slice_update_max;
    /// A copy with `update` where it is smaller, from `start` to `stop` by `strides`, one entry an axis.
    slice_update_min => mlx_slice_update_min;
}

impl Array {
    /// A copy with `update` written from `start[j]` (an integer array) on the axes `axes[j]`, from 0 on the others. A start
    /// that leaves too little room is moved back.
    ///
    /// # Errors
    /// If numbers do not fit, or `update` is larger than the array.
    pub fn slice_update_dynamic(&self, update: &Array, start: &Array, axes: &[i32]) -> Result<Array> {
        const NAME: &str = "slice_update_dynamic";
        // MLX gives the leading axes that `update` lacks size 1 where they are named, else the array's.
        let Some(lacking) = self.ndim().checked_sub(update.ndim()) else {
            return argument(NAME, format!("{update:?} has more axes than {self:?}"));
        };
        let size = |axis: usize| if axis < lacking { 1 } else { update.shape()[axis - lacking] };
        let sizes: Result<Vec<i32>> = axes.iter().map(|&axis| Ok(size(self.axis(axis)?))).collect();
        let start = bounded_starts(NAME, start, self, axes, &sizes?)?;
        let (axis, n) = (axes.as_ptr(), axes.len());
        op!(NAME, mlx_slice_update_dynamic(self.raw(), update.raw(), start.raw(), axis, n))
    }
}
