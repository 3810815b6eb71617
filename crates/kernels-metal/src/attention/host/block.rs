//! Blocks of rows in float32, filled up with zeros to what products want.

use super::product::{COLUMNS, ROWS};
use crate::sample::Sample;

/// Queries in a block. A block of them with its gradients and a block of keys with theirs fit a second-level cache.
pub(super) const QUERIES: usize = 64;
/// Keys in a block.
pub(super) const KEYS: usize = 128;

/// `width` rounded up to whole vectors.
pub(super) fn padded(width: usize) -> usize {
    width.next_multiple_of(COLUMNS)
}

/// `rows` rounded up to whole tiles.
pub(super) fn tiled(rows: usize) -> usize {
    rows.next_multiple_of(ROWS)
}

/// Elements of any type, read as float32: what works on blocks is compiled once, not for every type.
pub(super) trait Source: Sync {
    /// Elements from `from` on.
    fn read(&self, from: usize, to: &mut [f32]);
}

impl<T: Sample> Source for &[T] {
    fn read(&self, from: usize, to: &mut [f32]) {
        T::load(&self[from..][..to.len()], to);
    }
}

/// `count` rows from `first` on.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) first: usize,
    pub(super) count: usize,
}

/// Reads rows of `width` into rows of [`padded`] width, up to a [`tiled`] number of them; what is beyond is 0.
pub(super) fn load(from: &dyn Source, rows: Span, width: usize, to: &mut [f32]) {
    let stride = padded(width);
    for row in 0..rows.count {
        let to = &mut to[row * stride..][..stride];
        from.read((rows.first + row) * width, &mut to[..width]);
        to[width..].fill(0.0);
    }
    to[rows.count * stride..tiled(rows.count) * stride].fill(0.0);
}

/// Multiplies rows of [`padded`] width by `factor` and rounds them into rows of `width`.
pub(super) fn store<T: Sample>(from: &mut [f32], factor: f32, width: usize, to: &mut [T]) {
    for (from, to) in from.chunks_exact_mut(padded(width).max(1)).zip(to.chunks_exact_mut(width.max(1))) {
        for value in &mut from[..width] {
            *value *= factor;
        }
        T::store(&from[..width], to);
    }
}

/// Transposes `rows` rows of `stride` to `stride` rows of `columns`; columns from `rows` on are 0.
pub(super) fn transpose(from: &[f32], stride: usize, rows: usize, columns: usize, to: &mut [f32]) {
    for inner in 0..stride {
        let to = &mut to[inner * columns..][..columns];
        for (row, to) in to[..rows].iter_mut().enumerate() {
            *to = from[row * stride + inner];
        }
        to[rows..].fill(0.0);
    }
}
