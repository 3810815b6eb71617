//! Sorting and searching. NaN sorts last; indices of complex numbers with NaN among them are in no order.

use super::op;
use crate::error::argument;
use crate::{Array, Result};

/// Declares methods that reorder an axis, or with `None` the flattened array.
macro_rules! orders {
    ($($(#[$doc:meta])* $name:ident($($arg:ident)?) => $flat:ident, $along:ident;)*) => {
        impl Array {$(
            $(#[$doc])*
            pub fn $name(&self, $($arg: i32,)? axis: impl Into<Option<i32>>) -> Result<Array> {
                let axis = axis.into();
                $(self.has_place(stringify!($name), $arg, axis)?;)?
                match axis {
                    None => op!(stringify!($name), $flat(self.raw(), $($arg)?)),
                    Some(axis) => op!(stringify!($name), $along(self.raw(), $($arg,)? axis)),
                }
            }
        )*}
    };
}

orders! {
    /// Sorted along `axis`, ascending.
    sort() => mlx_sort, mlx_sort_axis;
    /// Indices (uint32) that sort along `axis`, ascending and stable.
    argsort() => mlx_argsort, mlx_argsort_axis;
    /// Reordered along `axis` so that element `kth` is where sorting puts it, smaller ones before and larger ones after.
    partition(kth) => mlx_partition, mlx_partition_axis;
    /// Indices (uint32) that partition along `axis`.
    argpartition(kth) => mlx_argpartition, mlx_argpartition_axis;
}

/// Where [`Array::searchsorted`] puts a value among equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before them.
    Left,
    /// After them.
    Right,
}

impl Array {
    /// Whether sorting has a place `kth`, which counts from the end if negative.
    fn has_place(&self, op: &'static str, kth: i32, axis: Option<i32>) -> Result<()> {
        let n = axis.map_or(Ok(self.size() as i64), |axis| self.dim(axis).map(i64::from))?;
        let kth = i64::from(kth);
        if kth < -n || kth >= n {
            return argument(op, format!("there is no place {kth} among {n}"));
        }
        Ok(())
    }

    /// The `k` largest along `axis`, or with `None` of the flattened array, in no order.
    ///
    /// # Errors
    /// If there are fewer than `k`.
    pub fn topk(&self, k: i32, axis: impl Into<Option<i32>>) -> Result<Array> {
        match axis.into() {
            None => op!("topk", mlx_topk(self.raw(), k)),
            Some(axis) => op!("topk", mlx_topk_axis(self.raw(), k, axis)),
        }
    }

    /// Where each of `values` (any shape) would go in this ascending vector: indices (uint32) of the shape of `values`.
    ///
    /// # Errors
    /// If the array is not a vector.
    pub fn searchsorted(&self, values: &Array, side: Side) -> Result<Array> {
        let side = match side {
            Side::Left => c"left",
            Side::Right => c"right",
        };
        op!("searchsorted", mlx_searchsorted(self.raw(), values.raw(), side.as_ptr()))
    }
}
