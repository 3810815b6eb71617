//! The virtual environment: pip for the downloads, and what the Python end-to-end tests import.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::pip::{pip, watch};
use super::state::{Recipe, State, remove};
use super::tools::{Missing, Python};
use super::wheel::sha256;
use crate::layout::Layout;

const VENV: &str = "venv";
const PACKAGES: &str = "venv-packages";

/// Makes the environment, with pip and nothing else, unless it is there. It cannot be moved, so it is made in place.
pub fn create(layout: &Layout, state: &mut State, python: &Python) -> Result<()> {
    let recipe = Recipe {
        version: python.version.clone(),
        inputs: vec![python.path.display().to_string(), layout.root().display().to_string()],
        revision: 1,
    };
    if state.is_current(VENV, &recipe, &layout.venv_python()) {
        return Ok(());
    }
    state.forget(VENV)?;
    state.forget(PACKAGES)?;
    remove(&layout.venv())?;
    let output = Command::new(&python.path).args(["-m", "venv"]).arg(layout.venv()).output();
    let output = output.with_context(|| format!("cannot run {}", python.path.display()))?;
    if !output.status.success() {
        // venv prints some of its reasons on standard output.
        let said = [output.stderr, output.stdout].concat();
        let said = String::from_utf8_lossy(&said);
        bail!(Missing::Venv(
            said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message").into()
        ));
    }
    state.record(VENV, recipe)
}

/// What `python/requirements.lock` asks for.
pub fn packages_recipe(layout: &Layout) -> Result<Recipe> {
    let hash = sha256(&requirements(layout))?;
    Ok(Recipe {
        version: hash[..12].to_owned(),
        inputs: vec![format!("requirements.lock {hash}")],
        revision: 1,
    })
}

/// Whether the locked packages are installed.
pub fn is_filled(layout: &Layout, state: &State, recipe: &Recipe) -> bool {
    state.is_current(PACKAGES, recipe, &layout.venv_python())
}

/// Installs the locked packages, from the download cache if it holds them all.
pub fn fill(layout: &Layout, state: &mut State, recipe: Recipe, mut tick: impl FnMut()) -> Result<()> {
    state.forget(PACKAGES)?;
    let lock = requirements(layout);
    let install = |tick: &mut dyn FnMut()| {
        watch(pip(layout, "install").arg("--no-index").arg("--requirement").arg(&lock), tick)
    };
    if install(&mut tick).is_err() {
        let mut download = pip(layout, "download");
        download.arg("--dest").arg(layout.downloads()).arg("--requirement").arg(&lock);
        watch(&mut download, &mut tick).context("cannot fetch the Python packages of the tests")?;
        install(&mut tick).context("cannot install the Python packages of the tests")?;
    }
    state.record(PACKAGES, recipe)
}

fn requirements(layout: &Layout) -> std::path::PathBuf {
    layout.root().join(Path::new("python/requirements.lock"))
}
