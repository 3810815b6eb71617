//! The functions in plain Rust over slices; no MLX.

use pulp::Simd;
use rayon::prelude::*;

use super::Function;
use crate::simd::{Exp2, Work, dispatch};
use crate::vector_math::{self, Erf, Exp, Sigmoid, Tanh, erf, map, sigmoid, tanh};

/// Elements that a task changes.
const BLOCK: usize = 1 << 14;

/// Replaces every element of `values` by its function.
pub fn apply(function: Function, values: &mut [f32]) {
    if values.len() < 2 * BLOCK {
        return dispatch(Task { function, values });
    }
    values.par_chunks_mut(BLOCK).for_each(|values| dispatch(Task { function, values }));
}

struct Task<'a> {
    function: Function,
    values: &'a mut [f32],
}

impl Work for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, E: Exp2<S>>(self, simd: S, _: E) {
        let values = self.values;
        match self.function {
            Function::Exp => map(simd, Exp, values),
            Function::Erf => map(simd, Erf, values),
            Function::Tanh => map(simd, Tanh, values),
            Function::Sigmoid => map(simd, Sigmoid, values),
            Function::Swish { alpha } => map(simd, Swish(alpha), values),
            Function::Gelu => map(simd, Gelu, values),
            Function::GeluTanh => {
                let [linear, cubic] = super::gelu_tanh_factors().map(|factor| factor as f32);
                map(simd, GeluTanh { linear, cubic }, values);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Swish(f32);

impl vector_math::Function for Swish {
    #[inline(always)]
    fn of<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        simd.mul_f32s(x, sigmoid(simd, simd.mul_f32s(x, simd.splat_f32s(self.0))))
    }
}

#[derive(Clone, Copy)]
struct Gelu;

impl vector_math::Function for Gelu {
    #[inline(always)]
    fn of<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        let inner = simd.mul_f32s(x, simd.splat_f32s(std::f32::consts::FRAC_1_SQRT_2));
        gate(simd, x, erf(simd, inner))
    }
}

#[derive(Clone, Copy)]
struct GeluTanh {
    linear: f32,
    cubic: f32,
}

impl vector_math::Function for GeluTanh {
    #[inline(always)]
    fn of<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        let (linear, cubic) = (simd.splat_f32s(self.linear), simd.splat_f32s(self.cubic));
        let inner = simd.mul_add_e_f32s(simd.mul_f32s(x, x), cubic, linear);
        gate(simd, x, tanh(simd, simd.mul_f32s(inner, x)))
    }
}

/// x (1 + s) / 2
#[inline(always)]
fn gate<S: Simd>(simd: S, x: S::f32s, s: S::f32s) -> S::f32s {
    let half = simd.mul_f32s(x, simd.splat_f32s(0.5));
    simd.mul_f32s(half, simd.add_f32s(s, simd.splat_f32s(1.0)))
}
