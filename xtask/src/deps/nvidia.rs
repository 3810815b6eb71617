//! NVIDIA's own libraries for the CUDA flavours. Gigabytes that a GPU host mostly has already: they are not fetched,
//! but found. libmlx looks for them in `../../nvidia` as seen from itself, that is in `.deps/mlx/nvidia`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use super::mlx::Flavour;
use super::state::symlink;
use crate::layout::Layout;

const FIND: &str = "import importlib.util as util
spec = util.find_spec('nvidia')
print(*list(spec.submodule_search_locations if spec else [])[:1])";

/// Links the folder of NVIDIA's wheels in `python`, if there is one. Else says where the libraries may come from.
pub fn link(layout: &Layout, flavour: Flavour, python: &Path) -> Result<()> {
    if !flavour.is_cuda() || layout.nvidia().exists() {
        return Ok(());
    }
    match find(python) {
        Some(folder) => symlink(&folder, &layout.nvidia()),
        None => {
            eprintln!("note: {}", advice(flavour));
            Ok(())
        }
    }
}

fn find(python: &Path) -> Option<PathBuf> {
    let output = Command::new(python).args(["-c", FIND]).stderr(Stdio::null()).output().ok()?;
    let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    folder.is_dir().then_some(folder)
}

fn advice(flavour: Flavour) -> String {
    format!(
        "{} also needs NVIDIA's libraries (cuBLAS, cuDNN, cuFFT, NCCL, NVRTC), and this Python has none. If the \
         system's loader does not find them either, `python3 -m pip install {}` brings them: install it and run \
         this again",
        flavour.package(),
        flavour.package()
    )
}
