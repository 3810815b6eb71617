//! Sums that stay accurate over many elements, and what is built on them.
//!
//! MLX's CPU back end adds one element after the other: past 2^24 ones a float32 sum stands still. Here long axes are summed
//! in blocks, and the sums of the blocks again; the error grows with the blocks' size, not with the count. GPUs add in
//! trees already.

use kernels_metal::rows::Row;
use mlx_safe::{Array, DeviceType, Dtype, Stream, fast};

use crate::LowerError;

/// Most elements that are added one after the other.
const BLOCK: i32 = 512;

/// Longest axis for which MLX's own softmax is accurate.
const LONG: i32 = 4096;

/// The sum over `axes` (from the front), in the type that MLX gives.
pub(crate) fn sum(x: &Array, axes: &[i32], keepdims: bool) -> Result<Array, LowerError> {
    if !x.dtype().is_float() || count(x, axes) <= i64::from(BLOCK) || on_gpu()? {
        return Ok(x.sum(axes, keepdims)?);
    }
    // The last axis first: it leaves the least to the others, and its elements are neighbours.
    let mut order = axes.to_vec();
    order.sort_unstable();
    let y = order.iter().rev().try_fold(x.clone(), |y, &axis| along(&y, axis))?;
    Ok(if keepdims { y } else { y.squeeze(axes)? })
}

/// The sum along one axis, which stays with size 1.
fn along(x: &Array, axis: i32) -> mlx_safe::Result<Array> {
    let n = x.dim(axis)?;
    if n <= BLOCK {
        return x.sum(&[axis], true);
    }
    let at = axis as usize;
    let blocks = n / BLOCK;
    let (mut start, mut stop, ones) = (vec![0; x.ndim()], x.shape().to_vec(), vec![1; x.ndim()]);
    stop[at] = blocks * BLOCK;
    let mut shape = stop.clone();
    shape.splice(at..=at, [blocks, BLOCK]);
    let y = along(&x.slice(&start, &stop, &ones)?.reshape(&shape)?.sum(&[axis + 1], false)?, axis)?;
    if n % BLOCK == 0 {
        return Ok(y);
    }
    (start[at], stop[at]) = (blocks * BLOCK, n);
    y.add(&x.slice(&start, &stop, &ones)?.sum(&[axis], true)?)
}

/// The mean of floats over `axes`, of which there must be elements.
pub(crate) fn mean(x: &Array, axes: &[i32], keepdims: bool) -> Result<Array, LowerError> {
    let count = Array::scalar_of(count(x, axes) as f64, x.dtype())?;
    Ok(sum(x, axes, keepdims)?.divide(&count)?)
}

/// The mean of float32 values over `axes`, kept with size 1, and what each value is above it.
///
/// A mean is rounded to float32, which is much where the values differ little: the mean of the differences corrects it.
pub(crate) fn centre(x: &Array, axes: &[i32]) -> Result<(Array, Array), LowerError> {
    let rough = mean(x, axes, true)?;
    let above = x.subtract(&rough)?;
    let rest = mean(&above, axes, true)?;
    Ok((rough.add(&rest)?, above.subtract(&rest)?))
}

/// `x` over its deviation along the last axis, after its mean is taken off if it is to be `centred`; in float32.
///
/// On GPUs that is one fused MLX call, on CPUs a kernel of ours for what is large: MLX composes it there as well, without
/// the correction of [`centre`].
pub(crate) fn standardise(x: &Array, centred: bool, epsilon: f32) -> Result<Array, LowerError> {
    if let Some(y) = (Row::Norm { centred, epsilon }).apply(x, None, None)? {
        return Ok(y);
    }
    let x = x.astype(Dtype::Float32)?;
    if on_gpu()? {
        return Ok(match centred {
            true => fast::layer_norm(&x, None, None, epsilon)?,
            false => fast::rms_norm(&x, None, epsilon)?,
        });
    }
    let last = [x.ndim() as i32 - 1];
    over_deviation(&if centred { centre(&x, &last)?.1 } else { x }, epsilon)
}

