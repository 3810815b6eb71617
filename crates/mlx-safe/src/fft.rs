//! Discrete Fourier transforms (`mlx.core.fft`). Complex results are complex64; a size `n` cuts or pads with zeros.
//!
//! Transforms over several axes take one size an axis, or all sizes as they are with `None`. A size below 1 is an error.

use mlx_sys as sys;

use crate::error::argument;
use crate::ops::{functions, op};
use crate::{Array, Axes, Dtype, PadMode, Result, concatenate};

/// How a pair of transforms is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FftNorm {
    /// The inverse by 1 / n.
    #[default]
    Backward,
    /// Both by 1 / sqrt(n).
    Ortho,
    /// The forward one by 1 / n.
    Forward,
}

impl FftNorm {
    fn raw(self) -> sys::mlx_fft_norm {
        match self {
            Self::Backward => sys::mlx_fft_norm__MLX_FFT_NORM_BACKWARD,
            Self::Ortho => sys::mlx_fft_norm__MLX_FFT_NORM_ORTHO,
            Self::Forward => sys::mlx_fft_norm__MLX_FFT_NORM_FORWARD,
        }
    }
}

functions! {
    /// The frequencies of [`fft`]'s `n` results for samples `d` apart: (n), float32.
    fftfreq(n: i32, d: f64) => mlx_fft_fftfreq(n, d);
    /// The frequencies of [`rfft`]'s results for `n` samples `d` apart: (n / 2 + 1), float32.
    rfftfreq(n: i32, d: f64) => mlx_fft_rfftfreq(n, d);
}

/// The size of `axis`, or of the real signal that has so many frequencies.
fn own_size(a: &Array, axis: i32, from_half: bool) -> Result<i32> {
    let n = a.dim(axis)?;
    match if from_half { (n - 1).checked_mul(2) } else { Some(n) } {
        Some(n) => Ok(n),
        None => argument("fft", format!("{a:?} is too large along axis {axis}")),
    }
}

fn own_sizes(a: &Array, axes: &[i32], from_half: bool) -> Result<Vec<i32>> {
    let last = axes.len().saturating_sub(1);
    axes.iter().enumerate().map(|(i, &axis)| own_size(a, axis, from_half && i == last)).collect()
}

/// The transform of `axis`, over `axis`.
///
/// # Errors
/// If there is no such axis or a size is below 1.
pub fn fft(a: &Array, n: Option<i32>, axis: i32, norm: FftNorm) -> Result<Array> {
    let n = n.map_or_else(|| own_size(a, axis, false), Ok)?;
    op!("fft", mlx_fft_fft(a.raw(), n, axis, norm.raw()))
}

/// [`fft`] over two axes.
///
/// # Errors
/// If there are no such axes, or sizes and axes differ in number.
pub fn fft2(a: &Array, n: Option<&[i32]>, axes: [i32; 2], norm: FftNorm) -> Result<Array> {
    let n = n.map_or_else(|| own_sizes(a, &axes, false), |n| Ok(n.to_vec()))?;
    op!("fft2", mlx_fft_fft2(a.raw(), n.as_ptr(), n.len(), axes.as_ptr(), axes.len(), norm.raw()))
}

/// [`fft`] over `axes`.
///
/// # Errors
/// If there are no such axes, or sizes and axes differ in number.
pub fn fftn<'a>(a: &Array, n: Option<&[i32]>, axes: impl Into<Axes<'a>>, norm: FftNorm) -> Result<Array> {
    let axes = axes.into().list(a.ndim());
    if axes.is_empty() {
        return argument("fftn", "there is no axis to transform");
    }
    let n = n.map_or_else(|| own_sizes(a, &axes, false), |n| Ok(n.to_vec()))?;
    op!("fftn", mlx_fft_fftn(a.raw(), n.as_ptr(), n.len(), axes.as_ptr(), axes.len(), norm.raw()))
}

