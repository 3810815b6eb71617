//! Outputs and last state.
//!
//! A task is a sequence's block of channels. It takes [`STEPS`] steps at a time: rows are read into vectors over channels,
//! then every vector of channels goes through all its states, a few of them in registers at a time.

use pulp::Simd;
use rayon::prelude::*;

use super::rows::{Rows, STEPS, block_of, tile_of};
use super::{Inputs, Outputs, Sizes, length};
use crate::Result;
use crate::pieces::pieces;
use crate::sample::Sample;
use crate::simd::{Exp2, LOG2_E, Room, Work, dispatch, take};

/// y and the last state; `reverse` takes the steps from the last to the first.
///
/// # Errors
/// If a length does not fit the sizes.
pub fn forward<T: Sample>(
    sizes: Sizes,
    inputs: &Inputs<'_, T>,
    outputs: Outputs<'_, T>,
    reverse: bool,
) -> Result<()> {
    let Sizes { steps, batch, channels, states } = sizes;
    inputs.check(sizes)?;
    length("y", outputs.y, steps * batch * channels)?;
    length("h", outputs.h, batch * channels * states)?;
    match inputs.h0 {
        Some(h0) => outputs.h.copy_from_slice(h0),
        None => outputs.h.fill(0.0),
    }
    if batch * channels == 0 {
        return Ok(());
    }
    let block = block_of(sizes);
    let y = pieces(outputs.y, batch, channels, block);
    let mut h = outputs.h;
    let mut tasks = Vec::with_capacity(y.len());
    for (index, y) in y.into_iter().enumerate() {
        let blocks = channels.div_ceil(block);
        let rows = Rows::new(sizes, index / blocks, index % blocks * block, block, reverse);
        let (mine, rest) = h.split_at_mut(rows.width * states);
        h = rest;
        tasks.push(Task { inputs, rows, y, h: mine });
    }
    if steps * batch * channels * states < super::SMALL {
        tasks.into_iter().for_each(dispatch);
    } else {
        tasks.into_par_iter().for_each(dispatch);
    }
    Ok(())
}

struct Task<'a, T> {
    inputs: &'a Inputs<'a, T>,
    rows: Rows,
    /// The task's part of every row of y, in the order of time.
    y: Vec<&'a mut [T]>,
    /// (width, N).
    h: &'a mut [f32],
}

impl<T: Sample> Work for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, E: Exp2<S>>(self, simd: S, exp: E) {
        let Self { inputs, rows, mut y, h } = self;
        let states = rows.sizes.states;
        let vectors = rows.width.div_ceil(S::F32_LANES);
        let zero = simd.splat_f32s(0.0);
        let (chunk, size) = (vectors * STEPS, vectors * states);
        let mut room = Room::new(simd, 3 * chunk + 2 * size + 2 * vectors);
        let mut room = room.vectors(simd);
        let (dt, u, sums) = (take(&mut room, chunk), take(&mut room, chunk), take(&mut room, chunk));
        let (a, state) = (take(&mut room, size), take(&mut room, size));
        let (line, line_out) = (take(&mut room, vectors), take(&mut room, vectors));
        rows.by_state(&inputs.a[rows.first * states..][..rows.width * states], LOG2_E, a);
        rows.by_state(h, 1.0, state);
        let (mut b, mut c) = (vec![0.0; states * STEPS], vec![0.0; states * STEPS]);
        let steps = rows.sizes.steps;
        for start in (0..steps).step_by(STEPS) {
            let count = STEPS.min(steps - start);
            rows.load(inputs.dt, start, count, dt, line);
            rows.load(inputs.x, start, count, u, line);
            u.iter_mut().zip(&*dt).for_each(|(u, dt)| *u = simd.mul_f32s(*u, *dt));
            rows.load_states(inputs.b, start, count, TILE, &mut b);
            rows.load_states(inputs.c, start, count, TILE, &mut c);
            sums.fill(zero);
            for v in 0..vectors {
                let at = v * STEPS..v * STEPS + count;
                let (dt, u, sums) = (&dt[at.clone()], &u[at.clone()], &mut sums[at]);
                let (a, state) = (&a[v * states..][..states], &mut state[v * states..][..states]);
                let mut n = 0;
                while n < states {
                    let k = tile_of(states - n, TILE);
                    let (b, c) = (&b[n * STEPS..], &c[n * STEPS..]);
                    let (a, h) = (&a[n..n + k], &mut state[n..n + k]);
                    match k {
                        8 => tile::<S, E, 8>(simd, exp, a, h, dt, u, b, c, sums),
                        4 => tile::<S, E, 4>(simd, exp, a, h, dt, u, b, c, sums),
                        2 => tile::<S, E, 2>(simd, exp, a, h, dt, u, b, c, sums),
                        _ => tile::<S, E, 1>(simd, exp, a, h, dt, u, b, c, sums),
                    }
                    n += k;
                }
            }
            rows.store(sums, start, count, &mut y, line_out);
        }
        rows.state_back(state, h);
    }
}

/// The most states that are in registers at a time.
const TILE: usize = 8;

/// `K` states of one vector of channels through a chunk of steps; `b` and `c` hold `K` values for every step.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // It is the inner loop.
fn tile<S: Simd, E: Exp2<S>, const K: usize>(
    simd: S,
    exp: E,
    a: &[S::f32s],
    h: &mut [S::f32s],
    dt: &[S::f32s],
    u: &[S::f32s],
    b: &[f32],
    c: &[f32],
    sums: &mut [S::f32s],
) {
    let a: [S::f32s; K] = std::array::from_fn(|k| a[k]);
    let mut state: [S::f32s; K] = std::array::from_fn(|k| h[k]);
    let (b, _) = b.as_chunks::<K>();
    let (c, _) = c.as_chunks::<K>();
    for ((((dt, u), sum), b), c) in dt.iter().zip(u).zip(sums).zip(b).zip(c) {
        let mut y = *sum;
        for k in 0..K {
            let decay = exp.exp2(simd, simd.mul_f32s(*dt, a[k]));
            let input = simd.mul_f32s(*u, simd.splat_f32s(b[k]));
            state[k] = simd.mul_add_f32s(decay, state[k], input);
            y = simd.mul_add_f32s(state[k], simd.splat_f32s(c[k]), y);
        }
        *sum = y;
    }
    h.copy_from_slice(&state);
}
