//! Where things lie in the checkout: the one place that spells the folders under `.deps`.

use std::path::{Path, PathBuf};

/// The checkout and the folders that `cargo xtask deps` fills.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The checkout this binary was built from.
    pub fn of_this_checkout() -> Self {
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self::at(xtask.parent().unwrap_or(xtask))
    }

    /// The checkout at `root`.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// The repository's top folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `.deps`.
    pub fn deps(&self) -> PathBuf {
        self.root.join(".deps")
    }

    /// Wheels as downloaded.
    pub fn downloads(&self) -> PathBuf {
        self.deps().join("downloads")
    }

    /// Half-made parts; whatever lies here was interrupted.
    pub fn staging(&self) -> PathBuf {
        self.deps().join("tmp")
    }

    /// All flavours of MLX, and the `active` link.
    pub fn mlx(&self) -> PathBuf {
        self.deps().join("mlx")
    }

    /// Where the CUDA flavours look for NVIDIA's libraries.
    pub fn nvidia(&self) -> PathBuf {
        self.mlx().join("nvidia")
    }

    /// ONNX Runtime's library of one version.
    pub fn ort_library(&self, version: &str) -> PathBuf {
        self.deps().join("ort").join(version).join(format!("libonnxruntime{}", std::env::consts::DLL_SUFFIX))
    }

    /// What `cargo xtask check-macos` compiles with and into.
    pub fn check_macos(&self) -> PathBuf {
        self.deps().join("check-macos")
    }

    /// The end-to-end tests' virtual environment.
    pub fn venv(&self) -> PathBuf {
        self.deps().join("venv")
    }

    /// The virtual environment's interpreter.
    pub fn venv_python(&self) -> PathBuf {
        self.venv().join("bin/python")
    }

    /// An unpacked Python package that stays out of the virtual environment; put it first on `PYTHONPATH`.
    pub fn side_package(&self, name: &str, version: &str) -> PathBuf {
        self.deps().join("python").join(format!("{name}-{version}"))
    }
}
