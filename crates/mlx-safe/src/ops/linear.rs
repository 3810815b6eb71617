//! Products of matrices and tensors. Inner sizes that differ are errors.

use std::ffi::CString;

use super::bounds::{bounded, bounded_batch};
use super::{concatenate, methods, op};
use crate::error::argument;
use crate::handle::{VectorArray, optional_float};
use crate::{Array, Result};

methods! {
    /// Product of matrices (..., M, K) and (..., K, N), broadcasting the leading axes.
    matmul(other: &Array) => mlx_matmul(other.raw());
    /// Sum over the last axes of both: (..., K) and (..., K).
    inner(other: &Array) => mlx_inner(other.raw());
    /// Every product of an element of one and one of the other, both flattened: (M, N).
    outer(other: &Array) => mlx_outer(other.raw());
    /// Kronecker's product.
    kron(other: &Array) => mlx_kron(other.raw());
    /// Sum of products along `axis`; the first array is conjugated.
    vecdot(other: &Array, axis: i32) => mlx_vecdot(other.raw(), axis);
    /// Sum over `axes` of this and `other_axes` of `other`; what is left of both, in order.
    tensordot(other: &Array, axes: &[i32], other_axes: &[i32]) => mlx_tensordot(
        other.raw(), axes.as_ptr(), axes.len(), other_axes.as_ptr(), other_axes.len());
    /// Sum over the last `count` axes of this and the first of `other`.
    tensordot_axis(other: &Array, count: i32) => mlx_tensordot_axis(other.raw(), count);
    /// [`Array::matmul`] of which masks, one value a block of `block_size` (32 or 64) square, leave blocks out or scale them:
    /// of the result (..., M / b, N / b), of this (..., M / b, K / b), of `other` (..., K / b, N / b).
    block_masked_mm(other: &Array, block_size: i32, mask_out: Option<&Array>, mask_lhs: Option<&Array>, mask_rhs: Option<&Array>)
        => mlx_block_masked_mm(other.raw(), block_size, Array::raw_or_null(mask_out), Array::raw_or_null(mask_lhs), Array::raw_or_null(mask_rhs));
    /// The last axis, of size m 2^k with m in 1, 12, 20, 28, times Hadamard's matrix and `scale`; by default 1 / sqrt(size).
    hadamard_transform(scale: Option<f32>) => mlx_hadamard_transform(optional_float(scale));
}

impl Array {
    /// `alpha` A B + `beta` times this array, which broadcasts to (..., M, N).
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn addmm(&self, a: &Array, b: &Array, alpha: f32, beta: f32) -> Result<Array> {
        // MLX's `jvp` forgets both factors.
        let (c, a) = (self.scaled(beta)?, a.scaled(alpha)?);
        op!("addmm", mlx_addmm(c.raw(), a.raw(), b.raw(), 1.0, 1.0))
    }

    fn scaled(&self, factor: f32) -> Result<Array> {
        if factor == 1.0 {
            return Ok(self.clone());
        }
        self.multiply(&Array::scalar(factor).astype(self.dtype())?)
    }

    /// Products of chosen matrices: `lhs` of this (flattened leading axes) with `rhs` of `other`, both integers; `None` takes
    /// them in order. Indices out of range are treated as by [`Array::take`]. `sorted` promises ascending indices.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn gather_mm(
        &self,
        other: &Array,
        lhs: Option<&Array>,
        rhs: Option<&Array>,
        sorted: bool,
    ) -> Result<Array> {
        const NAME: &str = "gather_mm";
        let (lhs, rhs) = (bounded_batch(NAME, lhs, self)?, bounded_batch(NAME, rhs, other)?);
        let (l, r) = (Array::raw_or_null(lhs.as_ref()), Array::raw_or_null(rhs.as_ref()));
        op!(NAME, mlx_gather_mm(self.raw(), other.raw(), l, r, sorted))
    }

    /// For each `segments[i]` = (start, stop), integers, the product of (M, K) and (K, N) over that part of K: (S, M, N).
    /// Bounds outside 0 to K are treated as by [`Array::take`]; a segment that ends before it starts is empty.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn segmented_mm(&self, other: &Array, segments: &Array) -> Result<Array> {
        const NAME: &str = "segmented_mm";
        if segments.ndim() == 0 || segments.dim(-1)? != 2 {
            return argument(NAME, format!("segments are (..., 2), not {segments:?}"));
        }
        // MLX does not compare them, and reads as far as the first goes.
        if self.ndim() != 2 || other.ndim() != 2 || self.dim(1)? != other.dim(0)? {
            return argument(NAME, format!("{self:?} and {other:?} are not (M, K) and (K, N)"));
        }
        let segments = bounded(NAME, segments, self, &[1], 0)?;
        let stop = segments.slice_axis(-1, 1..)?;
        let start = segments.slice_axis(-1, ..1)?.minimum(&stop)?;
        let segments = concatenate(&[start, stop], -1)?;
        op!(NAME, mlx_segmented_mm(self.raw(), other.raw(), segments.raw()))
    }
}

/// Einstein summation, such as `"ij,jk->ik"`.
///
/// # Errors
/// If the subscripts cannot be read or do not fit the operands.
pub fn einsum(subscripts: &str, operands: &[Array]) -> Result<Array> {
    if !subscripts.is_ascii() {
        return argument("einsum", format!("subscripts {subscripts:?} are not ASCII"));
    }
    let Ok(subscripts) = CString::new(subscripts) else { return argument("einsum", "subscripts hold a NUL") };
    let operands = VectorArray::from_arrays(operands)?;
    op!("einsum", mlx_einsum(subscripts.as_ptr(), operands.raw()))
}
