//! Quantized matrices, convolutions, linear algebra, Fourier transforms and fused operations.

use mlx_safe::fast::{self, Mask};
use mlx_safe::fft::{self, FftNorm};
use mlx_safe::linalg::{self, Norm, Triangle};
use mlx_safe::{Array, ConvGeometry, Dtype, Quantization, Result};

use crate::{Call, calls};

const AFFINE: Quantization = Quantization::Affine { group_size: 32, bits: 4 };

/// The inverse of a complex matrix A + iB by that of the real one [[A, -B], [B, A]].
fn linalg_inverse(z: &Array) -> Result<Array> {
    let (a, b) = (z.real()?, z.imag()?);
    let top = mlx_safe::concatenate(&[a.clone(), b.negative()?], 1)?;
    let whole = mlx_safe::concatenate(&[top, mlx_safe::concatenate(&[b, a], 1)?], 0)?;
    let n = z.dim(0)?;
    let left = linalg::inv(&whole)?.index((.., ..n))?;
    let i = Array::scalar(num_complex::Complex32::I);
    left.index(..n)?.add(&left.index(n..)?.multiply(&i)?)
}

pub const CALLS: &[(&str, Call)] = calls! {
    "dequantize": |x| x[0].dequantize(&x[1], Some(&x[2]), AFFINE, None, None);
    "dequantize/mxfp4": |x| x[0].dequantize(&x[1], None, Quantization::Mxfp4, None, Some(Dtype::Float32));
    "quantized_matmul": |x| x[0].quantized_matmul(&x[1], &x[2], Some(&x[3]), true, AFFINE);
    "gather_qmm": |x| x[0].gather_qmm(&x[1], &x[2], Some(&x[3]), Some(&x[4]), Some(&x[5]), true, AFFINE, false);
    "quantize": |x| { let q = x[0].quantize(AFFINE, None)?; q[0].dequantize(&q[1], q.get(2), AFFINE, None, None) };
    "conv1d": |x| x[0].conv1d(&x[1], 2, 1, 2, 2);
    "conv2d": |x| x[0].conv2d(&x[1], [1, 2], [1, 0], [2, 1], 1);
    "conv3d": |x| x[0].conv3d(&x[1], [1, 2, 1], [0, 1, 1], [1, 1, 2], 1);
    "conv_general": |x| x[0].conv_general(&x[1], &ConvGeometry { stride: vec![1, 2], padding_low: vec![1, 0], padding_high: vec![0, 1], kernel_dilation: vec![1, 2], input_dilation: vec![2, 1], groups: 1, flip: true });
    "conv_transpose1d": |x| x[0].conv_transpose1d(&x[1], 2, 1, 1, 1, 1);
    "conv_transpose2d": |x| x[0].conv_transpose2d(&x[1], [2, 1], [1, 0], [1, 1], [1, 0], 1);
    "conv_transpose3d": |x| x[0].conv_transpose3d(&x[1], [1, 2, 2], [0, 1, 0], [1, 1, 1], [0, 1, 0], 1);
    "linalg_cholesky": |x| linalg::cholesky(&x[0], false);
    "linalg_cholesky/upper": |x| linalg::cholesky(&x[0], true);
    "linalg_cholesky_inv": |x| linalg::cholesky_inv(&x[0], false);
    "linalg_cross": |x| linalg::cross(&x[0], &x[1], -1);
    "linalg_det": |x| linalg::det(&x[0]);
    "linalg_slogdet": |x| linalg::slogdet(&x[0]);
    "linalg_inv": |x| linalg::inv(&x[0]);
    "linalg_pinv": |x| linalg::pinv(&x[0]);
    "linalg_solve": |x| linalg::solve(&x[0], &x[1]);
    "linalg_solve_triangular": |x| linalg::solve_triangular(&x[0], &x[1], true);
    "linalg_tri_inv": |x| linalg::tri_inv(&x[0], false);
    "linalg_eigvalsh": |x| linalg::eigvalsh(&x[0], Triangle::Upper);
    "linalg_svd/values": |x| linalg::singular_values(&x[0]);
    "linalg_lu_factor": |x| linalg::lu_factor(&x[0]);
    "linalg_norm": |x| linalg::norm(&x[0], Norm::P(3.0), 1, false);
    "linalg_norm/inf": |x| linalg::norm(&x[0], Norm::P(f64::INFINITY), &[0, 1], false);
    "linalg_norm_matrix": |x| linalg::norm(&x[0], Norm::Frobenius, &[1, 2], true);
    "linalg_norm_matrix/nuclear": |x| linalg::norm(&x[0], Norm::Nuclear, &[0, 1], false);
    "linalg_norm_l2": |x| linalg::norm(&x[0], Norm::L2, .., false);
    "linalg_eigvals": |x| linalg::eigvals(&x[0])?.sum(.., false);
    "linalg_eig": |x| { let (values, vectors) = linalg::eig(&x[0])?; vectors.multiply(&values)?.matmul(&linalg_inverse(&vectors)?) };
    "linalg_eigh": |x| { let (values, vectors) = linalg::eigh(&x[0], Triangle::Lower)?; let back = vectors.multiply(&values)?.matmul(&vectors.t()?)?; Ok::<_, mlx_safe::Error>((values, back)) };
    "linalg_qr": |x| { let (q, r) = linalg::qr(&x[0])?; Ok::<_, mlx_safe::Error>((q.matmul(&r)?, q.t()?.matmul(&q)?)) };
    "linalg_svd": |x| { let (u, s, vt) = linalg::svd(&x[0])?; let back = u.index((.., ..3))?.multiply(&s)?.matmul(&vt)?; Ok::<_, mlx_safe::Error>((back, s)) };
    "linalg_lu": |x| { let (p, l, u) = linalg::lu(&x[0])?; Ok::<_, mlx_safe::Error>((l.take(&p, 0)?.matmul(&u)?, l, u)) };
    "fft_fft": |x| fft::fft(&x[0], None, 1, FftNorm::Backward);
    "fft_fft/n": |x| fft::fft(&x[0], Some(7), 0, FftNorm::Ortho);
    "fft_fft2": |x| fft::fft2(&x[0], None, [0, 2], FftNorm::Backward);
    "fft_fftn": |x| fft::fftn(&x[0], None, .., FftNorm::Forward);
    "fft_ifft": |x| fft::ifft(&x[0], None, 1, FftNorm::Backward);
    "fft_ifft/n": |x| fft::ifft(&x[0], Some(7), 0, FftNorm::Ortho);
    "fft_ifft2": |x| fft::ifft2(&x[0], None, [0, 2], FftNorm::Backward);
    "fft_ifftn": |x| fft::ifftn(&x[0], None, .., FftNorm::Forward);
    "fft_rfft": |x| fft::rfft(&x[0], None, 1, FftNorm::Backward);
    "fft_rfft/n": |x| fft::rfft(&x[0], Some(7), 0, FftNorm::Ortho);
    "fft_rfft2": |x| fft::rfft2(&x[0], None, [0, 2], FftNorm::Backward);
    "fft_rfftn": |x| fft::rfftn(&x[0], None, .., FftNorm::Forward);
    "fft_irfft": |x| fft::irfft(&x[0], None, 1, FftNorm::Backward);
    "fft_irfft/n": |x| fft::irfft(&x[0], Some(7), 0, FftNorm::Ortho);
    "fft_irfft2": |x| fft::irfft2(&x[0], None, [0, 2], FftNorm::Backward);
    "fft_irfftn": |x| fft::irfftn(&x[0], None, .., FftNorm::Forward);
    "fft_fftfreq": |_x| fft::fftfreq(7, 0.5);
    "fft_rfftfreq": |_x| fft::rfftfreq(8, 0.5);
    "fft_fftshift": |x| fft::fftshift(&x[0], ..);
    "fft_ifftshift": |x| fft::ifftshift(&x[0], 1);
    "fast_layer_norm": |x| fast::layer_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-5);
    "fast_rms_norm": |x| fast::rms_norm(&x[0], Some(&x[1]), 1e-5);
    "fast_cross_entropy": |x| fast::cross_entropy(&x[0], &x[1]);
    "fast_rope": |x| fast::rope(&x[0], 6, false, Some(10000.0), 0.5, 3, None);
    "fast_rope/traditional": |x| fast::rope(&x[0], 6, true, None, 1.0, 0, Some(&x[1]));
    "fast_rope_dynamic": |x| fast::rope_dynamic(&x[0], 6, true, Some(10000.0), 1.0, &x[1], None);
    "fast_scaled_dot_product_attention": |x| fast::scaled_dot_product_attention(&x[0], &x[1], &x[2], 0.4, Mask::None);
    "fast_scaled_dot_product_attention/causal": |x| fast::scaled_dot_product_attention(&x[0], &x[1], &x[2], 0.4, Mask::Causal);
    "fast_scaled_dot_product_attention/mask": |x| fast::scaled_dot_product_attention(&x[0], &x[1], &x[2], 0.4, Mask::Array(&x[3]));
    "fast_scaled_dot_product_attention/sinks": |x| fast::scaled_dot_product_attention_with_sinks(&x[0], &x[1], &x[2], 0.4, Mask::None, Some(&x[3]));
};
