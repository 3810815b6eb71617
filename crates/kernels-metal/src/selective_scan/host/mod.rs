//! The selective scan in plain Rust over slices, row-major; no MLX.

mod backward;
mod chunk;
mod forward;
mod grad;
mod rows;

pub use forward::forward;
pub use grad::grad;

use super::{KERNEL, Sizes};
use crate::{Error, Result};

/// Below so many exponentials one thread is quicker than several.
const SMALL: usize = 1 << 15;

/// The inputs. Shapes as in [`super::Inputs`].
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, T> {
    /// Step sizes (T, B, D).
    pub dt: &'a [T],
    /// Inputs (T, B, D).
    pub x: &'a [T],
    /// Input projections (T, B, N).
    pub b: &'a [T],
    /// Output projections (T, B, N).
    pub c: &'a [T],
    /// State matrix, diagonal (D, N).
    pub a: &'a [f32],
    /// State before the first step taken (B, D, N); zero if left out.
    pub h0: Option<&'a [f32]>,
}

/// Where the results go; what was there is not read.
#[derive(Debug)]
pub struct Outputs<'a, T> {
    /// Outputs (T, B, D).
    pub y: &'a mut [T],
    /// State after the last step taken (B, D, N).
    pub h: &'a mut [f32],
}

/// Where the derivatives go; what was there is not read.
#[derive(Debug)]
pub struct Grads<'a, T> {
    /// By dt (T, B, D).
    pub dt: &'a mut [T],
    /// By x (T, B, D).
    pub x: &'a mut [T],
    /// By b (T, B, N).
    pub b: &'a mut [T],
    /// By c (T, B, N).
    pub c: &'a mut [T],
    /// By a (D, N).
    pub a: &'a mut [f32],
    /// By h0 (B, D, N).
    pub h0: &'a mut [f32],
}

impl<T> Inputs<'_, T> {
    fn check(&self, sizes: Sizes) -> Result<()> {
        let Sizes { steps, batch, channels, states } = sizes;
        length("dt", self.dt, steps * batch * channels)?;
        length("x", self.x, steps * batch * channels)?;
        length("b", self.b, steps * batch * states)?;
        length("c", self.c, steps * batch * states)?;
        length("a", self.a, channels * states)?;
        self.h0.map_or(Ok(()), |h0| length("h0", h0, batch * channels * states))
    }
}

fn length<T>(array: &'static str, slice: &[T], wanted: usize) -> Result<()> {
    if slice.len() == wanted {
        return Ok(());
    }
    Err(Error::Length { kernel: KERNEL, array, length: slice.len(), wanted })
}
