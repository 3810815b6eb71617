//! Compiles mlx-c and the bridge, generates the bindings and links libmlx, all from what `cargo xtask deps` unpacked.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// MLX's version: its C++ ABI changes between patch releases, so the library's name carries it.
const LIBRARY: &str = "mlx-ortmlx-0.32.2";

fn main() {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let deps = manifest.join("../../.deps");
    let (mlx, mlx_c) = (deps.join("mlx/active"), deps.join("mlx-c"));
    for needed in [mlx.join("lib"), mlx.join("include"), mlx_c.join("mlx/c")] {
        println!("cargo::rerun-if-changed={}", needed.display());
        if !needed.exists() {
            fail(&format!("{} is missing: run `cargo xtask deps` first", needed.display()));
        }
    }
    find_libclang(&deps.join("libclang"));
    compile(&manifest, &mlx, &mlx_c);
    bind(&manifest, &mlx_c, &out);
    link(&mlx.join("lib"), &out);
}

/// Cargo's configuration names it only to builds that start inside this workspace.
fn find_libclang(unpacked: &Path) {
    if env::var_os("LIBCLANG_PATH").is_none() && unpacked.exists() {
        // SAFETY: this process has one thread yet.
        unsafe { env::set_var("LIBCLANG_PATH", unpacked) };
    }
}

/// mlx-c and the bridge, as one static library.
fn compile(manifest: &Path, mlx: &Path, mlx_c: &Path) {
    let mut sources = sorted(&mlx_c.join("mlx/c"), "cpp");
    // Ours takes its place.
    sources.retain(|path| !path.ends_with("error.cpp"));
    sources.extend(sorted(&manifest.join("csrc"), "cpp"));
    println!("cargo::rerun-if-changed={}", manifest.join("csrc").display());
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .warnings(false)
        // Debug builds run these functions too, and -O0 objects of MLX's headers are huge.
        .opt_level(2)
        .debug(false)
        .include(mlx_c)
        .include(mlx.join("include"))
        .include(manifest.join("csrc"))
        .flag("-include")
        .flag(manifest.join("csrc/format_shim.h"))
        .files(sources)
        .compile("mlxc");
}

fn bind(manifest: &Path, mlx_c: &Path, out: &Path) {
    let mut builder = bindgen::Builder::default()
        .header(manifest.join("csrc/bridge.h").to_string_lossy())
        .clang_arg(format!("-I{}", mlx_c.display()))
        .clang_arg(format!("-I{}", manifest.join("csrc").display()))
        .allowlist_item("(_?mlx|MLX|ortmlx)_.*")
        .derive_default(false)
        .generate_comments(false)
        .layout_tests(false);
    if let Some(include) = compiler_include() {
        // PyPI's libclang comes without its resource folder: float.h and stdbool.h are the C compiler's.
        builder = builder.clang_arg("-isystem").clang_arg(include);
    }
    match builder.generate() {
        Ok(bindings) => {
            if let Err(error) = bindings.write_to_file(out.join("bindings.rs")) {
                fail(&format!("cannot write the bindings: {error}"));
            }
        }
        Err(error) => fail(&format!("bindgen cannot read mlx-c's headers: {error}")),
    }
}

/// The folder of the C compiler's own headers; `None` where the compiler does not say (Apple's SDK needs none).
fn compiler_include() -> Option<String> {
    let compiler = cc::Build::new().try_get_compiler().ok()?;
    let output = Command::new(compiler.path()).arg("-print-file-name=include").output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && Path::new(&path).is_absolute()).then_some(path)
}

/// Links libmlx so that tests, examples and `cargo run` find it everywhere: cargo puts search folders inside OUT_DIR on
/// the loader's path, and binaries that are run without cargo carry rpaths of their own.
fn link(lib: &Path, out: &Path) {
    let linked = out.join("mlx-lib");
    let _ = std::fs::remove_file(&linked);
    #[cfg(unix)]
    if let Err(error) = std::os::unix::fs::symlink(lib, &linked) {
        fail(&format!("cannot link {} to {}: {error}", linked.display(), lib.display()));
    }
    println!("cargo::rustc-link-search=native={}", linked.display());
    println!("cargo::rustc-link-lib=dylib={LIBRARY}");
    println!("cargo::metadata=lib={}", lib.display());
}

fn sorted(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        fail(&format!("cannot read {}", folder.display()));
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| fail(&format!("{name} is not set: run this through cargo")))
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
