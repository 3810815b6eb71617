//! Functions of vectors of float32, for the kernels on the host.

mod erf;
mod exp;
mod sigmoid;
mod tanh;

pub(crate) use erf::{Erf, erf};
pub(crate) use exp::{Exp, exp};
pub(crate) use sigmoid::{Sigmoid, sigmoid};
pub(crate) use tanh::{Tanh, tanh};

use pulp::Simd;

/// A function of vectors. No closure: those are compiled apart, without the instructions of their surroundings, if the
/// compiler does not care to inline them.
pub(crate) trait Function: Copy {
    /// Its value; `#[inline(always)]` in every implementation.
    fn of<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s;
}

/// Replaces every element of `values` by its function.
#[inline(always)]
pub(crate) fn map<S: Simd>(simd: S, function: impl Function, values: &mut [f32]) {
    let (vectors, rest) = S::as_mut_simd_f32s(values);
    for x in vectors {
        *x = function.of(simd, *x);
    }
    if !rest.is_empty() {
        let last = function.of(simd, simd.partial_load_f32s(rest));
        simd.partial_store_f32s(rest, last);
    }
}

/// The polynomial with these coefficients, the highest power's first.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(simd: S, x: S::f32s, coefficients: [f32; N]) -> S::f32s {
    let mut coefficients = coefficients.into_iter();
    let mut sum = simd.splat_f32s(coefficients.next().unwrap_or(0.0));
    for c in coefficients {
        sum = simd.mul_add_e_f32s(sum, x, simd.splat_f32s(c));
    }
    sum
}

/// `magnitude`, not negative, with the sign of `x`.
#[inline(always)]
fn with_sign<S: Simd>(simd: S, magnitude: S::f32s, x: S::f32s) -> S::f32s {
    let sign = simd.and_u32s(simd.transmute_u32s_f32s(x), simd.splat_u32s(1 << 31));
    simd.transmute_f32s_u32s(simd.or_u32s(simd.transmute_u32s_f32s(magnitude), sign))
}

#[cfg(test)]
mod testing {
    use pulp::{Arch, Simd, WithSimd};

    use super::{Function, map};

    struct Map<'a, F>(F, &'a mut [f32]);

    impl<F: Function> WithSimd for Map<'_, F> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            map(simd, self.0, self.1);
        }
    }

    /// Values of every size and sign, and the ends.
    pub(super) fn everywhere() -> Vec<f32> {
        let spread = (0..1u32 << 16).map(|i| f32::from_bits(i << 16)).filter(|x| x.is_finite());
        let dense = (0..1 << 16).map(|i| -110.0 + 220.0 * i as f32 / 65536.0);
        let middle = (0..1 << 16).map(|i| -5.0 + 10.0 * i as f32 / 65536.0);
        let ends = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, 1e-45, -1e-45, f32::MAX];
        spread.chain(dense).chain(middle).chain(ends).collect()
    }

    /// `function` is within `units` units in the last place of `wanted` everywhere, on every instruction set.
    pub(super) fn check(function: impl Function, units: f64, wanted: impl Fn(f64) -> f64) {
        let xs = everywhere();
        let run = |how: &dyn Fn(&mut [f32])| {
            let mut ys = xs.clone();
            how(&mut ys);
            for (&x, y) in xs.iter().zip(ys) {
                let wanted = wanted(x.into());
                let nearest = wanted as f32;
                let unit = f64::from(nearest.abs().next_up()) - f64::from(nearest.abs());
                let off = if f64::from(nearest) == f64::from(y) {
                    0.0
                } else {
                    (f64::from(y) - wanted).abs() / unit
                };
                assert!(off <= units, "f({x:e}) = {y:e}, not {wanted:e}: {off} units");
                assert!(
                    y != 0.0 || wanted.abs() < 1e-45 && y.is_sign_negative() == wanted.is_sign_negative(),
                    "{x:e}"
                );
            }
            let mut odd = [f32::NAN; 19];
            how(&mut odd);
            assert!(odd.iter().all(|y| y.is_nan()));
        };
        run(&|ys| Arch::new().dispatch(Map(function, ys)));
        run(&|ys| Map(function, ys).with_simd(pulp::Scalar::new()));
    }
}
