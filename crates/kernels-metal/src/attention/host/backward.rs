//! dQ, dK and dV: the probabilities of a block of queries and a block of keys are made again from the rows' log-sum-exp.
//!
//! A task has one key head, or part of its keys, and walks over the query heads and queries that see them: dK and dV are its
//! own, and so is a sum for dQ. The sums of the parts are added in order.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::block::{self, KEYS, QUERIES, Source, Span, load, padded, store, tiled};
use super::forward::{attend, spans};
use super::problem::Problem;
use super::product::{COLUMNS, Extent, Left, add_product, product};
use super::scores::{Corner, Normal, Rows};
use super::scratch::Scratch;
use super::{Grads, Inputs, Saved, Sizes, length, split};
use crate::Result;
use crate::attention::Attention;
use crate::sample::Sample;

/// What the sums for dQ may take together when a key head is split to keep threads busy.
const SUMS_BYTES: usize = 32 << 20;

/// Computes dQ, dK and dV from dY (B, Hq, L, Ev). Without `saved` the forward pass runs again for its log-sum-exp.
///
/// # Errors
/// As [`forward`](super::forward).
pub fn grad<T: Sample>(
    attention: &Attention,
    sizes: Sizes,
    inputs: &Inputs<'_, T>,
    dy: &[T],
    saved: Option<Saved<'_, T>>,
    grads: Grads<'_, T>,
) -> Result<()> {
    inputs.check(sizes)?;
    let [q, k, v, y] = sizes.lengths();
    length("dy", dy, y)?;
    length("dq", grads.q, q)?;
    length("dk", grads.k, k)?;
    length("dv", grads.v, v)?;
    let problem = Problem::new(attention, sizes, inputs);
    let rows = match saved {
        Some(saved) => {
            length("y", saved.y, y)?;
            length("lse", saved.lse, sizes.rows())?;
            told(sizes, dy, saved)
        }
        None => found(&problem, dy),
    };
    let context = Context { problem, dy: &dy, rows: &rows };
    let heads = sizes.batch * sizes.key_heads;
    let equal = |length: usize| std::iter::repeat_n(length / heads.max(1), heads);
    let (dq, dk, dv) = (split(grads.q, equal(q)), split(grads.k, equal(k)), split(grads.v, equal(v)));
    dq.into_par_iter().zip(dk).zip(dv).enumerate().for_each(|(key_head, ((dq, dk), dv))| {
        context.key_head(key_head, dq, dk, dv);
    });
    Ok(())
}

/// What is known of a row: how to make its probabilities, and the sum of dY * Y.
#[derive(Clone, Copy, Default)]
struct Row {
    normal: Normal,
    delta: f32,
}

fn told<T: Sample>(sizes: Sizes, dy: &[T], saved: Saved<'_, T>) -> Vec<Row> {
    let width = sizes.value_width;
    let row = |index: usize| {
        let (mut y, mut dy_row) = (vec![0.0; width], vec![0.0; width]);
        T::load(&saved.y[index * width..][..width], &mut y);
        T::load(&dy[index * width..][..width], &mut dy_row);
        Row { normal: Normal::of_lse(saved.lse[index]), delta: dot(&y, &dy_row) }
    };
    (0..sizes.rows()).into_par_iter().with_min_len(256).map(row).collect()
}

fn found<T: Sample>(problem: &Problem<'_>, dy: &[T]) -> Vec<Row> {
    let (sizes, width) = (problem.sizes, problem.sizes.value_width);
    let mut rows = vec![Row::default(); sizes.rows()];
    let spans = spans(sizes);
    let parts = split(&mut rows, spans.iter().map(|span| span.count));
    spans.into_par_iter().zip(parts).for_each(|(span, rows)| {
        let mut dy_row = vec![0.0; width];
        attend(problem, span, &mut |row, y, normal| {
            T::load(&dy[(span.first + row) * width..][..width], &mut dy_row);
            rows[row] = Row { normal, delta: dot(y, &dy_row) };
        });
    });
    rows
}

