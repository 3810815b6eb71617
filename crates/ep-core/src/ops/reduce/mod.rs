//! Operators that fold an axis: reductions, searches, running sums.

use crate::op::Entry;

mod arg;
mod cumulative;
mod extreme;
mod reduction;
mod reduction_fold;
mod topk;

pub(super) use extreme::{Extreme, first_extreme};

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::of::<arg::Arg>(),
    Entry::of::<cumulative::Cumulative>(),
    Entry::of::<reduction::Reduction>(),
    Entry::of::<topk::TopK>(),
];
