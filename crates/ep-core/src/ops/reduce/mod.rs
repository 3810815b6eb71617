//! Operators that fold an axis: reductions, searches, running sums.

use crate::op::Entry;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[];
