//! The plugin as built here, and Python set up to use it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::layout::Layout;
use crate::step::cargo;

/// The name of the plugin's library target, which is also how cargo reports it.
const TARGET: &str = "onnxruntime_mlx_ep";

/// How the plugin is built.
#[derive(Clone, Copy)]
pub enum Profile {
    /// As the Rust tests build it.
    Dev,
    /// As users get it.
    Release,
}

impl Profile {
    /// The tests' own build has the plugin already; another selection of packages would unify features differently and
    /// build everything again.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Dev => &["test", "--workspace", "--no-run"],
            Self::Release => &["build", "--release", "--package", "ep-plugin"],
        }
    }
}

/// The plugin's shared library.
pub struct Plugin {
    library: PathBuf,
}

impl Plugin {
    /// Builds it; cargo's progress shows.
    pub fn build(layout: &Layout, profile: Profile) -> Result<Self> {
        let output = cargo(layout)
            .args(profile.arguments())
            .args(["--message-format", "json-render-diagnostics"])
            .stderr(std::process::Stdio::inherit())
            .output()
            .context("cannot run cargo")?;
        if !output.status.success() {
            bail!("the plugin does not build");
        }
        let library = library_of(&String::from_utf8_lossy(&output.stdout));
        Ok(Self { library: library.context("cargo names no library of the plugin")? })
    }

    /// The one that was built last, if any was: nothing is built.
    pub fn built(layout: &Layout) -> Option<Self> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| layout.root().join("target"), PathBuf::from);
        let name = format!("{}{TARGET}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        let built = ["release", "debug"].map(|profile| target.join(profile).join(&name));
        let newest =
            built.into_iter().filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path))).max();
        newest.map(|(_, library)| Self { library })
    }

    /// Its file.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// The tests' Python with the plugin and the packages under `python/` at hand.
    pub fn python(&self, layout: &Layout) -> Command {
        let mut command = Command::new(layout.venv_python());
        command
            .current_dir(layout.root())
            .env("ORT_MLX_LIBRARY", &self.library)
            .env("PYTHONPATH", layout.root().join("python"))
            .env("PYTHONUNBUFFERED", "1");
        command
    }
}

/// The shared library among cargo's messages.
fn library_of(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let files = messages
        .filter(|m| m["reason"] == "compiler-artifact" && m["target"]["name"] == TARGET)
        .flat_map(|m| m["filenames"].as_array().cloned().unwrap_or_default());
    files
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .find(|file| file.extension().is_some_and(|e| e == std::env::consts::DLL_EXTENSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_shared_library_among_other_artifacts() {
        let file = format!("/t/lib{TARGET}.{}", std::env::consts::DLL_EXTENSION);
        let messages = format!(
            "{}\nnot json\n{}\n",
            r#"{"reason":"compiler-artifact","target":{"name":"half"},"filenames":["/t/libhalf.so"]}"#,
            serde_json::json!({"reason": "compiler-artifact", "target": {"name": TARGET}, "filenames": ["/t/x.rlib", file]}),
        );
        assert_eq!(library_of(&messages), Some(PathBuf::from(file)));
        assert_eq!(library_of("{}"), None);
    }
}
