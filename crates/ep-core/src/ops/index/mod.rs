//! Reading and writing by index.

use crate::op::Entry;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[];
