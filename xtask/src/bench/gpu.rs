//! The suite for a machine with an NVIDIA GPU: binaries, MLX for CUDA and a script, in one folder that can be carried there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::deps;
use crate::layout::Layout;
use crate::plugin::{Plugin, Profile};
use crate::step::{cargo, must, step};

/// What the folder's user starts.
const SCRIPT: &str = include_str!("gpu.sh");
/// The networks of `run_path` in PyTorch.
const PEER: &str = include_str!("torch_peer.py");
/// Which MLX goes into the folder.
const FLAVOUR: deps::Flavour = deps::Flavour::Cuda13;
/// The benchmarks that go into the folder: packages and names.
const BENCHES: [(&str, &str); 3] = [
    ("ort-mlx-tests", "run_path"),
    ("kernels-metal", "selective_scan_gpu"),
    ("kernels-metal", "attention_gpu"),
];

/// Fills `target/gpu-bench`, and runs its script if there is a GPU.
pub fn run(layout: &Layout) -> Result<()> {
    let folder = layout.root().join("target").join("gpu-bench");
    step("fetch MLX for CUDA", || deps::run(layout, &deps::Args::beside(FLAVOUR)))?;
    step("gather the suite", || gather(layout, &folder))?;
    let script = folder.join("run.sh");
    let gpu = Command::new("nvidia-smi").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if gpu.is_ok_and(|status| status.success()) {
        return step("run it", || must(Command::new("sh").arg(&script)));
    }
    println!(
        "no NVIDIA GPU here: copy {} to a machine that has one, with Python, onnxruntime and mlx-cuda-13's \
         dependencies, and run `sh run.sh` there",
        folder.display()
    );
    Ok(())
}

fn gather(layout: &Layout, folder: &Path) -> Result<()> {
    let create =
        |path: &Path| fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()));
    let copy = |from: &Path, to: &Path| {
        fs::copy(from, to)
            .map(drop)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
    };
    let bin = folder.join("bin");
    create(&bin)?;
    let plugin = Plugin::build(layout, Profile::Release)?;
    copy(plugin.library(), &bin.join(plugin.library().file_name().context("the plugin has no name")?))?;
    for (package, name) in BENCHES {
        copy(&executable(layout, package, name)?, &bin.join(name))?;
    }
    for part in ["lib", "include"] {
        copy_tree(&layout.mlx().join(FLAVOUR.name()).join(part), &folder.join("mlx").join(part))?;
    }
    for (name, text) in [("run.sh", SCRIPT), ("torch_peer.py", PEER)] {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Builds a benchmark and gives its path.
fn executable(layout: &Layout, package: &str, name: &str) -> Result<PathBuf> {
    let output = cargo(layout)
        .args(["bench", "--no-run", "--package", package, "--bench", name])
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    anyhow::ensure!(output.status.success(), "the benchmark {name} does not build");
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|m| m["reason"] == "compiler-artifact" && m["target"]["name"] == name)
        .find_map(|m| m["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo names no executable of the benchmark {name}"))
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let (source, target) = {
            let e = entry?;
            (e.path(), to.join(e.file_name()))
        };
        if source.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            fs::copy(&source, &target).with_context(|| format!("cannot copy {}", source.display()))?;
        }
    }
    Ok(())
}