/// `x` over the root of the mean of its squares and `epsilon` along the last axis.
pub(crate) fn over_deviation(x: &Array, epsilon: f32) -> Result<Array, LowerError> {
    let power = mean(&x.square()?, &[x.ndim() as i32 - 1], true)?;
    Ok(x.multiply(&power.add(&Array::scalar(epsilon))?.rsqrt()?)?)
}

/// exp(x) over its sum along `axis`, summed in float32.
pub(crate) fn softmax(x: &Array, axis: i32) -> Result<Array, LowerError> {
    if axis + 1 == x.ndim() as i32
        && let Some(y) = Row::Softmax.apply(x, None, None)?
    {
        return Ok(y.astype(x.dtype())?);
    }
    if x.dim(axis)? <= LONG || on_gpu()? {
        return Ok(x.softmax(&[axis], true)?);
    }
    let wide = x.astype(Dtype::Float32)?;
    let powers = wide.subtract(&wide.max(&[axis], true)?)?.exp()?;
    Ok(powers.divide(&sum(&powers, &[axis], true)?)?.astype(x.dtype())?)
}

/// Whether the work goes to a GPU.
pub(crate) fn on_gpu() -> mlx_safe::Result<bool> {
    Ok(Stream::current_device()? == DeviceType::Gpu)
}

fn count(x: &Array, axes: &[i32]) -> i64 {
    axes.iter().map(|&axis| i64::from(x.shape()[axis as usize])).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values around `middle` that differ by up to 2.
    fn around(middle: f64, shape: &[i32]) -> (Array, Vec<f64>) {
        let n: i32 = shape.iter().product();
        let values: Vec<f32> =
            (0..n).map(|i| (middle + f64::from(i.wrapping_mul(7919) % 1009) / 500.0) as f32).collect();
        let wide = values.iter().map(|&v| f64::from(v)).collect();
        (Array::from_slice(&values, shape).unwrap(), wide)
    }

    fn close(got: &[f32], wanted: &[f64], tolerance: f64) {
        assert_eq!(got.len(), wanted.len());
        for (&got, &wanted) in got.iter().zip(wanted) {
            assert!(
                (f64::from(got) - wanted).abs() <= tolerance * wanted.abs().max(1.0),
                "{got}, not {wanted}"
            );
        }
    }

    #[test]
    fn ones_beyond_what_float32_counts() {
        let ones = Array::scalar(1.0f32).broadcast_to(&[20_000_000]).unwrap();
        assert_eq!(sum(&ones, &[0], false).unwrap().item::<f32>().unwrap(), 2e7);
        let even = softmax(&ones, 0).unwrap().max(&[0], false).unwrap();
        close(&[even.item().unwrap()], &[1.0 / 2e7], 1e-12);
    }

    #[test]
    fn sums_over_any_axes() {
        let (x, values) = around(3.0, &[3, 1500, 7]);
        let total: f64 = values.iter().sum();
        close(&[sum(&x, &[0, 1, 2], false).unwrap().item().unwrap()], &[total], 1e-6);
        let columns: Vec<f64> = (0..7).map(|c| values.iter().skip(c).step_by(7).sum()).collect();
        let y = sum(&x, &[0, 1], true).unwrap();
        assert_eq!(y.shape(), [1, 1, 7]);
        close(&y.to_vec().unwrap(), &columns, 1e-6);
        let y = sum(&x, &[1], false).unwrap();
        assert_eq!(y.shape(), [3, 7]);
    }

    #[test]
    fn what_differs_little_from_a_large_mean() {
        for n in [768, 5000, 200_000] {
            let (x, values) = around(1e4, &[2, n]);
            let y: Vec<f32> = standardise(&x, true, 1e-5).unwrap().to_vec().unwrap();
            for (y, values) in y.chunks(n as usize).zip(values.chunks(n as usize)) {
                let mean = values.iter().sum::<f64>() / f64::from(n);
                let power = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / f64::from(n);
                let wanted: Vec<f64> = values.iter().map(|v| (v - mean) / (power + 1e-5).sqrt()).collect();
                close(y, &wanted, 1e-5);
            }
        }
    }
}
