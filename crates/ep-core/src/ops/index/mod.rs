//! Operators that read or write by index.

use crate::op::Entry;

pub(crate) mod bounds;
mod gather;
mod gather_nd;
mod scatter;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::of::<gather::Gather>(),
    Entry::of::<gather::GatherElements>(),
    Entry::of::<gather_nd::GatherNd>(),
    Entry::of::<scatter::ScatterElements>(),
    Entry::of::<scatter::ScatterNd>(),
];
