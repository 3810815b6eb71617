//! The recurrence in plain Rust over slices, row-major; no MLX.

use super::KERNEL;
use crate::sample::Sample;
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
    let (mut factors, mut summands) = (vec![0.0; width], vec![0.0; width]);
    for step in 0..steps {
        let t = if reverse { steps - 1 - step } else { step };
        let row = t * width..(t + 1) * width;
        T::load(if constant { a } else { &a[row.clone()] }, &mut factors);
        T::load(&u[row.clone()], &mut summands);
        for ((h, a), u) in last.iter_mut().zip(&factors).zip(&summands) {
            *h = a * *h + u;
        }
        T::store(last, &mut states[row]);
    }
    Ok(())
}

fn length(array: &'static str, length: usize, wanted: usize) -> Result<()> {
    if length == wanted {
        return Ok(());
    }
    Err(Error::Length { kernel: KERNEL, array, length, wanted })
}
