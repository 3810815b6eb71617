//! The commands that run models: `run`, `check`, `models` and `demo`. Each builds the plugin and hands over to Python,
//! where people use onnxruntime most.

use std::ffi::OsString;

use anyhow::Result;

use crate::deps;
use crate::layout::Layout;
use crate::plugin::{Plugin, Profile};
use crate::step::{must, step};

/// Arguments handed on as they are.
#[derive(clap::Args)]
pub struct PassedOn {
    /// See `--help` of the command itself
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// `cargo xtask run MODEL`: `python -m ort_mlx run`.
pub fn run(layout: &Layout, args: &PassedOn) -> Result<()> {
    command(layout, "ort_mlx", "run", args)
}

/// `cargo xtask check FOLDER...`: `python -m ort_mlx check`.
pub fn check(layout: &Layout, args: &PassedOn) -> Result<()> {
    command(layout, "ort_mlx", "check", args)
}

/// `cargo xtask models`: the README's table.
pub fn models(layout: &Layout, args: &PassedOn) -> Result<()> {
    command(layout, "zoo", "table", args)
}

/// `cargo xtask demo`: everything from nothing.
pub fn demo(layout: &Layout, args: &PassedOn) -> Result<()> {
    step("fetch the dependencies", || deps::run(layout, &deps::Args::default()))?;
    let plugin = step("build the plugin", || Plugin::build(layout, Profile::Release))?;
    step("run real models", || must(plugin.python(layout).args(["-m", "zoo", "demo"]).args(&args.arguments)))
}

fn command(layout: &Layout, module: &str, name: &str, args: &PassedOn) -> Result<()> {
    deps::run(layout, &deps::Args::default())?;
    let plugin = Plugin::build(layout, Profile::Release)?;
    let here = std::env::current_dir()?;
    must(plugin.python(layout).current_dir(here).args(["-m", module, name]).args(&args.arguments))
}
