//! How a task reads its rows: one sequence, a block of channels, a chunk of steps at a time.

use pulp::bytemuck::{Pod, cast_slice, cast_slice_mut};

use crate::sample::Sample;
use crate::selective_scan::Sizes;

/// Steps in a chunk: what a task works on stays in the processor's caches.
pub(super) const STEPS: usize = 32;

/// The most channels in a block, a row of which is read at once.
const BLOCK: usize = 256;

/// A multiple of the lanes of every instruction set.
const LANES: usize = 16;

/// How many channels a task takes: many in a row, but enough tasks to keep all threads busy to the end.
pub(super) fn block_of(sizes: Sizes) -> usize {
    let wanted = (4 * rayon::current_num_threads()).div_ceil(sizes.batch.max(1));
    sizes.channels.div_ceil(wanted).next_multiple_of(LANES).min(BLOCK)
}

/// How many of the states that are left make the next tile: a power of two.
pub(super) fn tile_of(left: usize, most: usize) -> usize {
    1 << left.min(most).ilog2()
}

/// The rows of one task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub sizes: Sizes,
    pub reverse: bool,
    /// The first channel.
    pub first: usize,
    /// The number of channels.
    pub width: usize,
    sequence: usize,
}

impl Rows {
    pub fn new(sizes: Sizes, sequence: usize, first: usize, block: usize, reverse: bool) -> Self {
        Self { sizes, reverse, first, width: block.min(sizes.channels - first), sequence }
    }

    /// The same block of the `i`-th sequence from this one on.
    pub fn later(self, i: usize) -> Self {
        Self { sequence: self.sequence + i, ..self }
    }

    /// Time of a step.
    pub fn time(&self, step: usize) -> usize {
        if self.reverse { self.sizes.steps - 1 - step } else { step }
    }

    /// The block's part (width, N) of a state (B, D, N).
    pub fn of_state<'a>(&self, state: &'a [f32]) -> &'a [f32] {
        let Sizes { channels, states, .. } = self.sizes;
        &state[(self.sequence * channels + self.first) * states..][..self.width * states]
    }

    /// `count` steps of an array (T, B, D) from step `start` on, as vectors: step s of vector v at v STEPS + s. A row passes
    /// through `line`, whose lanes past the last channel are not changed.
    #[inline(always)]
    pub fn load<T: Sample, V: Pod>(
        &self,
        from: &[T],
        start: usize,
        count: usize,
        to: &mut [V],
        line: &mut [V],
    ) {
        for step in 0..count {
            let row = (self.time(start + step) * self.sizes.batch + self.sequence) * self.sizes.channels;
            let flat: &mut [f32] = cast_slice_mut(line);
            T::load(&from[row + self.first..][..self.width], &mut flat[..self.width]);
            for (v, vector) in line.iter().enumerate() {
                to[v * STEPS + step] = *vector;
            }
        }
    }

    /// The way back from [`load`](Self::load), into the block's rows in the order of time.
    #[inline(always)]
    pub fn store<T: Sample, V: Pod>(
        &self,
        from: &[V],
        start: usize,
        count: usize,
        to: &mut [&mut [T]],
        line: &mut [V],
    ) {
        for step in 0..count {
            for (v, vector) in line.iter_mut().enumerate() {
                *vector = from[v * STEPS + step];
            }
            T::store(&cast_slice(line)[..self.width], to[self.time(start + step)]);
        }
    }

    /// `count` steps of an array (T, B, N), tile by tile of at most `most`: state k of a tile of K that begins at n lies at
    /// n STEPS + s K + k.
    #[inline(always)]
    pub fn load_states<T: Sample>(
        &self,
        from: &[T],
        start: usize,
        count: usize,
        most: usize,
        to: &mut [f32],
    ) {
        let states = self.sizes.states;
        for step in 0..count {
            let row = (self.time(start + step) * self.sizes.batch + self.sequence) * states;
            let mut left = &from[row..row + states];
            while !left.is_empty() {
                let (n, k) = (states - left.len(), tile_of(left.len(), most));
                T::load(&left[..k], &mut to[n * STEPS + step * k..][..k]);
                left = &left[k..];
            }
        }
    }

    /// An array (width, N) as vectors of channels, times `factor`: state n of vector v at v N + n. Lanes past the last channel
    /// stay as they are.
    #[inline(always)]
    pub fn by_state<V: Pod>(&self, from: &[f32], factor: f32, to: &mut [V]) {
        let (lanes, states) = (size_of::<V>() / size_of::<f32>(), self.sizes.states);
        let flat: &mut [f32] = cast_slice_mut(to);
        for (d, from) in from.chunks_exact(states.max(1)).enumerate() {
            for (n, value) in from.iter().enumerate() {
                flat[(d / lanes * states + n) * lanes + d % lanes] = value * factor;
            }
        }
    }

    /// The way back from [`by_state`](Self::by_state).
    #[inline(always)]
    pub fn state_back<V: Pod>(&self, from: &[V], to: &mut [f32]) {
        let (lanes, states) = (size_of::<V>() / size_of::<f32>(), self.sizes.states);
        let flat: &[f32] = cast_slice(from);
        for (d, to) in to.chunks_exact_mut(states.max(1)).enumerate() {
            for (n, value) in to.iter_mut().enumerate() {
                *value = flat[(d / lanes * states + n) * lanes + d % lanes];
            }
        }
    }
}
