//! `cargo xtask test`: everything that must pass.

use anyhow::Result;

use crate::layout::Layout;
use crate::plugin::{Plugin, Profile};
use crate::step::{cargo, must, step};
use crate::{deps, tidy};

/// Runs every check, from the quick to the slow.
pub fn run(layout: &Layout) -> Result<()> {
    step("fetch the dependencies", || deps::run(layout, &deps::Args::default()))?;
    step("format", || must(cargo(layout).args(["fmt", "--all", "--check"])))?;
    step("house rules", || tidy::run(layout))?;
    step("lints", || {
        must(cargo(layout).args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    step("documentation", || {
        must(cargo(layout).args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("Rust tests", || must(cargo(layout).args(["test", "--workspace"])))?;
    let plugin = step("build the plugin", || Plugin::build(layout, Profile::Dev))?;
    step("Python end to end", || must(plugin.python(layout).args(["-m", "pytest", "-q", "python/tests"])))?;
    eprintln!("\nall tests passed");
    Ok(())
}