/// The inverse of [`fft`], over `axis`.
///
/// # Errors
/// If there is no such axis or a size is below 1.
pub fn ifft(a: &Array, n: Option<i32>, axis: i32, norm: FftNorm) -> Result<Array> {
    let n = n.map_or_else(|| own_size(a, axis, false), Ok)?;
    op!("ifft", mlx_fft_ifft(a.raw(), n, axis, norm.raw()))
}

/// [`ifft`] over two axes.
///
/// # Errors
/// If there are no such axes, or sizes and axes differ in number.
pub fn ifft2(a: &Array, n: Option<&[i32]>, axes: [i32; 2], norm: FftNorm) -> Result<Array> {
    let n = n.map_or_else(|| own_sizes(a, &axes, false), |n| Ok(n.to_vec()))?;
    op!("ifft2", mlx_fft_ifft2(a.raw(), n.as_ptr(), n.len(), axes.as_ptr(), axes.len(), norm.raw()))
}

/// [`ifft`] over `axes`.
///
/// # Errors
/// If there are no such axes, or sizes and axes differ in number.
pub fn ifftn<'a>(a: &Array, n: Option<&[i32]>, axes: impl Into<Axes<'a>>, norm: FftNorm) -> Result<Array> {
    let axes = axes.into().list(a.ndim());
    if axes.is_empty() {
        return argument("ifftn", "there is no axis to transform");
    }
    let n = n.map_or_else(|| own_sizes(a, &axes, false), |n| Ok(n.to_vec()))?;
    op!("ifftn", mlx_fft_ifftn(a.raw(), n.as_ptr(), n.len(), axes.as_ptr(), axes.len(), norm.raw()))
}

/// The transform of real values, of which n / 2 + 1 results differ, over `axis`.
///
/// # Errors
/// If there is no such axis or a size is below 1.
pub fn rfft(a: &Array, n: Option<i32>, axis: i32, norm: FftNorm) -> Result<Array> {
    let n = n.map_or_else(|| own_size(a, axis, false), Ok)?;
    op!("rfft", mlx_fft_rfft(a.raw(), n, axis, norm.raw()))
}

/// [`rfft`] over two axes.
///
/// # Errors
/// If there are no such axes, or sizes and axes differ in number.
pub fn rfft2(a: &Array, n: Option<&[i32]>, axes: [i32; 2], norm: FftNorm) -> Result<Array> {
    let n = n.map_or_else(|| own_sizes(a, &axes, false), |n| Ok(n.to_vec()))?;
    op!("rfft2", mlx_fft_rfft2(a.raw(), n.as_ptr(), n.len(), axes.as_ptr(), axes.len(), norm.raw()))
}

/// [`rfft`] over `axes`.
///
/// # Errors
/// If there are no such axes, or sizes and axes differ in number.
pub fn rfftn<'a>(a: &Array, n: Option<&[i32]>, axes: impl Into<Axes<'a>>, norm: FftNorm) -> Result<Array> {
    let axes = axes.into().list(a.ndim());
    if axes.is_empty() {
        return argument("rfftn", "there is no axis to transform");
    }
    let n = n.map_or_else(|| own_sizes(a, &axes, false), |n| Ok(n.to_vec()))?;
    op!("rfftn", mlx_fft_rfftn(a.raw(), n.as_ptr(), n.len(), axes.as_ptr(), axes.len(), norm.raw()))
}

/// The inverse of [`rfft`]: real, by default 2 (size - 1) values, over `axis`.
///
/// # Errors
/// If there is no such axis or a size is below 1.
pub fn irfft(a: &Array, n: Option<i32>, axis: i32, norm: FftNorm) -> Result<Array> {
    let n = n.map_or_else(|| own_size(a, axis, true), Ok)?;
    if n % 2 == 1 {
        return odd_irfft("irfft", a, &[n], &[axis], norm);
    }
    op!("irfft", mlx_fft_irfft(a.raw(), n, axis, norm.raw()))
}

