//! The exponential of vectors of float32.

use pulp::Simd;

/// exp of every lane, to about one unit in the last place: 0 below -87.33, infinity above 88.37, NaN for NaN.
///
/// With n = round(x / ln 2) and r = x - n ln 2 in [-ln 2 / 2, ln 2 / 2], exp(x) = 2^n exp(r), the latter by its Taylor
/// polynomial.
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
    let coefficients = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let mut sum = of(1.0 / 5040.0);
    for c in coefficients {
        sum = simd.mul_add_e_f32s(sum, r, of(c));
    }
    let n = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    let power = simd.transmute_f32s_u32s(simd.add_u32s(n, simd.splat_u32s(1.0f32.to_bits())));
    let y = simd.mul_f32s(sum, power);
    let y = simd.select_f32s(simd.less_than_f32s(x, of(-87.33)), of(0.0), y);
    simd.select_f32s(simd.greater_than_f32s(x, of(88.37)), of(f32::INFINITY), y)
}

#[cfg(test)]
mod tests {
    use pulp::{Arch, WithSimd};

    use super::*;

    struct Exp<'a>(&'a mut [f32]);

    impl WithSimd for Exp<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for x in S::as_mut_simd_f32s(self.0).0 {
                *x = exp(simd, *x);
            }
        }
    }

    #[test]
    fn is_within_two_units_of_float64() {
        let xs: Vec<f32> = (0..1 << 16).map(|i| -87.3 + 175.6 * i as f32 / 65536.0).collect();
        let mut ys = xs.clone();
        Arch::new().dispatch(Exp(&mut ys));
        for (x, y) in xs.iter().zip(ys) {
            let wanted = f64::from(*x).exp();
            assert!((f64::from(y) - wanted).abs() <= 2.4e-7 * wanted, "exp({x}) = {y}, not {wanted}");
        }
    }

    #[test]
    fn ends_are_zero_infinity_and_nan() {
        let mut ys = [0.0; 16];
        ys[..6].copy_from_slice(&[f32::NEG_INFINITY, -1e30, f32::INFINITY, 1e30, f32::NAN, -0.0]);
        Arch::new().dispatch(Exp(&mut ys));
        assert_eq!(ys[..4], [0.0, 0.0, f32::INFINITY, f32::INFINITY]);
        assert!(ys[4].is_nan());
        assert_eq!(ys[5], 1.0);
    }
}
