//! Convolution and pooling.

use crate::op::Entry;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[];
