//! Operators on the spatial axes of images.

use crate::op::Entry;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[];
