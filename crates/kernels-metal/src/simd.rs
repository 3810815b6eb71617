//! SIMD for the host: one generic text, compiled for every instruction set and chosen at run time, and an exponential.
//!
//! 2^x is 2^(x - r) 2^r with r the nearest integer: a polynomial of degree 5 on [-1/2, 1/2] that is exactly 1 at 0 (so that
//! decays close to 1 stay so) and whose relative error is 1e-7 before rounding, then a change of the exponent.

use std::f32::consts::LN_2;
use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

/// Coefficients of f, f^2, ... f^5 in the approximation of 2^f on [-1/2, 1/2]: after the first, minimax in relative error.
const COEFFICIENTS: [f32; 5] = [LN_2, 0.240_222_83, 0.055_505_585, 0.009_669_691, 0.001_330_060_5];

/// log2(e): exp(x) is 2^(x log2(e)).
pub use std::f32::consts::LOG2_E;

/// 2^x on vectors of `S`.
pub trait Exp2<S: Simd>: Copy + Send + Sync {
    /// 2^x within 2e-7 of itself for x in [-126, 128), infinite above; below -126 within 1e-38, and 0 from -150 on at the
    /// latest.
    fn exp2(self, simd: S, x: S::f32s) -> S::f32s;
}

/// With additions to the exponent's bits.
#[derive(Clone, Copy, Debug)]
pub struct Bits;

impl<S: Simd> Exp2<S> for Bits {
    #[inline(always)]
    fn exp2(self, simd: S, x: S::f32s) -> S::f32s {
        // At -127 the sum of the exponents is 0 and the number is 0; at 128 it is infinity's.
        let x = simd.min_f32s(simd.splat_f32s(128.0), simd.max_f32s(simd.splat_f32s(-127.0), x));
        // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
        let magic = simd.splat_f32s(12_582_912.0);
        let shifted = simd.add_f32s(x, magic);
        let p = polynomial(simd, simd.sub_f32s(x, simd.sub_f32s(shifted, magic)));
        let exponent = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
        simd.transmute_f32s_u32s(simd.add_u32s(simd.transmute_u32s_f32s(p), exponent))
    }
}

#[cfg(target_arch = "x86_64")]
pub use avx512::Scale;

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use pulp::x86::V4;

    use super::{Exp2, polynomial};

    /// With AVX-512's instructions for the fraction and for the exponent.
    #[derive(Clone, Copy, Debug)]
    pub struct Scale;

    impl Exp2<V4> for Scale {
        #[inline(always)]
        fn exp2(self, simd: V4, x: pulp::f32x16) -> pulp::f32x16 {
            /// To the nearest, without exceptions.
            const NEAREST: i32 = 8;
            let wide = pulp::cast(x);
            let fraction = simd.avx512dq._mm512_reduce_ps::<NEAREST>(wide);
            let whole = simd.avx512f._mm512_sub_ps(wide, fraction);
            let p = pulp::cast(polynomial(simd, pulp::cast(fraction)));
            pulp::cast(simd.avx512f._mm512_scalef_ps(p, whole))
        }
    }
}

#[inline(always)]
fn polynomial<S: Simd>(simd: S, f: S::f32s) -> S::f32s {
    let [c1, c2, c3, c4, c5] = COEFFICIENTS.map(|c| simd.splat_f32s(c));
    let p = simd.mul_add_f32s(c5, f, c4);
    let p = simd.mul_add_f32s(p, f, c3);
    let p = simd.mul_add_f32s(p, f, c2);
    let p = simd.mul_add_f32s(p, f, c1);
    simd.mul_add_f32s(p, f, simd.splat_f32s(1.0))
}

/// Memory for vectors, aligned as they like it best: one that lies across two lines of the cache costs twice.
#[derive(Debug)]
pub struct Room {
    floats: Vec<f32>,
    range: Range<usize>,
}

impl Room {
    /// For so many vectors of `S`, all zero.
    pub fn new<S: Simd>(_: S, vectors: usize) -> Self {
        const LINE: usize = 64 / size_of::<f32>();
        let length = vectors * S::F32_LANES;
        let floats = vec![0.0f32; length + LINE];
        let first = floats.as_ptr().align_offset(64).min(LINE);
        Self { floats, range: first..first + length }
    }

