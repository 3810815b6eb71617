//! The error function.

use pulp::Simd;

use super::{Function, exp, polynomial, with_sign};

/// erf of every lane, within 2 units in the last place.
///
/// Near 0 a polynomial of x^2 times x; elsewhere 1 - exp(p(|x|)), where p is a polynomial close to ln(erfc). Both are
/// minimax approximations, of relative errors 1.2e-8 on [0, 0.9] and 1.7e-9 on [0.9, 4]; erf(4) rounds to 1.
#[inline(always)]
pub(crate) fn erf<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let of = |value: f32| simd.splat_f32s(value);
    let size = simd.abs_f32s(x);
    let square = simd.mul_f32s(x, x);
    let near = [-6.090_36e-4, 5.011_962_7e-3, -2.677_890_8e-2, 0.112_821_41, -0.376_125_25, 0.128_379_1];
    // The first coefficient, 2 / sqrt(pi), is more than 1: that 1 is added apart.
    let near = simd.mul_add_e_f32s(polynomial(simd, square, near), size, size);
    let bound = simd.min_f32s(of(4.0), size);
    let far = [
        1.982_196_2e-4,
        -3.065_49e-3,
        2.231_521_2e-2,
        -0.104_113_68,
        -0.636_976_06,
        -1.127_797_2,
        -1.664_479_8e-4,
    ];
    let far = simd.sub_f32s(of(1.0), exp(simd, polynomial(simd, bound, far)));
    let y = simd.select_f32s(simd.less_than_f32s(size, of(0.9)), near, far);
    let y = simd.select_f32s(simd.equal_f32s(x, x), y, x);
    with_sign(simd, y, x)
}

/// [`erf`].
#[derive(Clone, Copy)]
pub(crate) struct Erf;

impl Function for Erf {
    #[inline(always)]
    fn of<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        erf(simd, x)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    /// By its series, which converges everywhere; beyond 6 it is 1 in float64's precision of float32.
    fn reference(x: f64) -> f64 {
        if x.abs() > 6.0 {
            return x.signum();
        }
        // erf(x) = 2 / sqrt(pi) exp(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ...): all terms have one sign.
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
    }

    #[test]
    fn is_that_of_float64() {
        check(Erf, 2.0, reference);
    }
}
