//! From products of queries and keys to probabilities.

use pulp::Simd;

use super::block;
use super::problem::Problem;
use super::scratch::Scratch;
use crate::attention::REPLACES;
use crate::vector_math::exp;

/// A block of rows against a block of keys: `[batch, head, query, key]` is its corner.
#[derive(Clone, Copy)]
pub(super) struct Corner(pub(super) [usize; 4]);

/// The rows of a block of scores, one after another.
pub(super) struct Rows<'a> {
    problem: &'a Problem<'a>,
    bias: Scratch,
}

impl<'a> Rows<'a> {
    pub(super) fn new(problem: &'a Problem<'a>) -> Self {
        Self { problem, bias: Scratch::new(block::KEYS) }
    }

    /// Hands `row` of the block to `work`, with its bias and the number of keys that it sees in the block.
    #[inline(always)]
    fn seen(
        &mut self,
        Corner([batch, head, query, key]): Corner,
        row: usize,
        keys: usize,
    ) -> (usize, Option<&[f32]>) {
        let query = query + row;
        let seen = self.problem.visible(query).saturating_sub(key).min(keys);
        let bias = self.problem.mask.map(|mask| {
            mask.bias([batch, head, query, key], &mut self.bias[..keys]);
            &self.bias[..]
        });
        (seen, bias)
    }

    /// Turns products of one row into scores, minus infinity where the key is hidden, and returns the largest.
    #[inline(always)]
    pub(super) fn scores<S: Simd>(
        &mut self,
        simd: S,
        corner: Corner,
        row: usize,
        keys: usize,
        products: &mut [f32],
    ) -> f32 {
        let scale = simd.splat_f32s(self.problem.scale);
        let (seen, bias) = self.seen(corner, row, keys);
        let (vectors, _) = S::as_mut_simd_f32s(products);
        match bias {
            Some(bias) => {
                for (x, bias) in vectors.iter_mut().zip(S::as_simd_f32s(bias).0) {
                    *x = add(simd, simd.mul_f32s(*x, scale), *bias);
                }
            }
            None => {
                for x in vectors.iter_mut() {
                    *x = simd.mul_f32s(*x, scale);
                }
            }
        }
        products[seen..].fill(f32::NEG_INFINITY);
        let mut largest = simd.splat_f32s(f32::NEG_INFINITY);
        for x in S::as_simd_f32s(products).0 {
            largest = simd.max_f32s(largest, *x);
        }
        simd.reduce_max_f32s(largest)
    }

    /// Turns products of one row into probabilities exp(score - `shift`) `norm`.
    #[inline(always)]
    pub(super) fn probabilities<S: Simd>(
        &mut self,
        simd: S,
        corner: Corner,
        row: usize,
        keys: usize,
        Normal { shift, norm }: Normal,
        products: &mut [f32],
    ) {
        let scale = simd.splat_f32s(self.problem.scale);
        let (shift, norm) = (simd.splat_f32s(shift), simd.splat_f32s(norm));
        let (seen, bias) = self.seen(corner, row, keys);
        let (vectors, _) = S::as_mut_simd_f32s(products);
        match bias {
            Some(bias) => {
                for (x, bias) in vectors.iter_mut().zip(S::as_simd_f32s(bias).0) {
                    let score = add(simd, simd.mul_f32s(*x, scale), *bias);
                    *x = simd.mul_f32s(exp(simd, simd.sub_f32s(score, shift)), norm);
                }
            }
            None => {
                for x in vectors.iter_mut() {
                    let score = simd.mul_f32s(*x, scale);
                    *x = simd.mul_f32s(exp(simd, simd.sub_f32s(score, shift)), norm);
                }
            }
        }
        products[seen..].fill(0.0);
    }
}

/// What makes probabilities of a row's scores: exp(score - `shift`) `norm`.
#[derive(Clone, Copy, Default)]
pub(super) struct Normal {
    pub(super) shift: f32,
    pub(super) norm: f32,
}

impl Normal {
    /// Of a row that sees no key.
    pub(super) const BLIND: Self = Self { shift: 0.0, norm: 0.0 };

    pub(super) fn of_lse(lse: f32) -> Self {
        if lse == f32::NEG_INFINITY { Self::BLIND } else { Self { shift: lse, norm: 1.0 } }
    }

    pub(super) fn lse(self) -> f32 {
        if self.norm == 0.0 { f32::NEG_INFINITY } else { self.shift - self.norm.ln() }
    }
}

/// `score` + `bias`, or what stands in the score's place.
#[inline(always)]
fn add<S: Simd>(simd: S, score: S::f32s, bias: S::f32s) -> S::f32s {
    let replaces = simd.less_than_or_equal_f32s(bias, simd.splat_f32s(REPLACES));
    simd.select_f32s(replaces, bias, simd.add_f32s(score, bias))
}
