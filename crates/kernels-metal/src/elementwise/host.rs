//! The functions in plain Rust over slices; no MLX.

use pulp::Simd;
use rayon::prelude::*;

use super::Function;
use crate::simd::{Exp2, Work, dispatch};
use crate::vector_math::{erf, exp, sigmoid, tanh};

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
        let of = |value: f32| simd.splat_f32s(value);
        let half = |x| simd.mul_f32s(x, of(0.5));
        // x (1 + s) / 2
        let gate = |x, s| simd.mul_f32s(half(x), simd.add_f32s(s, of(1.0)));
        let values = self.values;
        match self.function {
            Function::Exp => map(simd, values, |x| exp(simd, x)),
            Function::Erf => map(simd, values, |x| erf(simd, x)),
            Function::Tanh => map(simd, values, |x| tanh(simd, x)),
            Function::Sigmoid => map(simd, values, |x| sigmoid(simd, x)),
            Function::Swish { alpha } => {
                map(simd, values, |x| simd.mul_f32s(x, sigmoid(simd, simd.mul_f32s(x, of(alpha)))));
            }
            Function::Gelu => map(simd, values, |x| {
                gate(x, erf(simd, simd.mul_f32s(x, of(std::f32::consts::FRAC_1_SQRT_2))))
            }),
            Function::GeluTanh => {
                let [linear, cubic] = super::gelu_tanh_factors().map(|factor| of(factor as f32));
                map(simd, values, |x| {
                    let inner = simd.mul_add_e_f32s(simd.mul_f32s(x, x), cubic, linear);
                    gate(x, tanh(simd, simd.mul_f32s(inner, x)))
                });
            }
        }
    }
}

#[inline(always)]
fn map<S: Simd>(simd: S, values: &mut [f32], function: impl Fn(S::f32s) -> S::f32s) {
    let (vectors, rest) = S::as_mut_simd_f32s(values);
    for x in vectors {
        *x = function(*x);
    }
    let last = function(simd.partial_load_f32s(rest));
    simd.partial_store_f32s(rest, last);
}
