//! `cargo xtask deps`: fetches, verifies and unpacks everything the project is built and tested with.
//!
//! Every part is pinned by hash in `deps/lock.toml`, `deps/mlx-c/Cargo.lock` or `python/requirements.lock`. A second
//! run finds all in place and needs no network.

mod host;
pub mod lock;
pub mod mlx;
mod mlx_c;
mod part;
mod pip;
mod progress;
pub mod state;
pub mod tools;
mod venv;
mod wheel;

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};

use crate::layout::Layout;
use host::Host;
use lock::Lock;
use mlx::Flavour;
use part::Part;
use pip::Fetcher;
use progress::Progress;
use state::{State, create_dir, remove, symlink};
use tools::Python;

/// The ONNX Runtime that builds and tests use.
pub const ORT_VERSION: &str = "1.32.0";
/// Older ones that the plugin is tested with.
pub const ORT_COMPAT_VERSIONS: &[&str] = &["1.28.0", "1.24.4"];
/// The MLX of a user that lives in the same process as ours, in the tests.
pub const USER_MLX_VERSION: &str = "0.32.4";

/// Arguments of `cargo xtask deps`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Which MLX to use [default: the active one, at first cpu on Linux and metal on macOS]
    #[arg(long, value_enum)]
    mlx: Option<Flavour>,
    /// Prepare the flavour and leave the active one active
    #[arg(long, requires = "mlx")]
    keep_active: bool,
    /// Make every part anew (downloads whose hash is right are kept)
    #[arg(long)]
    force: bool,
}

/// Puts everything in place.
pub fn run(layout: &Layout, args: &Args) -> Result<()> {
    create_dir(&layout.downloads())?;
    let guard = File::create(layout.deps().join("lock")).context("cannot create .deps/lock")?;
    guard.lock().context("cannot lock .deps")?;

    let python = Python::find()?;
    tools::cxx()?;
    let host = Host::detect(python.minor)?;
    let flavour = args.mlx.or_else(|| active(layout)).unwrap_or_else(|| Flavour::default_for(&host));
    let lock = Lock::read(&layout.root().join("deps/lock.toml"))?;
    let mut state = State::load(layout);
    if args.force {
        state.clear()?;
    }

    venv::create(layout, &mut state, &python)?;
    let parts = part::all(layout, &host, &lock, flavour)?;
    let missing: Vec<&Part> = parts.iter().filter(|part| !part.is_current(&state)).collect();
    let fetcher = Fetcher::new(layout, &host);
    fetcher.fetch_all(&part::packages(&missing))?;
    let progress = Progress::new();
    for part in &missing {
        let bar = progress.step(&format!("unpack {}", part.name()));
        let built = part.build(&mut state, &fetcher);
        bar.finish(built.is_ok());
        built?;
    }
    let mlx_c = mlx_c::recipe(layout.root())?;
    let target = layout.deps().join("mlx-c");
    if !state.is_current("mlx-c", &mlx_c, &target) {
        let bar = progress.step(&format!("mlx-c (in mlx-sys {})", mlx_c.version));
        let built = state.install("mlx-c", mlx_c, &target, |into| mlx_c::build(layout.root(), into));
        bar.finish(built.is_ok());
        built?;
    }
    link(layout, flavour, args.keep_active)?;

    let packages = venv::packages_recipe(layout)?;
    if !venv::is_filled(layout, &state, &packages) {
        let bar = progress.step("Python packages");
        let filled = venv::fill(layout, &mut state, packages, || {});
        bar.finish(filled.is_ok());
        filled?;
    }
    remove(&layout.staging())
}

/// The flavour that `.deps/mlx/active` points at.
pub fn active(layout: &Layout) -> Option<Flavour> {
    let target = fs::read_link(layout.mlx().join("active")).ok()?;
    Flavour::named(target.to_str()?)
}

fn link(layout: &Layout, flavour: Flavour, keep_active: bool) -> Result<()> {
    if !keep_active || active(layout).is_none() {
        symlink(Path::new(flavour.name()), &layout.mlx().join("active"))?;
    }
    let ort = layout.ort_library(ORT_VERSION);
    let folder = layout.deps().join("ort");
    let relative = ort.strip_prefix(&folder).context("the library lies in .deps/ort")?;
    symlink(relative, &folder.join("libonnxruntime"))
}
