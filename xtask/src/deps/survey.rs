//! What lies in `.deps`, compared with what the lock files want.

use anyhow::Result;
use clap::ValueEnum;

use super::host::Host;
use super::lock::Lock;
use super::mlx::Flavour;
use super::part::{self, Part};
use super::state::State;
use super::tools::Python;
use super::{active, mlx, venv};
use crate::layout::Layout;

/// One part of `.deps`.
#[derive(Debug)]
pub struct Finding {
    /// The part's name in the state file.
    pub name: String,
    /// The version that the lock files want.
    pub version: String,
    /// Whether it is in place.
    pub status: Status,
}

/// How a part stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// In place, made of what the lock files say.
    Ok,
    /// Not there.
    Missing,
    /// Made of something else than the lock files say now.
    Outdated,
    /// In place, but a cached download has another hash than the lock says.
    DamagedDownload,
}

/// The name of the active flavour of MLX.
pub fn active_mlx(layout: &Layout) -> Option<&'static str> {
    active(layout).map(Flavour::name)
}

/// Every part that `cargo xtask deps` puts in place, and further flavours of MLX that are there.
pub fn survey(layout: &Layout, python: &Python) -> Result<Vec<Finding>> {
    let host = Host::detect(python.minor)?;
    let lock = Lock::of_project(layout)?;
    let state = State::load(layout);
    let chosen = active(layout).unwrap_or_else(|| Flavour::default_for(&host));
    let others = Flavour::value_variants().iter().filter(|flavour| **flavour != chosen);
    let others = others.filter(|flavour| state.recipe(&mlx::part_name(**flavour)).is_some());
    let mut parts = part::all(layout, &host, &lock, chosen)?;
    for flavour in others {
        parts.push(part::private_mlx(layout, &host, &lock, *flavour)?);
    }
    let mut findings: Vec<Finding> = parts.iter().map(|part| find(part, layout, &host, &state)).collect();
    let recipe = venv::packages_recipe(layout)?;
    let status = match (venv::is_filled(layout, &state, &recipe), layout.venv_python().exists()) {
        (true, _) => Status::Ok,
        (false, true) => Status::Outdated,
        (false, false) => Status::Missing,
    };
    findings.push(Finding { name: venv::PACKAGES.into(), version: recipe.version, status });
    Ok(findings)
}

fn find(part: &Part<'_>, layout: &Layout, host: &Host, state: &State) -> Finding {
    let status = if part.is_current(state) {
        if part.downloads_are_intact(layout, host) { Status::Ok } else { Status::DamagedDownload }
    } else if part.exists() {
        Status::Outdated
    } else {
        Status::Missing
    };
    Finding { name: part.name().into(), version: part.version().into(), status }
}
