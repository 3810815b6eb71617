//! `cargo xtask deps`: fetches, verifies and unpacks everything the project is built and tested with.
//!
//! Every part is pinned by hash in `deps/lock.toml`, `deps/mlx-c/Cargo.lock` or `python/requirements.lock`. A second
//! run finds all in place and needs no network.

mod host;
pub mod lock;
mod mlx;
mod mlx_c;
mod nvidia;
pub mod part;
mod pip;
mod progress;
mod state;
pub mod survey;
pub mod tools;
mod venv;
mod wheel;

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::layout::Layout;
use host::Host;
use lock::{Lock, Locked};
pub use mlx::Flavour;
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
/// Packages that ship the real models of `python/zoo/models.toml`.
pub const MODEL_PACKAGES: &[&str] =
    &["chython-rxnmap", "rapidocr-onnxruntime", "silero-vad", "text2tashkeel"];

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

impl Args {
    /// `flavour` beside the active one.
    pub fn beside(flavour: Flavour) -> Self {
        Self { mlx: Some(flavour), keep_active: true, force: false }
    }
}

/// Puts everything in place.
pub fn run(layout: &Layout, args: &Args) -> Result<()> {
    tools::cxx()?;
    let mut deps = Deps::open(layout, args.force)?;
    let flavour = args.mlx.or_else(|| active(layout)).unwrap_or_else(|| Flavour::default_for(&deps.host));
    let lock = Lock::of_project(layout)?;
    deps.install(&part::all(layout, &deps.host, &lock, flavour)?)?;
    deps.link(flavour, args.keep_active)?;
    nvidia::link(layout, flavour, &deps.python.path)?;
    deps.fill_venv()?;
    remove(&layout.staging())
}

/// `.deps` opened for writing: one process at a time, with pip at hand.
pub struct Deps<'a> {
    layout: &'a Layout,
    /// Held as long as this lives.
    _guard: File,
    state: State,
    python: Python,
    host: Host,
    fetcher: Fetcher<'a>,
}

impl<'a> Deps<'a> {
    /// Waits for other processes to be done, and makes the virtual environment (whose pip fetches) if there is none.
    ///
    /// With `force` nothing that is in place counts.
    pub fn open(layout: &'a Layout, force: bool) -> Result<Self> {
        create_dir(&layout.downloads())?;
        let guard = exclusive(&layout.deps().join("lock"))?;
        let python = Python::find()?;
        let host = Host::detect(python.minor)?;
        let mut state = State::load(layout);
        if force {
            state.clear()?;
        }
        let progress = Progress::new();
        venv::create(layout, &mut state, &python, &progress)?;
        let fetcher = Fetcher::new(layout, host.clone(), progress);
        Ok(Self { layout, _guard: guard, state, python, host, fetcher })
    }

    /// The wheel of `package` for this host, from the cache or the network; its hash is checked either way.
    pub fn fetch(&self, package: &Locked) -> Result<PathBuf> {
        self.fetcher.fetch(package)
    }

    /// Fetches what the missing ones of `parts` are made of, all at once, and puts them in place.
    pub fn install(&mut self, parts: &[Part<'_>]) -> Result<()> {
        let missing: Vec<&Part<'_>> = parts.iter().filter(|part| !part.is_current(&self.state)).collect();
        self.fetcher.fetch_all(&part::packages(&missing))?;
        for part in missing {
            let wheels =
                part.wheels().iter().map(|package| self.fetch(package)).collect::<Result<Vec<_>>>()?;
            let step = format!("unpack {}", part.name());
            self.fetcher.progress().during(&step, || part.build(&mut self.state, &wheels))?;
        }
        Ok(())
    }

    /// Puts zig and MLX for macOS in place, for a build that only shows that it compiles and links.
    pub fn install_for_mac(&mut self) -> Result<()> {
        let lock = Lock::of_project(self.layout)?;
        self.install(&[part::zig(self.layout, &self.host, &lock)?])?;
        let mac = Host::macos((14, 0), self.python.minor);
        self.fetcher.aim_at(mac.clone(), "macosx_14_0_arm64");
        self.install(&[part::mlx_for_mac(self.layout, &mac, &lock)?])?;
        self.fetcher = Fetcher::new(self.layout, self.host.clone(), Progress::new());
        remove(&self.layout.staging())
    }

    fn fill_venv(&mut self) -> Result<()> {
        let recipe = venv::packages_recipe(self.layout)?;
        if venv::is_filled(self.layout, &self.state, &recipe) {
            return Ok(());
        }
        let progress = self.fetcher.progress();
        progress.during("Python packages", || venv::fill(self.layout, &mut self.state, recipe))
    }

    fn link(&self, flavour: Flavour, keep_active: bool) -> Result<()> {
        if !keep_active || active(self.layout).is_none() {
            symlink(Path::new(flavour.name()), &self.layout.mlx().join("active"))?;
        }
        let ort = self.layout.ort_library(ORT_VERSION);
        let folder = self.layout.deps().join("ort");
        let relative = ort.strip_prefix(&folder).context("the library lies in .deps/ort")?;
        symlink(relative, &folder.join("libonnxruntime"))
    }
}

/// The flavour that `.deps/mlx/active` points at.
fn active(layout: &Layout) -> Option<Flavour> {
    let target = fs::read_link(layout.mlx().join("active")).ok()?;
    Flavour::named(target.to_str()?)
}

fn exclusive(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => {
            eprintln!("waiting for another `cargo xtask` that is at work in .deps")
        }
        Err(TryLockError::Error(error)) => bail!("cannot lock {}: {error}", path.display()),
    }
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}