/// The sum of dY * Y, in the order in which dY V^T is summed: for a row that sees one key alone both are the same number,
/// and its gradient is 0 instead of a rounding error times the scale.
fn dot(y: &[f32], dy: &[f32]) -> f32 {
    Arch::new().dispatch(Dot { y, dy })
}

struct Dot<'a> {
    y: &'a [f32],
    dy: &'a [f32],
}

impl WithSimd for Dot<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let mut sum = simd.splat_f32s(0.0);
        for (&y, &dy) in self.y.iter().zip(self.dy) {
            sum = simd.mul_add_e_f32s(simd.splat_f32s(dy), simd.splat_f32s(y), sum);
        }
        let mut lanes = [0.0; COLUMNS];
        S::as_mut_simd_f32s(&mut lanes).0[0] = sum;
        lanes[0]
    }
}

struct Context<'a> {
    problem: Problem<'a>,
    dy: &'a dyn Source,
    rows: &'a [Row],
}

impl Context<'_> {
    /// Keys of one task.
    fn part(&self) -> usize {
        let sizes = self.problem.sizes;
        let heads = sizes.batch * sizes.key_heads;
        let bytes = size_of::<f32>() * self.sums() * heads;
        let parts = 16usize.div_ceil(heads).min(1 + SUMS_BYTES / bytes.max(1));
        sizes.keys.div_ceil(parts).next_multiple_of(KEYS).max(KEYS)
    }

    /// Floats of a task's sum for dQ.
    fn sums(&self) -> usize {
        let sizes = self.problem.sizes;
        sizes.group() * tiled(sizes.queries) * padded(sizes.width)
    }

    fn key_head<T: Sample>(&self, key_head: usize, dq: &mut [T], dk: &mut [T], dv: &mut [T]) {
        let (Sizes { queries, keys, width, value_width, .. }, scale) =
            (self.problem.sizes, self.problem.scale);
        let part = self.part();
        let spans: Vec<Span> =
            (0..keys).step_by(part).map(|first| Span { first, count: part.min(keys - first) }).collect();
        let dks = split(dk, spans.iter().map(|span| span.count * width));
        let dvs = split(dv, spans.iter().map(|span| span.count * value_width));
        let task = |((span, dk), dv): ((Span, &mut [T]), &mut [T])| {
            let finish = &mut |block: Span, dk_sum: &mut [f32], dv_sum: &mut [f32]| {
                store(dk_sum, scale, width, &mut dk[block.first * width..][..block.count * width]);
                let dv = &mut dv[block.first * value_width..][..block.count * value_width];
                store(dv_sum, 1.0, value_width, dv);
            };
            Arch::new().dispatch(Pull { context: self, key_head, span, finish })
        };
        let mut sums: Vec<Scratch> = spans.into_par_iter().zip(dks).zip(dvs).map(task).collect();
        let Some((total, others)) = sums.split_first_mut() else {
            return T::store(&vec![0.0; dq.len()], dq);
        };
        for other in others {
            for (total, other) in total.iter_mut().zip(other.iter()) {
                *total += other;
            }
        }
        let stride = tiled(queries) * padded(width);
        for (head, dq) in dq.chunks_exact_mut((queries * width).max(1)).enumerate() {
            store(&mut total[head * stride..], scale, width, dq);
        }
    }
}

/// One task: some keys of `key_head` of (B, Hk). `finish` gets the sums for dK and dV of each block of them, by its place
/// among them.
struct Pull<'a> {
    context: &'a Context<'a>,
    key_head: usize,
    span: Span,
    finish: &'a mut Finish<'a>,
}

type Finish<'a> = dyn FnMut(Span, &mut [f32], &mut [f32]) + 'a;

