//! What an attention is asked for, without the element type.

use super::block::Source;
use super::mask::Mask;
use super::{Inputs, Sizes};
use crate::attention::Attention;
use crate::sample::Sample;

/// Inputs and what decides scores.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) sizes: Sizes,
    pub(super) scale: f32,
    causal: bool,
    pub(super) mask: Option<Mask<'a>>,
    /// Keys that any query may see.
    pub(super) keys: usize,
    pub(super) q: &'a dyn Source,
    pub(super) k: &'a dyn Source,
    pub(super) v: &'a dyn Source,
}

impl<'a> Problem<'a> {
    pub(super) fn new<T: Sample>(attention: &Attention, sizes: Sizes, inputs: &'a Inputs<'a, T>) -> Self {
        Self {
            sizes,
            scale: attention.scale_for(sizes.width),
            causal: attention.causal,
            mask: inputs.mask,
            keys: inputs.mask.map_or(sizes.keys, |mask| mask.keys(sizes.keys)),
            q: &inputs.q,
            k: &inputs.k,
            v: &inputs.v,
        }
    }

    /// How many keys `query` may see.
    pub(super) fn visible(&self, query: usize) -> usize {
        if self.causal { self.keys.min(query + 1) } else { self.keys }
    }

    /// The first query that may see `key`.
    pub(super) fn first_query(&self, key: usize) -> usize {
        if self.causal { key } else { 0 }
    }
}
