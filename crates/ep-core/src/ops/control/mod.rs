//! Operators that run bodies: graphs that are compiled once and run as often as values say.

use crate::op::Entry;

mod body;
mod collect;
mod if_;
mod loop_;
mod plan;
mod scalar;
mod scan;
mod sweep;
#[cfg(test)]
mod tests;
mod track;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::with_bodies::<if_::If>(),
    Entry::with_bodies::<loop_::Loop>(),
    Entry::with_bodies::<scan::Scan>(),
];
