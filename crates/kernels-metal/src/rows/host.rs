//! The functions of rows in plain Rust over slices; no MLX.

use pulp::Simd;
use rayon::prelude::*;

use super::Row;
use crate::simd::{Exp2, Work, dispatch};
use crate::vector_math::{Exp, Function, map};

/// Elements that a task changes, if a row is not longer.
const BLOCK: usize = 1 << 14;

/// Elements that are added up in float32.
const SUMMED: usize = 4096;

/// Replaces every row of `values` (R, `width`), which is not empty, by its function. A norm is multiplied by `scale` (width)
/// and raised by `bias` (width).
///
/// # Panics
/// If `scale` or `bias` is shorter.
pub fn apply(row: Row, width: usize, values: &mut [f32], scale: Option<&[f32]>, bias: Option<&[f32]>) {
    let task = |values| dispatch(Task { row, width, values, scale, bias });
    let block = (BLOCK / width).max(1) * width;
    if values.len() <= block {
        return task(values);
    }
    values.par_chunks_mut(block).for_each(task);
}

struct Task<'a> {
    row: Row,
    width: usize,
    values: &'a mut [f32],
    scale: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
}

impl Work for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, E: Exp2<S>>(self, simd: S, _: E) {
        let Self { row, width, values, scale, bias } = self;
        for values in values.chunks_exact_mut(width) {
            match row {
                Row::Softmax => {
                    let offset = -largest(simd, values);
                    map(simd, Linear { offset, factor: 1.0 }, values);
                    map(simd, Exp, values);
                    let factor = (1.0 / sum::<S, false>(simd, values)) as f32;
                    map(simd, Linear { offset: 0.0, factor }, values);
                }
                Row::LogSoftmax => {
                    let offset = -largest(simd, values);
                    map(simd, Linear { offset, factor: 1.0 }, values);
                    let offset = -sum_of_powers(simd, values).ln() as f32;
                    map(simd, Linear { offset, factor: 1.0 }, values);
                }
                Row::Norm { centred, epsilon } => {
                    normalise(simd, values, centred, epsilon);
                    if let Some(scale) = scale {
                        combine::<S, false>(simd, values, scale);
                    }
                    if let Some(bias) = bias {
                        combine::<S, true>(simd, values, bias);
                    }
                }
            }
        }
    }
}

/// (x + offset) factor.
#[derive(Clone, Copy)]
struct Linear {
    offset: f32,
    factor: f32,
}

impl Function for Linear {
    #[inline(always)]
    fn of<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        simd.mul_f32s(simd.add_f32s(x, simd.splat_f32s(self.offset)), simd.splat_f32s(self.factor))
    }
}

/// The row over its deviation.
#[inline(always)]
fn normalise<S: Simd>(simd: S, row: &mut [f32], centred: bool, epsilon: f32) {
    let count = row.len() as f64;
    let mut rest = 0.0;
    if centred {
        let offset = -(sum::<S, false>(simd, row) / count) as f32;
        map(simd, Linear { offset, factor: 1.0 }, row);
        // The mean was rounded, which is much where the values differ little.
        rest = sum::<S, false>(simd, row) / count;
    }
    let power = sum::<S, true>(simd, row) / count - rest * rest;
    // `max` would take 0 for what is not a number.
    let power = if power < 0.0 { 0.0 } else { power };
    let factor = (1.0 / (power + f64::from(epsilon)).sqrt()) as f32;
    map(simd, Linear { offset: -rest as f32, factor }, row);
}

/// The largest element; one that is not a number may be passed over: the sums that follow will not be numbers.
#[inline(always)]
fn largest<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let (vectors, rest) = S::as_simd_f32s(row);
    let mut largest = simd.splat_f32s(f32::NEG_INFINITY);
    for x in vectors {
        largest = simd.max_f32s(*x, largest);
    }
    rest.iter().copied().fold(simd.reduce_max_f32s(largest), f32::max)
}

/// Adds `with` to the row, or multiplies by it.
#[inline(always)]
fn combine<S: Simd, const ADD: bool>(simd: S, row: &mut [f32], with: &[f32]) {
    let with = &with[..row.len()];
    let ((vectors, rest), (others, tail)) = (S::as_mut_simd_f32s(row), S::as_simd_f32s(with));
    for (x, other) in vectors.iter_mut().zip(others) {
        *x = if ADD { simd.add_f32s(*x, *other) } else { simd.mul_f32s(*x, *other) };
    }
    for (x, other) in rest.iter_mut().zip(tail) {
        *x = if ADD { *x + other } else { *x * other };
    }
}

/// The sum of the elements or of their squares.
#[inline(always)]
fn sum<S: Simd, const SQUARES: bool>(simd: S, row: &[f32]) -> f64 {
    let mut total = 0.0;
    for part in row.chunks(SUMMED) {
        let (vectors, rest) = S::as_simd_f32s(part);
        let (fours, ones) = pulp::as_arrays::<4, _>(vectors);
        let mut sums = [simd.splat_f32s(0.0); 4];
        for four in fours {
            for (sum, &x) in sums.iter_mut().zip(four) {
                *sum = if SQUARES { simd.mul_add_e_f32s(x, x, *sum) } else { simd.add_f32s(*sum, x) };
            }
        }
        let last = [simd.partial_load_f32s(rest)];
        for (sum, &x) in sums.iter_mut().zip(ones.iter().chain(&last)) {
            *sum = if SQUARES { simd.mul_add_e_f32s(x, x, *sum) } else { simd.add_f32s(*sum, x) };
        }
        let [a, b, c, d] = sums;
        total += f64::from(simd.reduce_sum_f32s(simd.add_f32s(simd.add_f32s(a, b), simd.add_f32s(c, d))));
    }
    total
}

