//! The exponential.

use pulp::Simd;

use super::{Function, polynomial};

/// exp of every lane, within 2 units in the last place; what is too small for a float32 is 0, what is too large infinite.
///
/// With n = round(x / ln 2) and r = x - n ln 2 in [-ln 2 / 2, ln 2 / 2], exp(x) = 2^n exp(r), the latter by its Taylor
/// polynomial. 2^n is multiplied by in two steps, because it may be beyond the numbers of which the product is not.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let of = |value: f32| simd.splat_f32s(value);
    // The sum with 1.5 * 2^23 is an integer, whose low bits are those of n.
    let magic = of(12_582_912.0);
    let shifted = simd.mul_add_e_f32s(x, of(std::f32::consts::LOG2_E), magic);
    let n = simd.sub_f32s(shifted, magic);
    // ln 2 in two parts, of which n times the first is exact.
    let r = simd.mul_add_e_f32s(n, of(-0.693_359_4), x);
    let r = simd.mul_add_e_f32s(n, of(2.121_944_4e-4), r);
    let taylor = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let sum = polynomial(simd, r, taylor);
    let half = simd.mul_add_e_f32s(n, of(0.5), magic);
    let rest = simd.sub_f32s(shifted, simd.sub_f32s(half, magic));
    let power = |shifted| {
        let exponent = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
        simd.transmute_f32s_u32s(simd.add_u32s(exponent, simd.splat_u32s(1.0f32.to_bits())))
    };
    let y = simd.mul_f32s(simd.mul_f32s(sum, power(half)), power(rest));
    let y = simd.select_f32s(simd.less_than_f32s(x, of(-104.0)), of(0.0), y);
    simd.select_f32s(simd.greater_than_f32s(x, of(88.8)), of(f32::INFINITY), y)
}

/// [`exp`].
#[derive(Clone, Copy)]
pub(crate) struct Exp;

impl Function for Exp {
    #[inline(always)]
    fn of<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        exp(simd, x)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    #[test]
    fn is_that_of_float64() {
        check(Exp, 2.0, f64::exp);
    }
}
