//! Element types of kernels' inputs and outputs on the host.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use mlx_safe::Element;

/// A type that inputs and outputs may have: float32, float16 or bfloat16. Kernels compute in float32.
pub trait Sample: Element {
    /// 0.
    const ZERO: Self;
    /// Reads `from` into `to`, of the same length.
    fn load(from: &[Self], to: &mut [f32]);
    /// Rounds `from` into `to`, of the same length.
    fn store(from: &[f32], to: &mut [Self]);
}

impl Sample for f32 {
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn load(from: &[Self], to: &mut [f32]) {
        to.copy_from_slice(from);
    }

    #[inline(always)]
    fn store(from: &[f32], to: &mut [Self]) {
        to.copy_from_slice(from);
    }
}

macro_rules! half_samples {
    ($($half:ty),*) => {$(
        impl Sample for $half {
            const ZERO: Self = Self::ZERO;

            fn load(from: &[Self], to: &mut [f32]) {
                from.convert_to_f32_slice(to);
            }

            fn store(from: &[f32], to: &mut [Self]) {
                to.convert_from_f32_slice(from);
            }
        }
    )*};
}

half_samples!(f16, bf16);
