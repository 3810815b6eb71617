//! `cargo xtask doctor`: what is installed, and in which state.

use anyhow::Result;

use crate::layout::Layout;

/// Prints the report.
pub fn run(layout: &Layout) -> Result<()> {
    println!("{}", layout.root().display());
    Ok(())
}
