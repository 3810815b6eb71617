//! Random numbers (`mlx.core.random`). Equal keys give equal numbers; without a key each thread has a sequence of its own,
//! which [`seed`] starts anew. Bounds and parameters are arrays that broadcast to `shape`.

use crate::error::check;
use crate::ops::{functions, op, op_pair};
use crate::{Array, Dtype, Result};

functions! {
    /// True with probability `p`: a bool array.
    bernoulli(p: &Array, shape: &[i32], key: Option<&Array>)
        => mlx_random_bernoulli(p.raw(), shape.as_ptr(), shape.len(), Array::raw_or_null(key));
    /// Unsigned integers of `width` bytes (1, 2 or 4) with random bits.
    bits(shape: &[i32], width: i32, key: Option<&Array>)
        => mlx_random_bits(shape.as_ptr(), shape.len(), width, Array::raw_or_null(key));
    /// Indices (uint32) drawn along `axis` of unnormalised log-probabilities: the shape of `logits` without it.
    categorical(logits: &Array, axis: i32, key: Option<&Array>)
        => mlx_random_categorical(logits.raw(), axis, Array::raw_or_null(key));
    /// The same as `shape`, to which the shape of `logits` without `axis` broadcasts.
    categorical_shape(logits: &Array, axis: i32, shape: &[i32], key: Option<&Array>)
        => mlx_random_categorical_shape(logits.raw(), axis, shape.as_ptr(), shape.len(), Array::raw_or_null(key));
    /// `count` draws each, along a new last axis.
    categorical_num_samples(logits: &Array, axis: i32, count: i32, key: Option<&Array>)
        => mlx_random_categorical_num_samples(logits.raw(), axis, count, Array::raw_or_null(key));
    /// Gumbel's standard distribution.
    gumbel(shape: &[i32], dtype: Dtype, key: Option<&Array>)
        => mlx_random_gumbel(shape.as_ptr(), shape.len(), dtype.raw(), Array::raw_or_null(key));
    /// Laplace's distribution around `loc`.
    laplace(shape: &[i32], dtype: Dtype, loc: f32, scale: f32, key: Option<&Array>)
        => mlx_random_laplace(shape.as_ptr(), shape.len(), dtype.raw(), loc, scale, Array::raw_or_null(key));
    /// Vectors with `mean` (..., N) and covariance (..., N, N), float32: `shape` followed by N. On the CPU only.
    multivariate_normal(mean: &Array, covariance: &Array, shape: &[i32], dtype: Dtype, key: Option<&Array>)
        => mlx_random_multivariate_normal(mean.raw(), covariance.raw(), shape.as_ptr(), shape.len(), dtype.raw(), Array::raw_or_null(key));
    /// The normal distribution around `loc` with deviation `scale`.
    normal(shape: &[i32], dtype: Dtype, loc: f32, scale: f32, key: Option<&Array>)
        => mlx_random_normal(shape.as_ptr(), shape.len(), dtype.raw(), loc, scale, Array::raw_or_null(key));
    /// The same with a parameter for each element; by default 0 and 1.
    normal_broadcast(shape: &[i32], dtype: Dtype, loc: Option<&Array>, scale: Option<&Array>, key: Option<&Array>)
        => mlx_random_normal_broadcast(shape.as_ptr(), shape.len(), dtype.raw(), Array::raw_or_null(loc), Array::raw_or_null(scale), Array::raw_or_null(key));
    /// 0 to `n` - 1 in random order, uint32.
    permutation_arange(n: i32, key: Option<&Array>) => mlx_random_permutation_arange(n, Array::raw_or_null(key));
    /// Integers from `low` up to but not including `high`, both cast to `dtype` first.
    randint(low: &Array, high: &Array, shape: &[i32], dtype: Dtype, key: Option<&Array>)
        => mlx_random_randint(low.raw(), high.raw(), shape.as_ptr(), shape.len(), dtype.raw(), Array::raw_or_null(key));
    /// The standard normal distribution between `lower` and `upper`.
    truncated_normal(lower: &Array, upper: &Array, shape: &[i32], dtype: Dtype, key: Option<&Array>)
        => mlx_random_truncated_normal(lower.raw(), upper.raw(), shape.as_ptr(), shape.len(), dtype.raw(), Array::raw_or_null(key));
    /// Evenly from `low` up to but not including `high`.
    uniform(low: &Array, high: &Array, shape: &[i32], dtype: Dtype, key: Option<&Array>)
        => mlx_random_uniform(low.raw(), high.raw(), shape.as_ptr(), shape.len(), dtype.raw(), Array::raw_or_null(key));
    /// `count` keys made of one: (`count`, 2), uint32.
    split_num(key: &Array, count: i32) => mlx_random_split_num(key.raw(), count);
}

/// A key for `seed`: (2), uint32.
///
/// # Errors
/// If MLX refuses.
pub fn key(seed: u64) -> Result<Array> {
    Array::from_op("key", |out| {
        // SAFETY: `out` is an empty handle.
        unsafe { mlx_sys::mlx_random_key(out, seed) }
    })
}

/// Starts the calling thread's sequence anew.
///
/// # Errors
/// If MLX refuses.
pub fn seed(seed: u64) -> Result<()> {
    check("seed", || {
        // SAFETY: takes a number.
        unsafe { mlx_sys::mlx_random_seed(seed) }
    })
}

/// Two keys made of one.
///
/// # Errors
/// If `key` is no key.
pub fn split(key: &Array) -> Result<(Array, Array)> {
    op_pair!("split", mlx_random_split(key.raw()))
}

/// `x` with its parts along `axis` in random order.
///
/// # Errors
/// If there is no such axis.
pub fn permutation(x: &Array, axis: i32, key: Option<&Array>) -> Result<Array> {
    x.dim(axis)?;
    op!("permutation", mlx_random_permutation(x.raw(), axis, Array::raw_or_null(key)))
}
