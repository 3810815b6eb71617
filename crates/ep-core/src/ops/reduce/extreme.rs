//! Largest and smallest, with ONNX Runtime's rule for NaN: it counts only where it comes first.

use mlx_safe::{Array, Dtype, where_};

use crate::LowerError;

/// Largest or smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extreme {
    Max,
    Min,
}

impl Extreme {
    /// What every value of `dtype` beats.
    pub(super) fn identity(self, dtype: Dtype) -> Result<Array, LowerError> {
        let lowest = self == Self::Max;
        let end = if lowest { f64::NEG_INFINITY } else { f64::INFINITY };
        Ok(match dtype {
            Dtype::Int64 => Array::scalar(if lowest { i64::MIN } else { i64::MAX }),
            Dtype::Uint64 => Array::scalar(if lowest { u64::MIN } else { u64::MAX }),
            // Integers saturate.
            dtype => Array::scalar_of(end, dtype)?,
        })
    }
}

/// The extreme of `x` over `axes`, which must not be empty of elements.
pub(super) fn extreme(x: &Array, axes: &[i32], keepdims: bool, which: Extreme) -> Result<Array, LowerError> {
    Ok(match (which, x.dtype()) {
        (Extreme::Max, Dtype::Bool) => x.any(axes, keepdims)?,
        (Extreme::Min, Dtype::Bool) => x.all(axes, keepdims)?,
        (_, dtype) if dtype.is_float() => {
            let numbers = where_(&x.isnan()?, &which.identity(dtype)?, x)?;
            let first = first(x, axes)?;
            let y = plain(&numbers, axes, true, which)?;
            let y = where_(&first.isnan()?, &first, &y)?;
            if keepdims { y } else { y.squeeze(axes)? }
        }
        _ => plain(x, axes, keepdims, which)?,
    })
}

fn plain(x: &Array, axes: &[i32], keepdims: bool, which: Extreme) -> mlx_safe::Result<Array> {
    match which {
        Extreme::Max => x.max(axes, keepdims),
        Extreme::Min => x.min(axes, keepdims),
    }
}

/// Index (uint32) of the first extreme along `axis`, which must not be empty; the axis stays, with size 1.
pub(crate) fn first_extreme(x: &Array, axis: i32, which: Extreme) -> Result<Array, LowerError> {
    let search = |x: &Array| match which {
        Extreme::Max => x.argmax(axis, true),
        Extreme::Min => x.argmin(axis, true),
    };
    if !x.dtype().is_float() {
        return Ok(search(x)?);
    }
    let found = search(&where_(&x.isnan()?, &which.identity(x.dtype())?, x)?)?;
    Ok(where_(&first(x, &[axis])?.isnan()?, &Array::scalar(0u32), &found)?)
}

/// The elements at index 0 of all `axes`.
fn first(x: &Array, axes: &[i32]) -> mlx_safe::Result<Array> {
    let mut stop = x.shape().to_vec();
    for &axis in axes {
        stop[axis as usize] = 1;
    }
    x.slice(&vec![0; stop.len()], &stop, &vec![1; stop.len()])
}
