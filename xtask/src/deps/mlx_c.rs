//! mlx-c's C++ source. No registry serves it alone, but the crate `mlx-sys` carries it: cargo downloads and checks that
//! crate through the manifest in `deps/mlx-c`, and never builds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::state::{Recipe, create_dir};
use super::tools::Missing;

const CRATE: &str = "mlx-sys";

#[derive(Deserialize)]
struct CargoLock {
    package: Vec<LockedCrate>,
}

#[derive(Deserialize)]
struct LockedCrate {
    name: String,
    version: String,
    checksum: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

/// What the locked crate is, read from `deps/mlx-c/Cargo.lock`.
pub fn recipe(root: &Path) -> Result<Recipe> {
    let path = root.join("deps/mlx-c/Cargo.lock");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let lock: CargoLock = toml::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
    let found = lock.package.into_iter().find(|package| package.name == CRATE);
    let package = found.with_context(|| format!("{} does not lock {CRATE}", path.display()))?;
    let checksum = package.checksum.with_context(|| format!("{CRATE} is locked without a checksum"))?;
    Ok(Recipe { version: package.version, inputs: vec![format!("{CRATE} {checksum}")], revision: 1 })
}

/// Copies the source into `into`. A copy, so that a wiped cargo cache does no harm.
pub fn build(root: &Path, into: &Path) -> Result<()> {
    let source = crate_folder(root)?.join("src/mlx-c");
    ensure!(source.join("mlx/c/mlx.h").exists(), "{} holds no mlx-c", source.display());
    copy_tree(&source, into)
}

fn crate_folder(root: &Path) -> Result<PathBuf> {
    let manifest = root.join("deps/mlx-c/Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--locked", "--format-version=1", "--manifest-path"]).arg(&manifest);
    let Ok(output) = command.output() else { bail!(Missing::Cargo) };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "cargo cannot fetch the crate {CRATE}, which carries mlx-c's source: this needs the network (or a cargo \
             mirror) the first time. Cargo says: {}",
            reason(&said)
        );
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
    let package = metadata.packages.into_iter().find(|package| package.name == CRATE);
    let manifest = package.with_context(|| format!("cargo metadata does not list {CRATE}"))?.manifest_path;
    manifest.parent().map(Path::to_path_buf).context("a manifest lies in a folder")
}

/// Cargo's first error line and, if there is one, the innermost cause.
fn reason(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let first = lines.iter().position(|line| line.starts_with("error")).unwrap_or(0);
    let cause = lines.iter().rposition(|line| *line == "Caused by:").and_then(|at| lines.get(at + 1));
    [lines.get(first), cause].into_iter().flatten().copied().collect::<Vec<_>>().join(": ")
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    create_dir(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            fs::copy(&source, &target).with_context(|| format!("cannot copy {}", source.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_lock_names_the_crate() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(recipe(&root).unwrap().version, "0.7.0");
    }

    #[test]
    fn cargo_errors_become_one_line() {
        let said =
            "error: failed to download `a`\n\nCaused by:\n  offline\n\nCaused by:\n  no route to host\n";
        assert_eq!(reason(said), "error: failed to download `a`: no route to host");
        assert_eq!(reason("error: only this\n"), "error: only this");
    }
}
