//! `cargo xtask check-macos`: mlx-c and the bridge compile for macOS on Apple Silicon and link with MLX's wheel for it.
//! zig brings the compiler, the linker and macOS's symbols; Rust's standard library for macOS is not needed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread::available_parallelism;

use anyhow::{Context, Result, anyhow, bail};

use crate::deps::{self, Deps};
use crate::layout::Layout;
use crate::object_record::Record;
use crate::step::step;

/// The oldest macOS that MLX has wheels for.
const TARGET: &str = "aarch64-macos.14.0";

/// Fetches what is missing, compiles, links.
pub fn run(layout: &Layout) -> Result<()> {
    if !layout.deps().join("mlx-c/mlx/c").exists() {
        step("fetch the dependencies", || deps::run(layout, &deps::Args::default()))?;
    }
    step("fetch zig and MLX for macOS", || Deps::open(layout, false)?.install_for_mac())?;
    let compiler = Compiler::new(layout)?;
    let objects = step("compile for macOS", || compiler.objects(&sources(layout)?))?;
    step("link for macOS", || compiler.link(&objects))?;
    println!("{} files compile and link for {TARGET}", objects.len());
    Ok(())
}

/// What mlx-sys compiles, and a program that uses it.
fn sources(layout: &Layout) -> Result<Vec<PathBuf>> {
    let bridge = layout.root().join("crates/mlx-sys/csrc");
    let mut sources = Vec::new();
    for folder in [layout.deps().join("mlx-c/mlx/c"), bridge.clone(), bridge.join("check")] {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let files = entries.flatten().map(|entry| entry.path());
        let of_mlx_c = folder.ends_with("mlx/c");
        sources.extend(files.filter(|file| {
            // The bridge's own takes its place.
            file.extension().is_some_and(|e| e == "cpp") && !(of_mlx_c && file.ends_with("error.cpp"))
        }));
    }
    sources.sort();
    Ok(sources)
}

struct Compiler {
    zig: PathBuf,
    folder: PathBuf,
    flags: Vec<String>,
}

impl Compiler {
    fn new(layout: &Layout) -> Result<Self> {
        let folder = layout.check_macos();
        let zig = folder.join("zig/ziglang/zig");
        fs::set_permissions(&zig, fs::Permissions::from_mode(0o755))
            .context("zig cannot be made executable")?;
        let bridge = layout.root().join("crates/mlx-sys/csrc");
        let mut flags: Vec<String> = ["-target", TARGET, "-std=c++20", "-w"].map(str::to_owned).to_vec();
        // zig's <complex> uses what only <cmath> declares.
        flags.extend(["-include", "cmath", "-include"].map(str::to_owned));
        flags.push(bridge.join("format_shim.h").display().to_string());
        for include in [layout.deps().join("mlx-c"), folder.join("mlx/mlx/include"), bridge] {
            flags.push(format!("-I{}", include.display()));
        }
        Ok(Self { zig, folder, flags })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.zig);
        let cache = self.folder.join("cache");
        command.env("ZIG_GLOBAL_CACHE_DIR", &cache).env("ZIG_LOCAL_CACHE_DIR", &cache);
        command.arg("c++").args(&self.flags);
        command
    }

    /// Compiles all that changed, several at once.
    fn objects(&self, sources: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let folder = self.folder.join("objects");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let object = |source: &Path| {
            let owner = source.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            let stem = source.file_stem().unwrap_or_default().to_string_lossy();
            folder.join(format!("{owner}-{stem}.o"))
        };
        let queue = Mutex::new(sources.iter());
        let worker = || -> Result<()> {
            while let Some(source) = queue.lock().ok().and_then(|mut queue| queue.next()) {
                let record = Record::of(object(source), &self.flags);
                if record.is_fresh() {
                    continue;
                }
                let mut command = self.command();
                command.arg("-c").arg(source).arg("-o").arg(object(source));
                quiet(command.args(["-MD", "-MF"]).arg(record.dependencies()))?;
                record.keep()?;
            }
            Ok(())
        };
        let workers = available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().map_err(|_| anyhow!("a compilation panicked"))?)
        })?;
        Ok(sources.iter().map(|source| object(source)).collect())
    }

    fn link(&self, objects: &[PathBuf]) -> Result<()> {
        let mut command = self.command();
        command.args(objects).arg(format!("-L{}", self.folder.join("mlx/mlx/lib").display()));
        quiet(command.arg("-lmlx").arg("-o").arg(self.folder.join("check")))
    }
}

/// Runs a compiler, whose output shows only if it fails.
fn quiet(command: &mut Command) -> Result<()> {
    let output = command.output().context("cannot run zig")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
