//! dQ, dK and dV: the probabilities of a block of queries and a block of keys are made again from the rows' log-sum-exp.
//!
//! A task has one key head, or part of its keys, and walks over the query heads and queries that see them: dK and dV are its
//! own, and so is a sum for dQ. The sums of the parts are added in order.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::block::{self, KEYS, QUERIES, load, padded, store, tiled};
use super::forward::{Span, attend};
use super::product::{self, Extent, product};
use super::scores::{Corner, Normal, Rows, Rule};
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
    let rule = Rule::new(attention, sizes, inputs);
    let rows = match saved {
        Some(saved) => {
            length("y", saved.y, y)?;
            length("lse", saved.lse, sizes.rows())?;
            told(sizes, dy, saved)
        }
        None => found(rule, sizes, inputs, dy),
    };
    let context = Context { rule, sizes, inputs, dy, rows: &rows };
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

fn found<T: Sample>(rule: Rule<'_>, sizes: Sizes, inputs: &Inputs<'_, T>, dy: &[T]) -> Vec<Row> {
    let mut rows = vec![Row::default(); sizes.rows()];
    let spans = Span::all(sizes);
    let parts = split(&mut rows, spans.iter().map(|span| span.count));
    spans.into_par_iter().zip(parts).for_each(|(span, rows)| {
        let width = sizes.value_width;
        let dy = span.of(dy, sizes, width);
        let mut dy_row = vec![0.0; width];
        attend(rule, sizes, inputs, span, |row, y, normal| {
            T::load(&dy[row * width..][..width], &mut dy_row);
            rows[row] = Row { normal, delta: dot(y, &dy_row) };
        });
    });
    rows
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

struct Context<'a, 'b, T> {
    rule: Rule<'a>,
    sizes: Sizes,
    inputs: &'b Inputs<'a, T>,
    dy: &'b [T],
    rows: &'b [Row],
}

impl<T: Sample> Context<'_, '_, T> {
    /// Keys of one task.
    fn part(&self) -> usize {
        let heads = self.sizes.batch * self.sizes.key_heads;
        let bytes = size_of::<f32>() * self.sums() * heads;
        let parts = 16usize.div_ceil(heads).min(1 + SUMS_BYTES / bytes.max(1));
        self.sizes.keys.div_ceil(parts).next_multiple_of(KEYS).max(KEYS)
    }

    /// Floats of a task's sum for dQ.
    fn sums(&self) -> usize {
        self.sizes.group() * tiled(self.sizes.queries) * padded(self.sizes.width)
    }

    fn key_head(&self, key_head: usize, dq: &mut [T], dk: &mut [T], dv: &mut [T]) {
        let Sizes { queries, keys, width, value_width, .. } = self.sizes;
        let part = self.part();
        let parts = || (0..keys).step_by(part).map(|key| part.min(keys - key));
        let dks = split(dk, parts().map(|keys| keys * width));
        let dvs = split(dv, parts().map(|keys| keys * value_width));
        let mut sums: Vec<Scratch> = dks
            .into_par_iter()
            .zip(dvs)
            .enumerate()
            .map(|(index, (dk, dv))| {
                let keys = (index * part, parts().nth(index).unwrap_or(0));
                Arch::new().dispatch(Pull { context: self, key_head, keys, dk, dv })
            })
            .collect();
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
            store(&mut total[head * stride..], self.rule.scale, width, dq);
        }
    }
}

/// One task: `key_head` of (B, Hk), and `keys` by first and number.
struct Pull<'a, 'b, 'c, T> {
    context: &'c Context<'a, 'b, T>,
    key_head: usize,
    keys: (usize, usize),
    dk: &'c mut [T],
    dv: &'c mut [T],
}

