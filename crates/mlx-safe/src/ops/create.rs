//! Arrays from nothing. A negative size is an error.

use super::{functions, methods, op};
use crate::{Array, Dtype, Result};

functions! {
    /// `value` (a scalar or an array that broadcasts to `shape`) repeated, with its type.
    full(shape: &[i32], value: &Array) => mlx_full(shape.as_ptr(), shape.len(), value.raw(), value.dtype().raw());
    /// Zeros.
    zeros(shape: &[i32], dtype: Dtype) => mlx_zeros(shape.as_ptr(), shape.len(), dtype.raw());
    /// Ones.
    ones(shape: &[i32], dtype: Dtype) => mlx_ones(shape.as_ptr(), shape.len(), dtype.raw());
    /// `start`, `start + step`, ... below `stop`: shape [ceil((stop - start) / step)].
    arange(start: f64, stop: f64, step: f64, dtype: Dtype) => mlx_arange(start, stop, step, dtype.raw());
    /// `count` values from `start` to `stop`, both included.
    linspace(start: f64, stop: f64, count: i32, dtype: Dtype) => mlx_linspace(start, stop, count, dtype.raw());
    /// `count` values from `start` to `stop`, which is left out unless `endpoint`.
    linspace_endpoint(start: f64, stop: f64, count: i32, endpoint: bool, dtype: Dtype)
        => mlx_linspace_endpoint(start, stop, count, endpoint, dtype.raw());
    /// (`rows`, `columns`) with ones on diagonal `k`.
    eye(rows: i32, columns: i32, k: i32, dtype: Dtype) => mlx_eye(rows, columns, diagonal_within(k, rows, columns), dtype.raw());
    /// (`n`, `n`) with ones on the diagonal.
    identity(n: i32, dtype: Dtype) => mlx_identity(n, dtype.raw());
    /// (`rows`, `columns`) with ones on diagonal `k` and below.
    tri(rows: i32, columns: i32, k: i32, dtype: Dtype) => mlx_tri(rows, columns, diagonal_within(k, rows, columns), dtype.raw());
    /// Bartlett's (triangular) window of `n` points, float32.
    bartlett(n: i32) => mlx_bartlett(n);
    /// Blackman's window of `n` points, float32.
    blackman(n: i32) => mlx_blackman(n);
    /// Hamming's window of `n` points, float32.
    hamming(n: i32) => mlx_hamming(n);
    /// Von Hann's window of `n` points, float32.
    hanning(n: i32) => mlx_hanning(n);
}

methods! {
    /// `value`, broadcast to this array's shape, as `dtype`.
    full_like(value: &Array, dtype: Dtype) => mlx_full_like(value.raw(), dtype.raw());
    /// Zeros of this shape and type.
    zeros_like() => mlx_zeros_like();
    /// Zeros of this shape.
    zeros_like_dtype(dtype: Dtype) => mlx_zeros_like_dtype(dtype.raw());
    /// Ones of this shape and type.
    ones_like() => mlx_ones_like();
    /// Ones of this shape.
    ones_like_dtype(dtype: Dtype) => mlx_ones_like_dtype(dtype.raw());
    /// A vector on diagonal `k` of a square matrix, or diagonal `k` of a matrix as a vector.
    diag(k: i32) => mlx_diag(k);
}

/// The diagonal of a matrix that does as `k`: MLX counts from it in 32 bits.
fn diagonal_within(k: i32, rows: i32, columns: i32) -> i32 {
    k.clamp(-rows.max(0), columns.max(0))
}

impl Array {
    /// Zero above diagonal `k`.
    ///
    /// # Errors
    /// If there are fewer than two axes.
    pub fn tril(&self, k: i32) -> Result<Array> {
        let k = diagonal_within(k, self.dim(-2)?, self.dim(-1)?);
        op!("tril", mlx_tril(self.raw(), k))
    }

    /// Zero below diagonal `k`.
    ///
    /// # Errors
    /// If there are fewer than two axes.
    pub fn triu(&self, k: i32) -> Result<Array> {
        let (rows, columns) = (self.dim(-2)?, self.dim(-1)?);
        op!("triu", mlx_triu(self.raw(), diagonal_within(k, rows, columns)))
    }

    /// Zeros of this shape if a source is empty: MLX reads, without end, what is not there.
    pub(super) fn zeros_if_from_empty(self, sources: &[&Array]) -> Result<Array> {
        if sources.iter().any(|source| source.size() == 0) {
            zeros(self.shape(), self.dtype())
        } else {
            Ok(self)
        }
    }
}
