//! The recurrence in plain Rust over slices, row-major; no MLX.

use pulp::Simd;
use rayon::prelude::*;

use super::KERNEL;
use crate::pieces::pieces;
use crate::sample::Sample;
use crate::simd::{Exp2, Work, dispatch};
use crate::{Error, Result};

/// All states (T, M) and the last one (M) from `a` (T, M), or (M) for every step alike, `u` (T, M) and perhaps `h0` (M);
/// `reverse` takes the steps from the last to the first. States are float32, rounded to `T` where they are written.
///
/// # Errors
/// If a length does not fit the others.
pub fn forward<T: Sample>(
    steps: usize,
    a: &[T],
    u: &[T],
    h0: Option<&[f32]>,
    states: &mut [T],
    last: &mut [f32],
    reverse: bool,
) -> Result<()> {
    let width = last.len();
    length("u", u.len(), steps * width)?;
    length("states", states.len(), steps * width)?;
    let constant = a.len() == width;
    if !constant {
        length("a", a.len(), steps * width)?;
    }
    match h0 {
        Some(h0) => {
            length("h0", h0.len(), width)?;
            last.copy_from_slice(h0);
        }
        None => last.fill(0.0),
    }
    let tasks = pieces(states, 1, width, BLOCK).into_iter().zip(last.chunks_mut(BLOCK)).enumerate();
    let tasks = tasks.map(|(i, (states, h))| Task { a, u, states, h, width, first: i * BLOCK, reverse });
    if u.len() < SMALL {
        tasks.for_each(dispatch);
    } else {
        tasks.collect::<Vec<_>>().into_par_iter().for_each(dispatch);
    }
    Ok(())
}

/// Lanes that a task takes through all steps.
const BLOCK: usize = 1024;

/// Below so many elements one thread is quicker than several.
const SMALL: usize = 1 << 16;

struct Task<'a, T> {
    a: &'a [T],
    u: &'a [T],
    /// The block's part of every row, in the order of time.
    states: Vec<&'a mut [T]>,
    /// The block's state.
    h: &'a mut [f32],
    /// M.
    width: usize,
    first: usize,
    reverse: bool,
}

impl<T: Sample> Work for Task<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, E: Exp2<S>>(self, _: S, _: E) {
        let Self { a, u, mut states, h, width, first, reverse } = self;
        let (mut factors, mut summands) = (vec![0.0; h.len()], vec![0.0; h.len()]);
        let (steps, constant) = (states.len(), a.len() == width);
        if constant {
            T::load(&a[first..][..h.len()], &mut factors);
        }
        for step in 0..steps {
            let t = if reverse { steps - 1 - step } else { step };
            let row = t * width + first;
            if !constant {
                T::load(&a[row..][..h.len()], &mut factors);
            }
            T::load(&u[row..][..h.len()], &mut summands);
            for ((h, a), u) in h.iter_mut().zip(&factors).zip(&summands) {
                *h = a * *h + u;
            }
            T::store(h, states[t]);
        }
    }
}

fn length(array: &'static str, length: usize, wanted: usize) -> Result<()> {
    if length == wanted {
        return Ok(());
    }
    Err(Error::Length { kernel: KERNEL, array, length, wanted })
}