impl WithSimd for Pull<'_> {
    /// The sum for dQ of the query heads that share the key head.
    type Output = Scratch;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Scratch {
        let Self { context: Context { problem, dy: dy_in, rows: known }, key_head, span, finish } = self;
        let sizes = problem.sizes;
        let (width, value_width) = (padded(sizes.width), padded(sizes.value_width));
        let group = sizes.group();
        let mut dq = Scratch::new(self.context.sums());
        let [mut k, mut k_transposed, mut dk] = [(); 3].map(|()| Scratch::new(KEYS * width));
        let [mut v, mut v_transposed, mut dv] = [(); 3].map(|()| Scratch::new(KEYS * value_width));
        let (mut q, mut dy) = (Scratch::new(QUERIES * width), Scratch::new(QUERIES * value_width));
        let [mut p, mut ds] = [(); 2].map(|()| Scratch::new(QUERIES * KEYS));
        let mut rows = Rows::new(problem);

        for at in (0..span.count).step_by(KEYS) {
            let (key, block) = (span.first + at, Span { first: at, count: KEYS.min(span.count - at) });
            // What no query sees has no scores, and the mask no bias for it.
            let keys = block.count.min(problem.keys.saturating_sub(key));
            let columns = padded(keys);
            let key_rows = Span { first: key_head * sizes.keys + key, count: keys };
            load(problem.k, key_rows, sizes.width, &mut k);
            load(problem.v, key_rows, sizes.value_width, &mut v);
            block::transpose(&k, width, keys, columns, &mut k_transposed);
            block::transpose(&v, value_width, keys, columns, &mut v_transposed);
            dk.fill(0.0);
            dv.fill(0.0);
            for member in 0..if keys == 0 { 0 } else { group } {
                let head = key_head * group + member;
                let first = problem.first_query(key) / QUERIES * QUERIES;
                for query in (first..sizes.queries).step_by(QUERIES) {
                    let count = QUERIES.min(sizes.queries - query);
                    let query_rows = Span { first: head * sizes.queries + query, count };
                    let known = &known[query_rows.first..][..count];
                    load(problem.q, query_rows, sizes.width, &mut q);
                    load(*dy_in, query_rows, sizes.value_width, &mut dy);

                    let a = Left::Rows { data: &q, stride: width };
                    let extent = Extent { rows: tiled(count), inner: sizes.width, columns };
                    product(simd, extent, a, &k_transposed, &mut p);
                    let corner = Corner([head / sizes.heads, head % sizes.heads, query, key]);
                    for (row, known) in known.iter().enumerate() {
                        let line = &mut p[row * columns..][..columns];
                        rows.probabilities(simd, corner, row, keys, known.normal, line);
                    }

                    let a = Left::Transposed { data: &p, stride: columns };
                    let extent = Extent { rows: tiled(keys), inner: count, columns: value_width };
                    add_product(simd, extent, a, &dy, &mut dv);

                    let a = Left::Rows { data: &dy, stride: value_width };
                    let extent = Extent { rows: tiled(count), inner: sizes.value_width, columns };
                    product(simd, extent, a, &v_transposed, &mut ds);
                    for (row, known) in known.iter().enumerate() {
                        let delta = simd.splat_f32s(known.delta);
                        let p = S::as_simd_f32s(&p[row * columns..][..columns]).0;
                        let ds = S::as_mut_simd_f32s(&mut ds[row * columns..][..columns]).0;
                        for (ds, p) in ds.iter_mut().zip(p) {
                            *ds = simd.mul_f32s(*p, simd.sub_f32s(*ds, delta));
                        }
                    }

                    let a = Left::Transposed { data: &ds, stride: columns };
                    let extent = Extent { rows: tiled(keys), inner: count, columns: width };
                    add_product(simd, extent, a, &q, &mut dk);

                    let a = Left::Rows { data: &ds, stride: columns };
                    let extent = Extent { rows: tiled(count), inner: keys, columns: width };
                    let dq = &mut dq[(member * tiled(sizes.queries) + query) * width..];
                    add_product(simd, extent, a, &k, dq);
                }
            }
            finish(block, &mut dk, &mut dv);
        }
        dq
    }
}
