//! `cargo xtask bench`: the benchmarks of the crates, runs through ONNX Runtime, and the same for a machine with a GPU.

mod gpu;
mod results;

use std::ffi::OsString;

use anyhow::Result;

use crate::deps;
use crate::layout::Layout;
use crate::plugin::{Plugin, Profile};
use crate::step::{cargo, must, step};

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Args {
    /// Gather what a machine with an NVIDIA GPU needs in target/gpu-bench, and run it if this is one
    #[arg(long)]
    gpu: bool,
    /// Write the run-path table and plot to docs/bench, with this name of the machine
    #[arg(long, value_name = "MACHINE", conflicts_with = "gpu")]
    save: Option<String>,
    /// Write them from the results of another machine: the folder that target/gpu-bench/run.sh filled
    #[arg(long, value_name = "FOLDER", requires = "save")]
    from: Option<std::path::PathBuf>,
    /// Arguments of `python -m zoo bench`
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// Runs what `args` say.
pub fn run(layout: &Layout, args: &Args) -> Result<()> {
    if let (Some(folder), Some(machine)) = (&args.from, &args.save) {
        return results::save(layout, "run-path-gpu", &folder.join(results::FILE), machine);
    }
    deps::run(layout, &deps::Args::default())?;
    if args.gpu {
        return gpu::run(layout);
    }
    let plugin = Plugin::build(layout, Profile::Release)?;
    step("benchmarks of the crates", || {
        must(cargo(layout).args([
            "bench",
            "--workspace",
            "--exclude",
            "xtask",
            "--exclude",
            "ort-mlx-tests",
            "--benches",
        ]))
    })?;
    step("sessions, MLX against ONNX Runtime's CPU provider", || {
        // These pin OpenBLAS to a processor's kernels, which on another one are slow.
        let mut python = plugin.python(layout);
        python.env_remove("OPENBLAS_CORETYPE").env_remove("OPENBLAS_L2_SIZE");
        must(python.args(["-m", "zoo", "bench"]).args(&args.arguments))
    })?;
    step("runs through ONNX Runtime, beside the same networks in mlx-safe", || {
        let rows = layout.root().join("target").join(results::FILE);
        let json = format!("--json={}", rows.display());
        must(cargo(layout).args([
            "bench",
            "--package",
            "ort-mlx-tests",
            "--bench",
            "run_path",
            "--",
            &json,
        ]))?;
        match &args.save {
            Some(machine) => results::save(layout, "run-path", &rows, machine),
            None => Ok(()),
        }
    })
}