/// [`irfftn`] with an odd number of values along the last of `axes`, by way of the frequencies that a real signal's imply: MLX's
/// `jvp` and `vmap` take every number for an even one.
fn odd_irfft(op: &'static str, a: &Array, n: &[i32], axes: &[i32], norm: FftNorm) -> Result<Array> {
    let (Some((&count, sizes)), Some((&last, others))) = (n.split_last(), axes.split_last()) else {
        return argument(op, "there is no axis to transform");
    };
    let wanted = a.axis(last)?;
    if sizes.len() != others.len() || n.iter().any(|&n| n < 1) {
        return argument(op, format!("sizes {n:?} for axes {axes:?}"));
    }
    for &axis in others {
        if a.axis(axis)? == wanted {
            return argument(op, format!("axis {axis} is named twice"));
        }
    }
    let a = if others.is_empty() { a.clone() } else { ifftn(a, Some(sizes), others, norm)? };
    let a = a.astype(Dtype::Complex64)?;
    let (kept, size) = (count / 2 + 1, a.dim(last)?);
    let half = match size < kept {
        true => {
            let zero = Array::scalar(0.0f32).astype(Dtype::Complex64)?;
            a.pad(&[last], &[0], &[kept - size], &zero, PadMode::Constant)?
        }
        false => a.slice_axis(last, ..kept)?,
    };
    let mirrored = half.slice_axis(last, 1..)?.flip(last)?.conjugate()?;
    ifft(&concatenate(&[half, mirrored], last)?, Some(count), last, norm)?.real()
}

/// [`irfft`] over two axes.
///
/// # Errors
/// If there are no such axes, or sizes and axes differ in number.
pub fn irfft2(a: &Array, n: Option<&[i32]>, axes: [i32; 2], norm: FftNorm) -> Result<Array> {
    let n = n.map_or_else(|| own_sizes(a, &axes, true), |n| Ok(n.to_vec()))?;
    if n.last().is_some_and(|n| n % 2 == 1) {
        return odd_irfft("irfft2", a, &n, &axes, norm);
    }
    op!("irfft2", mlx_fft_irfft2(a.raw(), n.as_ptr(), n.len(), axes.as_ptr(), axes.len(), norm.raw()))
}

/// [`irfft`] over `axes`.
///
/// # Errors
/// If there are no such axes, or sizes and axes differ in number.
pub fn irfftn<'a>(a: &Array, n: Option<&[i32]>, axes: impl Into<Axes<'a>>, norm: FftNorm) -> Result<Array> {
    let axes = axes.into().list(a.ndim());
    if axes.is_empty() {
        return argument("irfftn", "there is no axis to transform");
    }
    let n = n.map_or_else(|| own_sizes(a, &axes, true), |n| Ok(n.to_vec()))?;
    if n.last().is_some_and(|n| n % 2 == 1) {
        return odd_irfft("irfftn", a, &n, &axes, norm);
    }
    op!("irfftn", mlx_fft_irfftn(a.raw(), n.as_ptr(), n.len(), axes.as_ptr(), axes.len(), norm.raw()))
}

/// Frequency zero moved to the middle of `axes`.
///
/// # Errors
/// If there is no such axis.
pub fn fftshift<'a>(a: &Array, axes: impl Into<Axes<'a>>) -> Result<Array> {
    let axes = axes.into().list(a.ndim());
    op!("fftshift", mlx_fft_fftshift(a.raw(), axes.as_ptr(), axes.len()))
}

/// The inverse of [`fftshift`].
///
/// # Errors
/// If there is no such axis.
pub fn ifftshift<'a>(a: &Array, axes: impl Into<Axes<'a>>) -> Result<Array> {
    let axes = axes.into().list(a.ndim());
    op!("ifftshift", mlx_fft_ifftshift(a.raw(), axes.as_ptr(), axes.len()))
}
