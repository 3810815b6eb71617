//! The logistic function.

use pulp::Simd;

use super::{Function, exp};

/// 1 / (1 + exp(-x)) of every lane, within 3 units in the last place.
///
/// With e = exp(-|x|), which does not overflow: 1 / (1 + e), or e / (1 + e) for negative x.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let (zero, one) = (simd.splat_f32s(0.0), simd.splat_f32s(1.0));
    let power = exp(simd, simd.sub_f32s(zero, simd.abs_f32s(x)));
    let above = simd.select_f32s(simd.less_than_f32s(x, zero), power, one);
    simd.div_f32s(above, simd.add_f32s(power, one))
}

/// [`sigmoid`].
#[derive(Clone, Copy)]
pub(crate) struct Sigmoid;

impl Function for Sigmoid {
    #[inline(always)]
    fn of<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        sigmoid(simd, x)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::*;

    #[test]
    fn is_that_of_float64() {
        check(Sigmoid, 3.0, |x| 1.0 / (1.0 + (-x).exp()));
    }
}
