//! Tells the plugin where its libmlx lies: beside it once installed, in `.deps` while developing.

use std::{env, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let apple = env::var("CARGO_CFG_TARGET_VENDOR").as_deref() == Ok("apple");
    let beside = if apple { "@loader_path" } else { "$ORIGIN" };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-rpath,{beside}");
    if let Some(workspace) = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2) {
        let developing = workspace.join(".deps/mlx/active/lib");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-rpath,{}", developing.display());
    }
    // ONNX Runtime unloads a plugin on request, sessions or not, while MLX keeps threads in it: stay loaded.
    if !apple {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
