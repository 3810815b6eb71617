//! Attention and its pullback in plain Rust over slices, row-major; no MLX.
//!
//! Blocks of queries meet blocks of keys: the probabilities of a pair live in a core's cache. Results do not depend on the
//! number of threads.

mod backward;
mod block;
mod forward;
mod mask;
mod problem;
mod product;
mod scores;
mod scratch;

pub use backward::grad;
pub use forward::forward;
pub use mask::{Mask, MaskValues};

use super::{KERNEL, Sizes};
use crate::{Error, Result};

/// The inputs.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, T> {
    /// Queries (B, Hq, L, E).
    pub q: &'a [T],
    /// Keys (B, Hk, S, E).
    pub k: &'a [T],
    /// Values (B, Hk, S, Ev).
    pub v: &'a [T],
    /// What is visible, beside causality.
    pub mask: Option<Mask<'a>>,
}

/// Where the results go; what was there is not read.
#[derive(Debug)]
pub struct Outputs<'a, T> {
    /// (B, Hq, L, Ev).
    pub y: &'a mut [T],
    /// The rows' log-sum-exp (B, Hq, L).
    pub lse: &'a mut [f32],
}

/// The results of [`forward`], kept for [`grad`].
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a, T> {
    /// (B, Hq, L, Ev).
    pub y: &'a [T],
    /// (B, Hq, L).
    pub lse: &'a [f32],
}

/// Where the derivatives go; what was there is not read.
#[derive(Debug)]
pub struct Grads<'a, T> {
    /// By q (B, Hq, L, E).
    pub q: &'a mut [T],
    /// By k (B, Hk, S, E).
    pub k: &'a mut [T],
    /// By v (B, Hk, S, Ev).
    pub v: &'a mut [T],
}

impl Sizes {
    fn rows(&self) -> usize {
        self.batch * self.heads * self.queries
    }

    /// The number of elements of q, k, v and y.
    fn lengths(&self) -> [usize; 4] {
        let keys = self.batch * self.key_heads * self.keys;
        [self.rows() * self.width, keys * self.width, keys * self.value_width, self.rows() * self.value_width]
    }
}

impl<T> Inputs<'_, T> {
    fn check(&self, sizes: Sizes) -> Result<()> {
        sizes.check()?;
        let [q, k, v, _] = sizes.lengths();
        length("q", self.q, q)?;
        length("k", self.k, k)?;
        length("v", self.v, v)?;
        self.mask.map_or(Ok(()), |mask| mask.check(sizes))
    }
}

fn length<T>(array: &'static str, slice: &[T], wanted: usize) -> Result<()> {
    if slice.len() == wanted {
        return Ok(());
    }
    Err(Error::Length { kernel: KERNEL, array, length: slice.len(), wanted })
}

/// `slice` in parts of these lengths.
fn split<T>(mut slice: &mut [T], lengths: impl IntoIterator<Item = usize>) -> Vec<&mut [T]> {
    let part = |length| {
        let (part, rest) = std::mem::take(&mut slice).split_at_mut(length);
        slice = rest;
        part
    };
    lengths.into_iter().map(part).collect()
}
