//! Sorting and searching. NaN sorts last.

use super::{op, zeros};
use crate::error::argument;
use crate::{Array, Dtype, Result};

/// Declares methods that reorder an axis, or with `None` the flattened array. MLX divides by sizes, so that an empty array is
/// answered here.
macro_rules! orders {
    ($($(#[$doc:meta])* $name:ident($($arg:ident)?) -> $dtype:expr => $flat:ident, $along:ident;)*) => {
        impl Array {$(
            $(#[$doc])*
            pub fn $name(&self, $($arg: i32,)? axis: impl Into<Option<i32>>) -> Result<Array> {
                let axis = axis.into();
                if self.size() == 0 {
                    let dtype: Option<Dtype> = $dtype;
                    return self.empty_along(axis, dtype.unwrap_or(self.dtype()), None);
                }
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
    sort() -> None => mlx_sort, mlx_sort_axis;
    /// Indices (uint32) that sort along `axis`, ascending and stable.
    argsort() -> Some(Dtype::Uint32) => mlx_argsort, mlx_argsort_axis;
    /// Reordered along `axis` so that element `kth` is where sorting puts it, smaller ones before and larger ones after.
    partition(kth) -> None => mlx_partition, mlx_partition_axis;
    /// Indices (uint32) that partition along `axis`.
    argpartition(kth) -> Some(Dtype::Uint32) => mlx_argpartition, mlx_argpartition_axis;
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
    /// The `k` largest along `axis`, or with `None` of the flattened array, in no order.
    ///
    /// # Errors
    /// If there are fewer than `k`.
    pub fn topk(&self, k: i32, axis: impl Into<Option<i32>>) -> Result<Array> {
        let axis = axis.into();
        if self.size() == 0 {
            let count = axis.map_or(Ok(0), |axis| self.dim(axis))?;
            if k < 0 || k > count {
                return argument("topk", format!("{k} of {count} elements"));
            }
            return self.empty_along(axis, self.dtype(), Some(k));
        }
        match axis {
            None => op!("topk", mlx_topk(self.raw(), k)),
            Some(axis) => op!("topk", mlx_topk_axis(self.raw(), k, axis)),
        }
    }

    /// An empty array as an operation on this empty one gives it: flattened without an axis, `axis` of another size if one is
    /// given.
    fn empty_along(&self, axis: Option<i32>, dtype: Dtype, size: Option<i32>) -> Result<Array> {
        let Some(axis) = axis else { return zeros(&[0], dtype) };
        let mut shape = self.shape().to_vec();
        let n = self.dim(axis)?;
        let axis = if axis < 0 { axis + shape.len() as i32 } else { axis };
        shape[axis as usize] = size.unwrap_or(n);
        zeros(&shape, dtype)
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
