//! Recurrences with kernels of their own, in this project's domain ai.ortmlx.

use crate::op::Entry;
use crate::{Decline, NodeRef};

mod linear_scan;
mod linear_step;
mod selective_scan;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::of::<linear_scan::LinearScan>(),
    Entry::of::<linear_step::LinearStep>(),
    Entry::of::<selective_scan::SelectiveScan>(),
    Entry::of::<selective_scan::SelectiveScanGrad>(),
];

/// Declines where another rank is declared.
fn expect_rank(node: &NodeRef<'_>, i: usize, name: &str, rank: usize) -> Result<(), Decline> {
    match node.input_rank(i) {
        Some(found) if found != rank => {
            Err(Decline::invalid(format!("{name} is of rank {found}, not {rank}")))
        }
        _ => Ok(()),
    }
}
