//! Activation functions.

use crate::op::Entry;

mod gelu;
mod linear_pieces;
mod prelu;
mod smooth;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::of::<gelu::Gelu>(),
    Entry::of::<linear_pieces::LinearPieces>(),
    Entry::of::<prelu::PRelu>(),
    Entry::of::<smooth::Smooth>(),
];
