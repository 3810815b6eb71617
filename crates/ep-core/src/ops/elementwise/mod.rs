//! Operators that compute every element on its own.

use crate::op::Entry;

mod unary;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[Entry::of::<unary::Unary>()];
