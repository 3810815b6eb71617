//! `cargo xtask doctor`: which tools, dependencies and devices are there.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::deps::survey::{Status, active_mlx, survey};
use crate::deps::tools::{self, Python};
use crate::layout::Layout;
use crate::plugin::Plugin;

/// Prints the report; an error says how many things keep the project from being built and tested.
pub fn run(layout: &Layout) -> Result<()> {
    let mut report = Report { problems: 0 };
    report.tools(layout);
    report.dependencies(layout);
    report.devices();
    report.runtime(layout);
    match report.problems {
        0 => Ok(()),
        1 => bail!("1 problem, see above"),
        count => bail!("{count} problems, see above"),
    }
}

struct Report {
    problems: usize,
}

impl Report {
    fn tools(&mut self, layout: &Layout) {
        println!("Tools");
        for tool in ["cargo", "rustc"] {
            self.line(
                tool,
                first_line(tool, &["--version"])
                    .ok_or_else(|| "not found: install Rust through rustup".into()),
            );
        }
        let cxx = tools::cxx().map(|name| first_line(&name, &["--version"]).unwrap_or(name));
        self.line("C++ compiler", cxx.map_err(|error| error.to_string()));
        let python = Python::find().map(|python| format!("{} ({})", python.version, python.path.display()));
        self.line("Python", python.map_err(|error| error.to_string()));
        let pip = first_line(layout.venv_python(), &["-I", "-m", "pip", "--version"]);
        let pip = pip.map(|line| line.split(" from ").next().unwrap_or_default().to_owned());
        self.line("pip (in .deps/venv)", pip.ok_or_else(|| "not there yet: run `cargo xtask deps`".into()));
    }

    fn dependencies(&mut self, layout: &Layout) {
        println!("\nDependencies (.deps)");
        let findings = match Python::find().and_then(|python| survey(layout, &python)) {
            Ok(findings) => findings,
            Err(error) => return self.line("unknown", Err(format!("{error:#}"))),
        };
        let active = active_mlx(layout).map(|name| format!("mlx-{name}"));
        for finding in findings {
            let version = &finding.version;
            let active = if active.as_deref() == Some(&finding.name) { ", active" } else { "" };
            let state = match finding.status {
                Status::Ok => Ok(format!("{version:14} ok{active}")),
                Status::Missing => Err(format!("{version:14} missing: run `cargo xtask deps`")),
                Status::Outdated => Err(format!("{version:14} not as locked: run `cargo xtask deps`")),
                Status::DamagedDownload => Err(format!(
                    "{version:14} its cached download is damaged: run `cargo xtask deps --force`"
                )),
            };
            self.line(&finding.name, state);
        }
    }

    fn devices(&mut self) {
        println!("\nGPUs");
        let gpus = if cfg!(target_os = "macos") { metal_devices() } else { nvidia_devices() };
        if gpus.is_empty() {
            let looked =
                if cfg!(target_os = "macos") { "no Metal device" } else { "no NVIDIA driver (`nvidia-smi`)" };
            println!("    none found: {looked}");
        }
        for gpu in gpus {
            println!("    {gpu}");
        }
    }

    /// What MLX and ONNX Runtime see, through the plugin if it has been built.
    fn runtime(&mut self, layout: &Layout) {
        println!("\nDevices as ONNX Runtime sees them");
        let Some(plugin) = Plugin::built(layout) else {
            println!("    unknown until the plugin is built (`cargo build --release -p ep-plugin`)");
            return;
        };
        let output = plugin.python(layout).args(["-m", "ort_mlx", "devices", "--all"]).output();
        match output {
            Ok(output) if output.status.success() => {
                for line in String::from_utf8_lossy(&output.stdout).lines() {
                    println!("    {line}");
                }
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                self.line("plugin", Err(said.lines().last().unwrap_or("does not load").to_owned()));
            }
            Err(error) => self.line("Python", Err(error.to_string())),
        }
    }

    fn line(&mut self, name: &str, state: Result<String, String>) {
        match state {
            Ok(text) => println!("    {name:22} {text}"),
            Err(text) => {
                self.problems += 1;
                println!("  ! {name:22} {text}");
            }
        }
    }
}

fn nvidia_devices() -> Vec<String> {
    let query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"];
    let lines = output("nvidia-smi", &query).unwrap_or_default();
    lines.lines().map(|line| line.trim().replace(", ", " · ")).filter(|line| !line.is_empty()).collect()
}

fn metal_devices() -> Vec<String> {
    let text = output("system_profiler", &["SPDisplaysDataType"]).unwrap_or_default();
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| line.starts_with("Chipset Model:") || line.starts_with("Metal"))
        .map(str::to_owned)
        .collect()
}

/// The first line that a program prints, if it runs and succeeds. The program's name may carry arguments.
fn first_line(program: impl AsRef<Path>, args: &[&str]) -> Option<String> {
    output(program, args)?.lines().next().map(|line| line.trim().to_owned())
}

fn output(program: impl AsRef<Path>, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program.as_ref());
    let output = command.args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
