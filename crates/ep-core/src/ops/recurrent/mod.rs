//! Operators that carry a state along a sequence.

use crate::op::Entry;

mod cell;
mod recurrence;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[Entry::of::<recurrence::Recurrence>()];
