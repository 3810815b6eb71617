//! Scaled dot-product attention and its pullback, without the L x S matrix (Dao 2023, arXiv:2307.08691).
//!
//! Sizes: B batch, Hq query heads, Hk key heads (Hq is a multiple), L queries, S keys, E and Ev widths of keys and values.
//!
//! ```text
//! P = softmax(scale Q K^T + mask)    Y = P V    lse = log sum exp of a row of scale Q K^T + mask
//! dV = P^T dY    dS = P * (dY V^T - rowsum(dY * Y))    dQ = scale dS K    dK = scale dS^T Q
//! ```
//!
//! A mask's element of [`REPLACES`] and below stands in the place of the score. A row that is minus infinity has Y = 0,
//! lse = -inf and no gradient.

mod arrays;
mod composed;
mod fused;
mod gpu;
pub mod host;
mod host_op;
mod kernel;

pub use arrays::{Grads, Inputs, Outputs};
pub use kernel::Kernel;

use crate::{Error, Result};

const KERNEL: &str = "attention";

/// What a mask holds of at most this is not added to a score: it takes its place, even that of NaN. Added to any score below
/// 10^20 it would be the sum.
pub const REPLACES: f32 = -1e28;

/// Scaled dot-product attention as one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attention {
    /// What products of queries and keys are multiplied by; 1 / sqrt(E) if left out.
    pub scale: Option<f32>,
    /// Whether query i sees keys 0 to i only (top left aligned, as ONNX has it, whatever L and S are).
    pub causal: bool,
}

impl Attention {
    /// The scale for keys of `width`.
    fn scale_for(&self, width: usize) -> f32 {
        self.scale.unwrap_or_else(|| (width.max(1) as f32).sqrt().recip())
    }
}

/// The sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// B.
    pub batch: usize,
    /// Hq, a multiple of `key_heads`.
    pub heads: usize,
    /// Hk.
    pub key_heads: usize,
    /// L.
    pub queries: usize,
    /// S.
    pub keys: usize,
    /// E.
    pub width: usize,
    /// Ev.
    pub value_width: usize,
}

impl Sizes {
    /// How many query heads share a key head.
    fn group(&self) -> usize {
        self.heads / self.key_heads.max(1)
    }

    /// Whether there is nothing that attends, or nothing to attend to.
    fn is_empty(&self) -> bool {
        [self.batch, self.heads, self.queries, self.keys].contains(&0)
    }

    fn check(&self) -> Result<()> {
        if self.group() * self.key_heads == self.heads {
            return Ok(());
        }
        Err(Error::Heads { kernel: KERNEL, heads: self.heads, key_heads: self.key_heads })
    }

    /// Whether a mask of `shape` fits.
    fn mask(&self, shape: &[i32]) -> Result<()> {
        let wanted = [self.batch, self.heads, self.queries, self.keys].map(|n| n as i32);
        let last = shape.last().is_none_or(|&n| n == 1 || n <= wanted[3]);
        let others =
            shape.iter().rev().zip(wanted.iter().rev()).skip(1).all(|(&n, wanted)| n == 1 || n == *wanted);
        if shape.len() <= 4 && last && others {
            return Ok(());
        }
        Err(Error::Shape { kernel: KERNEL, array: "mask", shape: shape.into(), wanted: wanted.into() })
    }
}
