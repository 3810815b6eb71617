//! Arrays from nothing.

use mlx_sys as sys;

use crate::{Array, Dtype, Result, Stream};

/// `value` (a scalar or an array that broadcasts to `shape`) repeated, with its type.
pub fn full(shape: &[i32], value: &Array) -> Result<Array> {
    Stream::with_current(|s| {
        Array::from_op("full", |out| {
            // SAFETY: handles are live and `shape` outlives the call with its length beside it.
            unsafe { sys::mlx_full(out, shape.as_ptr(), shape.len(), value.raw(), value.dtype().raw(), s) }
        })
    })
}

/// Zeros.
pub fn zeros(shape: &[i32], dtype: Dtype) -> Result<Array> {
    Stream::with_current(|s| {
        Array::from_op("zeros", |out| {
            // SAFETY: `out` is empty and `shape` outlives the call with its length beside it.
            unsafe { sys::mlx_zeros(out, shape.as_ptr(), shape.len(), dtype.raw(), s) }
        })
    })
}

/// `start`, `start + step`, ... below `stop`.
pub fn arange(start: f64, stop: f64, step: f64, dtype: Dtype) -> Result<Array> {
    Stream::with_current(|s| {
        Array::from_op("arange", |out| {
            // SAFETY: `out` is empty and the stream is live.
            unsafe { sys::mlx_arange(out, start, stop, step, dtype.raw(), s) }
        })
    })
}

/// `count` values from `start` to `stop`, both included.
pub fn linspace(start: f64, stop: f64, count: i32, dtype: Dtype) -> Result<Array> {
    Stream::with_current(|s| {
        Array::from_op("linspace", |out| {
            // SAFETY: `out` is empty and the stream is live.
            unsafe { sys::mlx_linspace(out, start, stop, count, dtype.raw(), s) }
        })
    })
}

/// (`rows`, `columns`) with ones on diagonal `k`.
pub fn eye(rows: i32, columns: i32, k: i32, dtype: Dtype) -> Result<Array> {
    Stream::with_current(|s| {
        Array::from_op("eye", |out| {
            // SAFETY: `out` is empty and the stream is live.
            unsafe { sys::mlx_eye(out, rows, columns, k, dtype.raw(), s) }
        })
    })
}
