//! Element-wise operations of one array.

use super::{methods, op};
use crate::handle::optional_float;
use crate::{Array, Dtype, Result};

methods! {
    /// |x|
    abs() => mlx_abs();
    /// -x
    negative() => mlx_negative();
    /// -1, 0 or 1
    sign() => mlx_sign();
    /// Rounds down.
    floor() => mlx_floor();
    /// Rounds up.
    ceil() => mlx_ceil();
    /// Rounds to `decimals` places, halves to even.
    round(decimals: i32) => mlx_round(decimals);
    /// Rounds towards zero.
    trunc() => mlx_trunc();
    /// Square root.
    sqrt() => mlx_sqrt();
    /// 1 / sqrt(x)
    rsqrt() => mlx_rsqrt();
    /// x * x
    square() => mlx_square();
    /// 1 / x
    reciprocal() => mlx_reciprocal();
    /// e^x
    exp() => mlx_exp();
    /// e^x - 1, exact near 0
    expm1() => mlx_expm1();
    /// Natural logarithm.
    log() => mlx_log();
    /// ln(1 + x), exact near 0
    log1p() => mlx_log1p();
    /// Logarithm to base 2.
    log2() => mlx_log2();
    /// Logarithm to base 10.
    log10() => mlx_log10();
    /// Sine.
    sin() => mlx_sin();
    /// Cosine.
    cos() => mlx_cos();
    /// Tangent.
    tan() => mlx_tan();
    /// Inverse sine.
    arcsin() => mlx_arcsin();
    /// Inverse cosine.
    arccos() => mlx_arccos();
    /// Inverse tangent.
    arctan() => mlx_arctan();
    /// Hyperbolic sine.
    sinh() => mlx_sinh();
    /// Hyperbolic cosine.
    cosh() => mlx_cosh();
    /// Hyperbolic tangent.
    tanh() => mlx_tanh();
    /// Inverse hyperbolic sine.
    arcsinh() => mlx_arcsinh();
    /// Inverse hyperbolic cosine.
    arccosh() => mlx_arccosh();
    /// Inverse hyperbolic tangent.
    arctanh() => mlx_arctanh();
    /// The error function.
    erf() => mlx_erf();
    /// The inverse of the error function, for x between -1 and 1.
    erfinv() => mlx_erfinv();
    /// Radians to degrees.
    degrees() => mlx_degrees();
    /// Degrees to radians.
    radians() => mlx_radians();
    /// The real part (float32 of complex64).
    real() => mlx_real();
    /// The imaginary part (float32 of complex64); zero of a real array.
    imag() => mlx_imag();
    /// The complex conjugate.
    conjugate() => mlx_conjugate();
    /// The array itself, for symmetry with [`crate::Array::negative`].
    positive() => mlx_positive();
    /// The values, through which no gradient flows.
    stop_gradient() => mlx_stop_gradient();
    /// 8-bit floats (E4M3) as uint8.
    to_fp8() => mlx_to_fp8();
    /// The values of 8-bit floats (E4M3) held as uint8.
    from_fp8(dtype: crate::Dtype) => mlx_from_fp8(dtype.raw());
    /// NaN replaced by `nan` and the infinities by `posinf` and `neginf`, which default to the type's limits.
    nan_to_num(nan: f32, posinf: Option<f32>, neginf: Option<f32>) => mlx_nan_to_num(
        nan, optional_float(posinf), optional_float(neginf));
    /// 1 / (1 + e^-x)
    sigmoid() => mlx_sigmoid();
    /// True where x is zero or false.
    logical_not() => mlx_logical_not();
    /// Every bit flipped.
    bitwise_invert() => mlx_bitwise_invert();
    /// True where x is NaN.
    isnan() => mlx_isnan();
    /// True where x is infinite.
    isinf() => mlx_isinf();
    /// True where x is positive infinity.
    isposinf() => mlx_isposinf();
    /// True where x is negative infinity.
    isneginf() => mlx_isneginf();
    /// True where x is neither infinite nor NaN.
    isfinite() => mlx_isfinite();
    /// The values as another type: floats to integers truncate.
    astype(dtype: crate::Dtype) => mlx_astype(dtype.raw());
    /// A copy of its own.
    copy() => mlx_copy();
}

impl Array {
    /// The same bits as another type; as bools, true where a byte is not zero.
    ///
    /// # Errors
    /// If the last axis is no multiple of a wider type.
    pub fn view(&self, dtype: Dtype) -> Result<Array> {
        if dtype == Dtype::Bool {
            // C++ may assume that a bool is 0 or 1.
            return self.view(Dtype::Uint8)?.not_equal(&Array::scalar(0u8));
        }
        op!("view", mlx_view(self.raw(), dtype.raw()))
    }
}
