//! Derivatives by the inputs.
//!
//! With g the derivative by h[t], all later steps included, it is g = dy c + (decay of the next step) (g of the next step).
//! A task takes some sequences' block of channels. It runs forward and keeps the state at every chunk's start only; then,
//! from the last chunk to the first, it computes the chunk's states again and goes back over them. What other tasks add to
//! as well (by b and c: other blocks; by a: other sequences) is summed at the end, in an order that only the sizes decide.

use rayon::prelude::*;

use super::backward::{Sequence, Sink, Task};
use super::rows::Rows;
use super::{Grads, Inputs, SMALL, Sizes, length};
use crate::Result;
use crate::pieces::pieces;
use crate::sample::Sample;
use crate::simd::dispatch;

/// Channels in a block. Every block has its own sums by b and c: 2 / 128 of what all states of all steps would take.
const BLOCK: usize = 128;

/// The most groups of sequences, each with its own sums by a.
const GROUPS: usize = 16;

/// Derivatives of a loss by the inputs, from those by y, `dy` (T, B, D), and by the last state, `dh` (B, D, N; zero if left
/// out). The result does not depend on the number of threads.
///
/// # Errors
/// If a length does not fit the sizes.
pub fn grad<T: Sample>(
    sizes: Sizes,
    inputs: &Inputs<'_, T>,
    dy: &[T],
    dh: Option<&[f32]>,
    grads: Grads<'_, T>,
    reverse: bool,
) -> Result<()> {
    let Sizes { steps, batch, channels, states } = sizes;
    let (wide, rows, state) = (steps * batch * channels, steps * batch * states, batch * channels * states);
    inputs.check(sizes)?;
    length("dy", dy, wide)?;
    dh.map_or(Ok(()), |dh| length("dh", dh, state))?;
    length("the derivative by dt", grads.dt, wide)?;
    length("the derivative by x", grads.x, wide)?;
    length("the derivative by b", grads.b, rows)?;
    length("the derivative by c", grads.c, rows)?;
    length("the derivative by a", grads.a, channels * states)?;
    length("the derivative by h0", grads.h0, state)?;
    let blocks = channels.div_ceil(BLOCK);
    if wide * states == 0 {
        // y does not depend on anything, or there are no steps: only dh goes through, to h0.
        for by in [grads.dt, grads.x, grads.b, grads.c] {
            by.chunks_mut(1).for_each(|by| T::store(&[0.0], by));
        }
        grads.a.fill(0.0);
        match dh {
            Some(dh) => grads.h0.copy_from_slice(dh),
            None => grads.h0.fill(0.0),
        }
        return Ok(());
    }
    // A group's sums by a are as large as one step's states.
    let group = batch.div_ceil(GROUPS.min((steps * batch).div_ceil(64)));
    let groups = batch.div_ceil(group);
    let (alone, one_group) = (blocks == 1, groups == 1);
    let mut by_a = vec![0.0; if one_group { 0 } else { groups * channels * states }];
    let mut by_b = vec![0.0; if alone { 0 } else { blocks * rows }];
    let mut by_c = by_b.clone();
    grads.a.fill(0.0);
    let mut tasks = Vec::with_capacity(groups * blocks);
    let all_a = if one_group { &mut *grads.a } else { &mut by_a };
    for (g, by_a) in all_a.chunks_mut(channels * states).enumerate() {
        for (j, by_a) in by_a.chunks_mut(BLOCK * states).enumerate() {
            let rows = Rows::new(sizes, g * group, j * BLOCK, BLOCK, reverse);
            tasks.push(Task { inputs, dy, dh, rows, by_a, sequences: Vec::with_capacity(group) });
        }
    }
    let mut by_dt = pieces(grads.dt, batch, channels, BLOCK).into_iter();
    let mut by_x = pieces(grads.x, batch, channels, BLOCK).into_iter();
    let mut b_sinks = sinks(alone, grads.b, &mut by_b, sizes).into_iter();
    let mut c_sinks = sinks(alone, grads.c, &mut by_c, sizes).into_iter();
    let mut by_h0 = grads.h0;
    for i in 0..batch {
        for j in 0..blocks {
            let task = &mut tasks[i / group * blocks + j];
            let (h0, rest) = by_h0.split_at_mut(task.rows.width * states);
            by_h0 = rest;
            let next = (by_dt.next(), by_x.next(), b_sinks.next(), c_sinks.next());
            let (Some(dt), Some(x), Some(b), Some(c)) = next else {
                unreachable!("there is one for every sequence and block")
            };
            task.sequences.push(Sequence { dt, x, b, c, h0 });
        }
    }
    if wide * states < SMALL {
        tasks.into_iter().for_each(dispatch);
    } else {
        tasks.into_par_iter().for_each(dispatch);
    }
    if !one_group {
        for part in by_a.chunks(channels * states) {
            grads.a.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
    }
    if !alone {
        gather(&by_b, sizes, grads.b);
        gather(&by_c, sizes, grads.c);
    }
    Ok(())
}

/// Where each sequence's blocks put what they have by b or c: straight into the result (T, B, N) if a block is alone, else
/// into their part (T, N) of `parts`.
fn sinks<'a, T>(alone: bool, whole: &'a mut [T], parts: &'a mut [f32], sizes: Sizes) -> Vec<Sink<'a, T>> {
    let Sizes { steps, batch, states, .. } = sizes;
    if alone {
        return pieces(whole, batch, states, states).into_iter().map(Sink::Rows).collect();
    }
    parts.chunks_mut(steps * states).map(Sink::Part).collect()
}

/// Sums the parts of every sequence's blocks.
fn gather<T: Sample>(parts: &[f32], sizes: Sizes, whole: &mut [T]) {
    let Sizes { steps, batch, states, .. } = sizes;
    let of_sequence = parts.len() / batch;
    whole.par_chunks_mut(batch * states).enumerate().for_each(|(t, rows)| {
        let mut sum = vec![0.0; states];
        for (row, parts) in rows.chunks_mut(states).zip(parts.chunks(of_sequence)) {
            sum.fill(0.0);
            for part in parts.chunks(steps * states) {
                sum.iter_mut().zip(&part[t * states..]).for_each(|(sum, part)| *sum += part);
            }
            T::store(&sum, row);
        }
    });
}
