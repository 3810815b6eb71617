//! The virtual environment: pip for the downloads, and what the Python end-to-end tests import.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::pip::{pip, watch};
use super::progress::Progress;
use super::state::{Recipe, State, remove};
use super::tools::{Missing, Python};
use super::wheel::sha256;
use crate::layout::Layout;

const VENV: &str = "venv";
/// The packages' name in the state file.
pub const PACKAGES: &str = "venv-packages";

/// Makes the environment, with pip and nothing else, unless it is there. It cannot be moved, so it is made in place.
pub fn create(layout: &Layout, state: &mut State, python: &Python, progress: &Progress) -> Result<()> {
    let inputs = vec![python.path.display().to_string(), layout.root().display().to_string()];
    let recipe = Recipe { version: python.version.clone(), inputs, revision: 1 };
    if state.is_current(VENV, &recipe, &layout.venv_python()) {
        return Ok(());
    }
    state.forget(VENV)?;
    state.forget(PACKAGES)?;
    remove(&layout.venv())?;
    progress.during("Python environment", || make(layout, python))?;
    state.record(VENV, recipe)
}

fn make(layout: &Layout, python: &Python) -> Result<()> {
    let output = Command::new(&python.path).args(["-I", "-m", "venv"]).arg(layout.venv()).output();
    let output = output.with_context(|| format!("cannot run {}", python.path.display()))?;
    if output.status.success() {
        return Ok(());
    }
    // venv prints some of its reasons on standard output.
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    bail!(Missing::Venv(venv_reason(&said)))
}

/// Debian's text about its missing package runs over many lines; of a traceback the last line counts.
fn venv_reason(said: &str) -> String {
    if said.contains("ensurepip is not") {
        return "its module ensurepip is missing".into();
    }
    said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message").trim().into()
}

/// What `python/requirements.lock` asks for.
pub fn packages_recipe(layout: &Layout) -> Result<Recipe> {
    let hash = sha256(&requirements(layout))?;
    let inputs = vec![format!("requirements.lock {hash}")];
    Ok(Recipe { version: hash[..12].to_owned(), inputs, revision: 1 })
}

/// Whether the locked packages are installed.
pub fn is_filled(layout: &Layout, state: &State, recipe: &Recipe) -> bool {
    state.is_current(PACKAGES, recipe, &layout.venv_python())
}

/// Installs the locked packages, from the download cache if it holds them all.
pub fn fill(layout: &Layout, state: &mut State, recipe: Recipe) -> Result<()> {
    state.forget(PACKAGES)?;
    let lock = requirements(layout);
    let install = || {
        let mut install = pip(layout, "install");
        install.arg("--no-index").arg("--find-links").arg(layout.downloads());
        watch(install.arg("--requirement").arg(&lock), || {})
    };
    if install().is_err() {
        let mut download = pip(layout, "download");
        download.arg("--dest").arg(layout.downloads()).arg("--requirement").arg(&lock);
        watch(&mut download, || {}).context("cannot fetch the Python packages of the tests")?;
        install().context("cannot install the Python packages of the tests")?;
    }
    state.record(PACKAGES, recipe)
}

fn requirements(layout: &Layout) -> PathBuf {
    layout.root().join("python/requirements.lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failed_venv_is_one_line() {
        let debian =
            "The virtual environment was not created successfully because ensurepip is not\navailable.\n";
        assert_eq!(venv_reason(debian), "its module ensurepip is missing");
        assert_eq!(venv_reason("Traceback\nModuleNotFoundError: venv\n\n"), "ModuleNotFoundError: venv");
        assert_eq!(venv_reason(""), "no message");
    }
}
