//! The product of matrices for every element type: MLX multiplies matrices of floats only.

use mlx_safe::{Array, DeviceType, Dtype, Stream};

use crate::LowerError;

/// `a` (..., M, K) by `b` (..., K, N) as NumPy does it: leading axes broadcast, vectors are rows on the left and columns
/// on the right. Integers wrap.
pub(crate) fn matmul(a: &Array, b: &Array) -> Result<Array, LowerError> {
    if a.ndim() == 0 || b.ndim() == 0 {
        return Err(LowerError::invalid("a scalar is not a matrix"));
    }
    if is_float(a.dtype()) {
        return Ok(matmul_of_floats(a, b)?);
    }
    let (row, column) = (a.ndim() == 1, b.ndim() == 1);
    let a = if row { a.expand_dims(&[0])? } else { a.clone() };
    let b = if column { b.expand_dims(&[1])? } else { b.clone() };
    let y = sum_of_products(&a, &b)?;
    let gone: Vec<i32> =
        [(row, -2), (column, -1)].iter().filter(|(is, _)| *is).map(|&(_, axis)| axis).collect();
    Ok(if gone.is_empty() { y } else { y.squeeze(&gone)? })
}

/// The product of float matrices. MLX's CPU back end multiplies 16-bit floats one by one: there they go through float32,
/// which is BLAS, and the sums are exact to the last rounding.
fn matmul_of_floats(a: &Array, b: &Array) -> mlx_safe::Result<Array> {
    if a.dtype() == Dtype::Float32 || Stream::current_device()? == DeviceType::Gpu {
        return a.matmul(b);
    }
    a.astype(Dtype::Float32)?.matmul(&b.astype(Dtype::Float32)?)?.astype(a.dtype())
}

/// `a` (..., M, K) by `b` (..., K, N) in int32, exactly, where both hold integers between -255 and 255 as float32.
///
/// 256 such products add up to less than 2^24, so that every partial sum is exact in float32.
pub(crate) fn matmul_of_bytes(a: &Array, b: &Array) -> Result<Array, LowerError> {
    const BLOCK: usize = 256;
    let depth = depth(a, b)?;
    let mut sum: Option<Array> = None;
    for start in (0..depth.max(1)).step_by(BLOCK) {
        let part = if depth <= BLOCK as i32 {
            a.matmul(b)?
        } else {
            let stop = depth.min(start + BLOCK as i32);
            cut(a, -1, start, stop)?.matmul(&cut(b, -2, start, stop)?)?
        };
        let part = part.astype(Dtype::Int32)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    sum.ok_or_else(|| LowerError::Bug("a product of no blocks".into()))
}

/// Multiplies and adds element by element, in blocks of K that keep the temporaries small.
fn sum_of_products(a: &Array, b: &Array) -> Result<Array, LowerError> {
    const LIMIT: usize = 1 << 22;
    let depth = depth(a, b)?;
    let rows = a.size() / depth.max(1) as usize;
    let columns = b.dim(-1)?.max(1) as usize;
    let block = (LIMIT / (rows * columns).max(1)).clamp(1, depth.max(1) as usize);
    let mut sum: Option<Array> = None;
    for start in (0..depth.max(1)).step_by(block) {
        let stop = depth.min(start + block as i32);
        let left = cut(a, -1, start, stop)?.expand_dims(&[-1])?;
        let right = cut(b, -2, start, stop)?.expand_dims(&[-3])?;
        let part = left.multiply(&right)?.sum(&[-2], false)?.astype(a.dtype())?;
        sum = Some(match sum {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    sum.ok_or_else(|| LowerError::Bug("a product of no blocks".into()))
}

/// K.
fn depth(a: &Array, b: &Array) -> Result<i32, LowerError> {
    let (depth, other) = (a.dim(-1)?, b.dim(-2)?);
    if depth != other {
        return Err(LowerError::invalid(format!(
            "matrices of shapes {:?} and {:?} cannot be multiplied",
            a.shape(),
            b.shape()
        )));
    }
    Ok(depth)
}

/// The part of `x` from `start` to `stop` along `axis`, counted from the end.
fn cut(x: &Array, axis: i32, start: i32, stop: i32) -> Result<Array, LowerError> {
    let (mut low, mut high) = (vec![0; x.ndim()], x.shape().to_vec());
    let at = (x.ndim() as i32 + axis) as usize;
    (low[at], high[at]) = (start, stop);
    Ok(x.slice(&low, &high, &vec![1; x.ndim()])?)
}

/// Whether MLX can multiply matrices of this type.
fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
}