impl<T: Sample> WithSimd for Pull<'_, '_, '_, T> {
    type Output = Scratch;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Scratch {
        let Self { context, key_head, keys: (start, number), dk: dk_out, dv: dv_out } = self;
        let Context { rule, sizes, inputs, dy: dy_in, rows: known } = *context;
        let (width, value_width) = (padded(sizes.width), padded(sizes.value_width));
        let group = sizes.group();
        let batch = key_head / sizes.key_heads;
        let mut dq = Scratch::new(context.sums());
        let [mut k, mut k_transposed, mut dk] = [(); 3].map(|()| Scratch::new(KEYS * width));
        let [mut v, mut v_transposed, mut dv] = [(); 3].map(|()| Scratch::new(KEYS * value_width));
        let (mut q, mut dy) = (Scratch::new(QUERIES * width), Scratch::new(QUERIES * value_width));
        let (mut p, mut ds) = (Scratch::new(QUERIES * KEYS), Scratch::new(QUERIES * KEYS));
        let mut rows = Rows::new(rule);

        for key in (start..start + number).step_by(KEYS) {
            let block_keys = KEYS.min(start + number - key);
            // What no query sees has no scores, and the mask no bias for it.
            let keys = block_keys.min(rule.keys.saturating_sub(key));
            let columns = padded(keys);
            load(block::of(inputs.k, key_head, sizes.keys, key, keys, sizes.width), sizes.width, &mut k);
            load(
                block::of(inputs.v, key_head, sizes.keys, key, keys, sizes.value_width),
                sizes.value_width,
                &mut v,
            );
            block::transpose(&k, width, keys, columns, &mut k_transposed);
            block::transpose(&v, value_width, keys, columns, &mut v_transposed);
            dk.fill(0.0);
            dv.fill(0.0);
            for member in 0..group {
                if keys == 0 {
                    break;
                }
                let head = key_head * group + member;
                let first = rule.first_query(key) / QUERIES * QUERIES;
                for query in (first..sizes.queries).step_by(QUERIES) {
                    let count = QUERIES.min(sizes.queries - query);
                    let known = &known[head * sizes.queries + query..][..count];
                    load(
                        block::of(inputs.q, head, sizes.queries, query, count, sizes.width),
                        sizes.width,
                        &mut q,
                    );
                    load(
                        block::of(dy_in, head, sizes.queries, query, count, sizes.value_width),
                        sizes.value_width,
                        &mut dy,
                    );

                    let a = product::Rows { data: &q, stride: width };
                    let extent = Extent { rows: tiled(count), inner: sizes.width, columns };
                    product::<S, false>(simd, extent, a, &k_transposed, &mut p);
                    let corner = Corner([batch, head % sizes.heads, query, key]);
                    for (row, known) in known.iter().enumerate() {
                        let line = &mut p[row * columns..][..columns];
                        rows.probabilities(simd, corner, row, keys, known.normal, line);
                    }

                    let a = product::Transposed { data: &p, stride: columns };
                    let extent = Extent { rows: tiled(keys), inner: count, columns: value_width };
                    product::<S, true>(simd, extent, a, &dy, &mut dv);

                    let a = product::Rows { data: &dy, stride: value_width };
                    let extent = Extent { rows: tiled(count), inner: sizes.value_width, columns };
                    product::<S, false>(simd, extent, a, &v_transposed, &mut ds);
                    for (row, known) in known.iter().enumerate() {
                        let delta = simd.splat_f32s(known.delta);
                        let p = S::as_simd_f32s(&p[row * columns..][..columns]).0;
                        let ds = S::as_mut_simd_f32s(&mut ds[row * columns..][..columns]).0;
                        for (ds, p) in ds.iter_mut().zip(p) {
                            *ds = simd.mul_f32s(*p, simd.sub_f32s(*ds, delta));
                        }
                    }

                    let a = product::Transposed { data: &ds, stride: columns };
                    let extent = Extent { rows: tiled(keys), inner: count, columns: width };
                    product::<S, true>(simd, extent, a, &q, &mut dk);

                    let a = product::Rows { data: &ds, stride: columns };
                    let extent = Extent { rows: tiled(count), inner: keys, columns: width };
                    let dq = &mut dq[(member * tiled(sizes.queries) + query) * width..];
                    product::<S, true>(simd, extent, a, &k, dq);
                }
            }
            let at = key - start;
            let out = &mut dk_out[at * sizes.width..][..block_keys * sizes.width];
            store(&mut dk, rule.scale, sizes.width, out);
            let out = &mut dv_out[at * sizes.value_width..][..block_keys * sizes.value_width];
            store(&mut dv, 1.0, sizes.value_width, out);
        }
        dq
    }
}