    /// The vectors.
    pub fn vectors<S: Simd>(&mut self, _: S) -> &mut [S::f32s] {
        S::as_mut_simd_f32s(&mut self.floats[self.range.clone()]).0
    }
}

/// The next `length` of `room`, which is large enough.
#[inline(always)]
pub fn take<'a, V>(room: &mut &'a mut [V], length: usize) -> &'a mut [V] {
    room.split_off_mut(..length).unwrap_or_default()
}

/// Work that is compiled for every instruction set. Implementations are `#[inline(always)]`, with all that they call in
/// their loops.
pub trait Work {
    /// What it gives.
    type Output;
    /// The work, with this set's vectors and exponential.
    fn run<S: Simd, E: Exp2<S>>(self, simd: S, exp: E) -> Self::Output;
}

/// Runs `work` with the best instruction set that the processor has.
pub fn dispatch<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        return simd.vectorize(Wide(simd, work));
    }
    Arch::new().dispatch(Any(work))
}

struct Any<W>(W);

impl<W: Work> WithSimd for Any<W> {
    type Output = W::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> W::Output {
        self.0.run(simd, Bits)
    }
}

#[cfg(target_arch = "x86_64")]
struct Wide<W>(pulp::x86::V4, W);

#[cfg(target_arch = "x86_64")]
impl<W: Work> pulp::NullaryFnOnce for Wide<W> {
    type Output = W::Output;

    #[inline(always)]
    fn call(self) -> W::Output {
        self.1.run(self.0, Scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct All<'a>(&'a [f32], &'a mut [f32]);

    impl Work for All<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd, E: Exp2<S>>(self, simd: S, exp: E) {
            let (x, _) = S::as_simd_f32s(self.0);
            let (y, _) = S::as_mut_simd_f32s(self.1);
            for (x, y) in x.iter().zip(y) {
                *y = exp.exp2(simd, *x);
            }
        }
    }

    fn on_every_set(x: &[f32], check: impl Fn(&[f32])) {
        let mut y = vec![0.0; x.len()];
        dispatch(All(x, &mut y));
        check(&y);
        All(x, &mut y).run(pulp::Scalar::new(), Bits);
        check(&y);
        Arch::new().dispatch(Any(All(x, &mut y)));
        check(&y);
    }

    #[test]
    fn is_within_its_bounds_everywhere() {
        let x: Vec<f32> = (0..1 << 20).map(|i| -160.0 + 300.0 * i as f32 / (1 << 20) as f32).collect();
        on_every_set(&x, |y| {
            for (x, y) in x.iter().zip(y) {
                let wanted = f64::from(*x).exp2();
                if *x >= 128.0 {
                    assert_eq!(*y, f32::INFINITY, "{x}");
                } else if *x >= -126.0 {
                    assert!((f64::from(*y) / wanted - 1.0).abs() < 2e-7, "{x}: {y} for {wanted}");
                } else {
                    assert!((f64::from(*y) - wanted).abs() < 1e-38 && *y >= 0.0, "{x}: {y} for {wanted}");
                }
            }
            assert!(y.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 2.4e-7)));
            assert_eq!(y[0], 0.0);
        });
    }

    #[test]
    fn extremes() {
        let x: Vec<f32> = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, 1e38, -1e38]
            .into_iter()
            .cycle()
            .take(64)
            .collect();
        on_every_set(&x, |y| {
            assert_eq!(y[..8], [1.0, 1.0, 2.0, 0.5, f32::INFINITY, 0.0, f32::INFINITY, 0.0])
        });
    }

    #[test]
    fn close_to_zero_decays_are_as_exact_as_float32() {
        let x: Vec<f32> = (0..4096).map(|i| -1e-3 * i as f32 / 4096.0).collect();
        on_every_set(&x, |y| {
            for (x, y) in x.iter().zip(y) {
                assert!((f64::from(*y) - f64::from(*x).exp2()).abs() <= 3.1e-8, "{x}: {y}");
            }
        });
    }
}
