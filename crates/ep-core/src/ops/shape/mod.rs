//! Operators that move or describe elements without reading them.

use crate::op::Entry;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[];
