//! Operators on images: padding, resizing, moving between depth and space.

use crate::op::Entry;

mod depth;
mod grid_sample;
mod pad;
mod resize;
mod sampling;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::of::<depth::Depth>(),
    Entry::of::<grid_sample::GridSample>(),
    Entry::of::<pad::Pad>(),
    Entry::of::<resize::Resize>(),
];
