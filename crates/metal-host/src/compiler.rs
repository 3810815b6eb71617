//! Builds programs with the system's C++ compiler. Each is kept in the target folder under a hash of all that made it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use sha2::{Digest as _, Sha256};

use crate::signature::Text;
use crate::{Checks, Error, Result, address_space};

const HEADERS: [(&str, &str); 5] = [
    ("types.h", include_str!("../include/types.h")),
    ("math.h", include_str!("../include/math.h")),
    ("threads.h", include_str!("../include/threads.h")),
    ("simd.h", include_str!("../include/simd.h")),
    ("grid.h", include_str!("../include/grid.h")),
];

/// Stands between the runtime and the kernel. Everything of the kernel's is local to the file: variables of functions that
/// the linker could merge would not go into the section for threadgroup memory.
const BEFORE: &str = "#define device\n#define constant\n#define thread\n#define kernel\n\
                      using namespace metal;\nnamespace {\n";
const AFTER: &str = "}  // namespace\n";

const FLAGS: [&str; 7] =
    ["-std=c++20", "-O1", "-g1", "-w", "-pthread", "-ffp-contract=off", "-fno-strict-aliasing"];

fn sanitizers(checks: Checks) -> &'static [&'static str] {
    match checks {
        Checks::Memory => &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        Checks::Races => &["-fsanitize=thread"],
    }
}

/// The executable for `text`.
pub(crate) fn build(name: &str, text: &Text, checks: Checks) -> Result<PathBuf> {
    let compiler = env::var("CXX").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "c++".into());
    let mut hash = Sha256::new();
    let headers = HEADERS.iter().flat_map(|(name, text)| [*name, *text]);
    for part in headers.chain([compiler.as_str(), BEFORE, AFTER, &text.kernel, &text.main]) {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    FLAGS.iter().chain(sanitizers(checks)).for_each(|flag| hash.update(flag));
    let key: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let folder = folder()?;
    let executable = folder.join(format!("{name}-{key}"));
    if executable.exists() {
        return Ok(executable);
    }
    let expanded = preprocess(&compiler, &text.kernel)?;
    let unit = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(&folder);
    let unit = unit.map_err(Error::io("a temporary folder"))?;
    for (name, text) in HEADERS {
        fs::write(unit.path().join(name), text).map_err(Error::io(name))?;
    }
    let file = unit.path().join("kernel.cpp");
    let kernel = address_space::rewrite(&expanded);
    let all = format!("#include \"grid.h\"\n{BEFORE}{kernel}{AFTER}{}", text.main);
    fs::write(&file, all).map_err(Error::io("kernel.cpp"))?;
    let built = unit.path().join("kernel");
    let mut command = command(&compiler);
    command.args(FLAGS).args(sanitizers(checks)).arg(&file).arg("-o").arg(&built);
    let output = command.output().map_err(Error::io(compiler))?;
    if !output.status.success() {
        return Err(Error::Compile(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    // Another process may have built the same: one replaces the other.
    fs::rename(&built, &executable).map_err(Error::io("a kernel's program"))?;
    Ok(executable)
}

/// `$CXX` may name a launcher before the compiler: `ccache g++`.
fn command(compiler: &str) -> Command {
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("c++"));
    command.args(words);
    command
}

/// The kernel's text with its own macros expanded: they may hide address spaces.
fn preprocess(compiler: &str, text: &str) -> Result<String> {
    let without_includes: String = text
        .lines()
        .map(|line| match line.trim_start().starts_with("#include <metal_") {
            true => "\n".to_owned(),
            false => format!("{line}\n"),
        })
        .collect();
    let mut command = command(compiler);
    command.args(["-x", "c++", "-std=c++20", "-E", "-undef", "-nostdinc", "-D__METAL_VERSION__=310", "-"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(Error::io(compiler))?;
    let mut stdin = child.stdin.take();
    let writer =
        std::thread::spawn(move || stdin.as_mut().map(|to| to.write_all(without_includes.as_bytes())));
    let output = child.wait_with_output().map_err(Error::io(compiler))?;
    if !output.status.success() {
        return Err(Error::Compile(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    if let Ok(Some(Err(error))) = writer.join() {
        return Err(Error::io("the preprocessor")(error));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `metal-host` in the target folder that the running test lies in.
fn folder() -> Result<PathBuf> {
    let test = env::current_exe().map_err(Error::io("the test's own path"))?;
    let profile = test.ancestors().nth(2).unwrap_or(Path::new("."));
    let folder = profile.join("metal-host");
    fs::create_dir_all(&folder).map_err(Error::io("the programs' folder"))?;
    Ok(folder)
}
