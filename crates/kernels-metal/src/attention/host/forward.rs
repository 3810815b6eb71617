//! Y and the log-sum-exp of rows, by an online softmax over blocks of keys.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::block::{self, KEYS, QUERIES, Span, load, padded, tiled};
use super::problem::Problem;
use super::product::{Extent, Left, add_product, product};
use super::scores::{Corner, Normal, Rows};
use super::scratch::Scratch;
use super::{Inputs, Outputs, Sizes, length, split};
use crate::Result;
use crate::attention::Attention;
use crate::sample::Sample;
use crate::vector_math::exp;

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
    let problem = Problem::new(attention, sizes, inputs);
    let (spans, width) = (spans(sizes), sizes.value_width);
    let ys = split(outputs.y, spans.iter().map(|span| span.count * width));
    let lses = split(outputs.lse, spans.iter().map(|span| span.count));
    spans.into_par_iter().zip(ys).zip(lses).for_each(|((span, y), lse)| {
        attend(&problem, span, &mut |row, values, normal| {
            T::store(values, &mut y[row * width..][..width]);
            lse[row] = normal.lse();
        });
    });
    Ok(())
}

/// The rows of all queries (B Hq L) in order. No span reaches over two heads; each is long enough to pay for the
/// transposition of keys, and there are enough to share among threads.
pub(super) fn spans(sizes: Sizes) -> Vec<Span> {
    let long = (sizes.rows() / 32).next_multiple_of(QUERIES).clamp(QUERIES, 16 * QUERIES);
    let queries = sizes.queries;
    let head = |head: usize| {
        let span = move |query| Span { first: head * queries + query, count: long.min(queries - query) };
        (0..queries).step_by(long).map(span)
    };
    (0..sizes.batch * sizes.heads).flat_map(head).collect()
}

/// Hands every row of `span` to `finish`: its number in the span, its values (Ev), and what makes probabilities of its
/// scores.
pub(super) fn attend(problem: &Problem<'_>, span: Span, finish: &mut dyn FnMut(usize, &[f32], Normal)) {
    Arch::new().dispatch(Attend { problem, span, finish });
}

struct Attend<'a> {
    problem: &'a Problem<'a>,
    span: Span,
    finish: &'a mut dyn FnMut(usize, &[f32], Normal),
}

impl WithSimd for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { problem, span, finish } = self;
        let sizes = problem.sizes;
        let (head, first_query) = (span.first / sizes.queries, span.first % sizes.queries);
        let (batch, key_head) = (head / sizes.heads, head / sizes.group());
        let (width, value_width) = (padded(sizes.width), padded(sizes.value_width));
        let mut q = Scratch::new(tiled(span.count) * width);
        load(problem.q, span, sizes.width, &mut q);
        let [mut k, mut transposed] = [(); 2].map(|()| Scratch::new(KEYS * width));
        let mut v = Scratch::new(KEYS * value_width);
        let mut p = Scratch::new(QUERIES * KEYS);
        let mut values = Scratch::new(tiled(span.count) * value_width);
        let mut states = vec![State::default(); span.count];
        let mut rows = Rows::new(problem);

        for key in (0..problem.visible(first_query + span.count - 1)).step_by(KEYS) {
            let keys = KEYS.min(problem.keys - key);
            let columns = padded(keys);
            let key_rows = Span { first: key_head * sizes.keys + key, count: keys };
            load(problem.k, key_rows, sizes.width, &mut k);
            load(problem.v, key_rows, sizes.value_width, &mut v);
            block::transpose(&k, width, keys, columns, &mut transposed);
            for first in (0..span.count).step_by(QUERIES) {
                let count = QUERIES.min(span.count - first);
                let query = first_query + first;
                if problem.visible(query + count - 1) <= key {
                    continue;
                }
                let a = Left::Rows { data: &q[first * width..], stride: width };
                let extent = Extent { rows: tiled(count), inner: sizes.width, columns };
                product(simd, extent, a, &transposed, &mut p);
                let corner = Corner([batch, head % sizes.heads, query, key]);
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
                let a = Left::Rows { data: &p, stride: columns };
                let extent = Extent { rows: tiled(count), inner: keys, columns: value_width };
                add_product(simd, extent, a, &v, &mut values[first * value_width..]);
            }
        }

        for (row, state) in states.iter().enumerate() {
            let normal = state.normal();
            let values = &mut values[row * value_width..][..sizes.value_width];
            for x in values.iter_mut() {
                *x *= normal.norm;
            }
            finish(row, values, normal);
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
