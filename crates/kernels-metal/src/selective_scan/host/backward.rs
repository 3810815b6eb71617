//! One task of the derivative: some sequences' block of channels.

use pulp::Simd;

use super::Inputs;
use super::chunk::Chunk;
use super::rows::{Rows, STEPS};
use crate::sample::Sample;
use crate::simd::{Exp2, LOG2_E, Room, Work, take};

/// What a task computes, with where it goes.
pub(super) struct Task<'a, T> {
    pub inputs: &'a Inputs<'a, T>,
    pub dy: &'a [T],
    pub dh: Option<&'a [f32]>,
    /// Those of the first sequence.
    pub rows: Rows,
    pub sequences: Vec<Sequence<'a, T>>,
    /// Sums by a (width, N) over the sequences.
    pub by_a: &'a mut [f32],
}

/// Where one sequence's derivatives go: rows in the order of time, and the state's (width, N).
pub(super) struct Sequence<'a, T> {
    pub dt: Vec<&'a mut [T]>,
    pub x: Vec<&'a mut [T]>,
    pub b: Sink<'a, T>,
    pub c: Sink<'a, T>,
    pub h0: &'a mut [f32],
}

/// Where a block's sums over its channels go: rows of N in the order of time, or a part (T, N) of a greater sum.
pub(super) enum Sink<'a, T> {
    Rows(Vec<&'a mut [T]>),
    Part(&'a mut [f32]),
}

impl<T: Sample> Sink<'_, T> {
    /// The sums of one step.
    fn put(&mut self, time: usize, sums: &[f32]) {
        match self {
            Self::Rows(rows) => T::store(sums, rows[time]),
            Self::Part(part) => part[time * sums.len()..][..sums.len()].copy_from_slice(sums),
        }
    }
}

impl<T: Sample> Work for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, E: Exp2<S>>(self, simd: S, exp: E) {
        let Self { inputs, dy, dh, rows: first, sequences, by_a } = self;
        let (states, steps) = (first.sizes.states, first.sizes.steps);
        let vectors = first.width.div_ceil(S::F32_LANES);
        let (size, chunks) = (vectors * states, steps.div_ceil(STEPS));
        let mut room = Room::new(simd, (4 + chunks) * size + vectors + Chunk::<S::f32s>::room(vectors));
        let mut room = room.vectors(simd);
        let (a, sums_a) = (take(&mut room, size), take(&mut room, size));
        let (state, g) = (take(&mut room, size), take(&mut room, size));
        let starts = take(&mut room, chunks * size);
        let line = take(&mut room, vectors);
        let mut chunk = Chunk::new(&first, vectors, &mut room);
        first.by_state(&inputs.a[first.first * states..][..first.width * states], LOG2_E, a);
        for (i, mut to) in sequences.into_iter().enumerate() {
            let rows = first.later(i);
            let fetch = |from: Option<&[f32]>, to: &mut [S::f32s]| match from {
                Some(from) => rows.by_state(rows.of_state(from), 1.0, to),
                None => to.fill(simd.splat_f32s(0.0)),
            };
            fetch(inputs.h0, state);
            for (k, start) in starts.chunks_exact_mut(size).enumerate() {
                start.copy_from_slice(state);
                let from = k * STEPS;
                if from + STEPS < steps {
                    chunk.read(simd, inputs, &rows, from, STEPS);
                    chunk.forward(simd, exp, a, state);
                }
            }
            fetch(dh, g);
            for (k, start) in starts.chunks_exact(size).enumerate().rev() {
                let from = k * STEPS;
                let count = STEPS.min(steps - from);
                chunk.read(simd, inputs, &rows, from, count);
                chunk.read_backward(inputs.c, dy, &rows, from);
                chunk.backward(simd, exp, a, start, g, sums_a);
                rows.store(chunk.by_dt, from, count, &mut to.dt, line);
                rows.store(chunk.by_x, from, count, &mut to.x, line);
                let sums = chunk.by_b.chunks_exact(states).zip(chunk.by_c.chunks_exact(states));
                for (step, (b, c)) in sums.take(count).enumerate() {
                    to.b.put(rows.time(from + step), b);
                    to.c.put(rows.time(from + step), c);
                }
            }
            rows.state_back(g, to.h0);
        }
        first.state_back(sums_a, by_a);
    }
}
