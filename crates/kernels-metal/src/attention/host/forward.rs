//! Y and the log-sum-exp of rows, by an online softmax over blocks of keys.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::block::{self, KEYS, QUERIES, load, padded, tiled};
use super::product::{self, Extent, product};
use super::scores::{Corner, Normal, Rows, Rule};
use super::scratch::Scratch;
use super::{Inputs, Outputs, Sizes, length, split};
use crate::Result;
use crate::attention::Attention;
use crate::exp::exp;
use crate::sample::Sample;

/// Computes Y and lse.
///
/// # Errors
/// If a slice has not the length that the sizes say, the mask does not broadcast, or Hq is no multiple of Hk.
pub fn forward<T: Sample>(
    attention: &Attention,
    sizes: Sizes,
    inputs: &Inputs<'_, T>,
    outputs: Outputs<'_, T>,
) -> Result<()> {
    inputs.check(sizes)?;
    length("y", outputs.y, sizes.lengths()[3])?;
    length("lse", outputs.lse, sizes.rows())?;
    let rule = Rule::new(attention, sizes, inputs);
    let spans = Span::all(sizes);
    let ys = split(outputs.y, spans.iter().map(|span| span.count * sizes.value_width));
    let lses = split(outputs.lse, spans.iter().map(|span| span.count));
    spans.into_par_iter().zip(ys).zip(lses).for_each(|((span, y), lse)| {
        let width = sizes.value_width;
        attend(rule, sizes, inputs, span, |row, values, normal| {
            T::store(values, &mut y[row * width..][..width]);
            lse[row] = normal.lse();
        });
    });
    Ok(())
}

/// Some queries of one head.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) batch: usize,
    pub(super) head: usize,
    pub(super) query: usize,
    pub(super) count: usize,
}

impl Span {
    /// All queries in order, in spans that are long enough to pay for the transposition of keys, and enough to share among
    /// threads.
    pub(super) fn all(sizes: Sizes) -> Vec<Self> {
        let long = (sizes.rows() / 32).next_multiple_of(QUERIES).clamp(QUERIES, 16 * QUERIES);
        let mut spans = Vec::new();
        for batch in 0..sizes.batch {
            for head in 0..sizes.heads {
                for query in (0..sizes.queries).step_by(long) {
                    let count = long.min(sizes.queries - query);
                    spans.push(Self { batch, head, query, count });
                }
            }
        }
        spans
    }
}

/// Calls `finish` for every row of `span` with its number in the span, its values (Ev) and what makes probabilities of its
/// scores.
pub(super) fn attend<T: Sample>(
    rule: Rule<'_>,
    sizes: Sizes,
    inputs: &Inputs<'_, T>,
    span: Span,
    finish: impl FnMut(usize, &[f32], Normal),
) {
    Arch::new().dispatch(Attend { rule, sizes, inputs, span, finish });
}

struct Attend<'a, 'b, T, F> {
    rule: Rule<'a>,
    sizes: Sizes,
    inputs: &'b Inputs<'a, T>,
    span: Span,
    finish: F,
}

impl<T: Sample, F: FnMut(usize, &[f32], Normal)> WithSimd for Attend<'_, '_, T, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let Self { rule, sizes, inputs, span, .. } = self;
        let (width, value_width) = (padded(sizes.width), padded(sizes.value_width));
        let key_head = span.batch * sizes.key_heads + span.head / sizes.group();
        let mut q = Scratch::new(tiled(span.count) * width);
        load(span.of(inputs.q, sizes, sizes.width), sizes.width, &mut q);
        let mut k = Scratch::new(KEYS * width);
        let mut transposed = Scratch::new(KEYS * width);
        let mut v = Scratch::new(KEYS * value_width);
        let mut p = Scratch::new(QUERIES * KEYS);
        let mut values = Scratch::new(tiled(span.count) * value_width);
        let mut states = vec![State::default(); span.count];
        let mut rows = Rows::new(rule);

        for key in (0..rule.visible(span.query + span.count - 1)).step_by(KEYS) {
            let keys = KEYS.min(rule.keys - key);
            let columns = padded(keys);
            load(block::of(inputs.k, key_head, sizes.keys, key, keys, sizes.width), sizes.width, &mut k);
            load(
                block::of(inputs.v, key_head, sizes.keys, key, keys, sizes.value_width),
                sizes.value_width,
                &mut v,
            );
            block::transpose(&k, width, keys, columns, &mut transposed);
            for first in (0..span.count).step_by(QUERIES) {
                let count = QUERIES.min(span.count - first);
                let query = span.query + first;
                if rule.visible(query + count - 1) <= key {
                    continue;
                }
                let a = product::Rows { data: &q[first * width..], stride: width };
                let extent = Extent { rows: tiled(count), inner: sizes.width, columns };
                product::<S, false>(simd, extent, a, &transposed, &mut p);
                let corner = Corner([span.batch, span.head, query, key]);
                for row in 0..count {
                    let line = &mut p[row * columns..][..columns];
                    let largest = rows.scores(simd, corner, row, keys, line);
                    let shrink = states[first + row].take(simd, largest, line);
                    if shrink != 1.0 {
                        let shrink = simd.splat_f32s(shrink);
                        let values = &mut values[(first + row) * value_width..][..value_width];
                        for x in S::as_mut_simd_f32s(values).0 {
                            *x = simd.mul_f32s(*x, shrink);
                        }
                    }
                }
                let a = product::Rows { data: &p, stride: columns };
                let extent = Extent { rows: tiled(count), inner: keys, columns: value_width };
                product::<S, true>(simd, extent, a, &v, &mut values[first * value_width..]);
            }
        }

        for (row, state) in states.iter().enumerate() {
            let normal = state.normal();
            let values = &mut values[row * value_width..][..sizes.value_width];
            for x in values.iter_mut() {
                *x *= normal.norm;
            }
            (self.finish)(row, values, normal);
        }
    }
}

/// What is known of a row's scores so far.
#[derive(Clone, Copy)]
struct State {
    largest: f32,
    sum: f32,
}

impl Default for State {
    fn default() -> Self {
        Self { largest: f32::NEG_INFINITY, sum: 0.0 }
    }
}

impl State {
    /// Turns more scores into exp(score - largest so far), and returns what the sums so far are to be multiplied by.
    #[inline(always)]
    fn take<S: Simd>(&mut self, simd: S, largest: f32, scores: &mut [f32]) -> f32 {
        let largest = self.largest.max(largest);
        // While nothing is seen, all scores are minus infinity, or not numbers and shall stay so.
        let shift = simd.splat_f32s(if largest == f32::NEG_INFINITY { 0.0 } else { largest });
        let mut sum = simd.splat_f32s(0.0);
        for x in S::as_mut_simd_f32s(scores).0 {
            *x = exp(simd, simd.sub_f32s(*x, shift));
            sum = simd.add_f32s(sum, *x);
        }
        let shrink = if largest == self.largest { 1.0 } else { (self.largest - largest).exp() };
        self.sum = self.sum * shrink + simd.reduce_sum_f32s(sum);
        self.largest = largest;
        shrink
    }

    fn normal(self) -> Normal {
        if self.sum == 0.0 { Normal::BLIND } else { Normal { shift: self.largest, norm: 1.0 / self.sum } }
    }
}

impl Span {
    /// The rows of this span in a (B, Hq, L, `width`).
    pub(super) fn of<'a, T>(&self, data: &'a [T], sizes: Sizes, width: usize) -> &'a [T] {
        block::of(data, self.batch * sizes.heads + self.head, sizes.queries, self.query, self.count, width)
    }
}
