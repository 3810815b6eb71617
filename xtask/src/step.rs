//! Running other programs as named steps, with what they cost in time.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::layout::Layout;

/// Announces a step, does it, and says how long it took.
pub fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("\n==> {name}");
    let start = Instant::now();
    let result = work().with_context(|| format!("step '{name}' failed"))?;
    eprintln!("    {name}: {:.0} s", start.elapsed().as_secs_f64());
    Ok(result)
}

/// Runs a program whose output the user sees; an exit code other than 0 is an error.
pub fn must(command: &mut Command) -> Result<()> {
    let status =
        command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{} ended with {status}", command.get_program().display());
    }
    Ok(())
}

/// `cargo` in the checkout, as this command was started.
pub fn cargo(layout: &Layout) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(layout.root());
    command
}