/// The sum of the exponentials.
#[inline(always)]
fn sum_of_powers<S: Simd>(simd: S, row: &[f32]) -> f64 {
    let mut powers = [0.0; SUMMED];
    let mut total = 0.0;
    for part in row.chunks(SUMMED) {
        let powers = &mut powers[..part.len()];
        powers.copy_from_slice(part);
        map(simd, Exp, powers);
        total += sum::<S, false>(simd, powers);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTHS: [usize; 9] = [1, 2, 7, 16, 17, 64, 100, 768, 20_000];

    fn wave(length: usize, middle: f32, size: f32) -> Vec<f32> {
        (0..length).map(|i| middle + size * ((i * 7919 + i / 13) % 1009) as f32 / 500.0 - size).collect()
    }

    /// `row` gives what `wanted` says, within `tolerance` of the value or of 1.
    fn check(row: Row, x: &[f32], width: usize, tolerance: f64, wanted: impl Fn(&[f64]) -> Vec<f64>) {
        let mut y = x.to_vec();
        apply(row, width, &mut y, None, None);
        for (x, y) in x.chunks(width).zip(y.chunks(width)) {
            let wide: Vec<f64> = x.iter().map(|&x| x.into()).collect();
            for (y, wanted) in y.iter().zip(wanted(&wide)) {
                assert!(
                    (f64::from(*y) - wanted).abs() <= tolerance * wanted.abs(),
                    "{row:?} {width}: {y}, not {wanted}"
                );
            }
        }
    }

    fn powers(x: &[f64]) -> (Vec<f64>, f64) {
        let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = x.iter().map(|x| (x - largest).exp()).collect();
        let total = powers.iter().sum();
        (powers, total)
    }

    #[test]
    fn softmaxes_are_those_of_float64() {
        for width in WIDTHS {
            let x = wave(5 * width, 3.0, 20.0);
            // Differences of up to 40 are rounded before the exponential.
            check(Row::Softmax, &x, width, 3e-6, |x| {
                let (powers, total) = powers(x);
                powers.iter().map(|e| e / total).collect()
            });
        }
    }

    #[test]
    fn logarithms_of_softmaxes_are_those_of_float64() {
        for width in WIDTHS {
            let x = wave(5 * width, 3.0, 20.0);
            let mut y = x.clone();
            apply(Row::LogSoftmax, width, &mut y, None, None);
            for (x, y) in x.chunks(width).zip(y.chunks(width)) {
                let x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
                let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total = powers(&x).1.ln();
                for (x, y) in x.iter().zip(y) {
                    assert!((x - largest - total - f64::from(*y)).abs() <= 4e-6, "{width}");
                }
            }
        }
    }

    #[test]
    fn norms_are_those_of_float64() {
        for (width, middle) in WIDTHS.into_iter().flat_map(|width| [(width, 0.5), (width, 1e4)]) {
            let x = wave(5 * width, middle, 2.0);
            for centred in [true, false] {
                let epsilon = 1e-5f32;
                let (scale, bias) = (wave(width, 1.0, 0.5), wave(width, 0.0, 1.0));
                let mut y = x.clone();
                apply(Row::Norm { centred, epsilon }, width, &mut y, Some(&scale), Some(&bias));
                for (x, y) in x.chunks(width).zip(y.chunks(width)) {
                    let x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
                    let mean = if centred { x.iter().sum::<f64>() / width as f64 } else { 0.0 };
                    let power = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
                    for i in 0..width {
                        let norm = (x[i] - mean) / (power + f64::from(epsilon)).sqrt();
                        let wanted = norm * f64::from(scale[i]) + f64::from(bias[i]);
                        let bound = 1e-6 * (norm.abs() * 1.5 + 1.0);
                        assert!((f64::from(y[i]) - wanted).abs() <= bound, "{width}: {} not {wanted}", y[i]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_with_what_is_no_number_has_none() {
        for row in [
            Row::Softmax,
            Row::LogSoftmax,
            Row::Norm { centred: true, epsilon: 1e-5 },
            Row::Norm { centred: false, epsilon: 1e-5 },
        ] {
            for at in [0, 17, 40] {
                let mut x = vec![0.5; 82];
                x[at] = f32::NAN;
                apply(row, 41, &mut x, None, None);
                assert!(x[..41].iter().all(|y| y.is_nan()), "{row:?} {at}");
                assert!(x[41..].iter().all(|y| y.is_finite()), "{row:?} {at}");
            }
        }
    }

    #[test]
    fn what_is_infinite_or_no_number_stays_within_its_row() {
        let (infinite, nan) = (f32::INFINITY, f32::NAN);
        for (odd, wanted) in [
            ([1.0, -infinite], [1.0, 0.0]),
            ([-infinite, -infinite], [nan, nan]),
            ([infinite, 1.0], [nan, nan]),
            ([nan, 1.0], [nan, nan]),
            ([1.0, nan], [nan, nan]),
        ] {
            for width in [2, 34] {
                let mut x = vec![-infinite; width];
                (x[0], x[width - 1]) = odd.into();
                x.extend(vec![0.0; width]);
                apply(Row::Softmax, width, &mut x, None, None);
                for (y, wanted) in [x[0], x[width - 1]].iter().zip(wanted) {
                    assert!(*y == wanted || y.is_nan() && wanted.is_nan(), "{odd:?}: {y}");
                }
                assert!(x[width..].iter().all(|&y| (y - 1.0 / width as f32).abs() < 1e-7));
            }
        }
    }
}
