//! House rules that no other tool checks: `cargo xtask tidy`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::layout::Layout;

/// The most lines a source file may have.
const LINES: usize = 600;

/// A word that must not stand in some places, and why.
struct Rule {
    word: &'static str,
    /// Path prefixes where it may stand.
    allowed: &'static [&'static str],
    why: &'static str,
}

// The words are cut in two so that this file does not break its own rules.
const RULES: &[Rule] = &[
    Rule {
        word: concat!("unsafe", " {"),
        allowed: &[
            "crates/mlx-sys/",
            "crates/mlx-safe/",
            "crates/ep-plugin/",
            "crates/kernels-metal/src/gpu.rs",
        ],
        why: "unsafe code lives in mlx-sys, mlx-safe, ep-plugin and where kernels are launched",
    },
    Rule {
        word: concat!("ort_", "sys"),
        allowed: &["crates/ep-plugin/"],
        why: "ONNX Runtime's C ABI is known to ep-plugin only",
    },
    Rule {
        word: concat!("mlx_", "sys"),
        allowed: &["crates/mlx-sys/", "crates/mlx-safe/"],
        why: "mlx-c is known to mlx-safe only",
    },
    Rule { word: concat!("to", "do!("), allowed: &[], why: "nothing is left undone" },
    Rule { word: concat!("unimple", "mented!("), allowed: &[], why: "nothing is left undone" },
    Rule { word: concat!("TO", "DO"), allowed: &[], why: "what is left undone belongs in an issue" },
    Rule { word: concat!("FIX", "ME"), allowed: &[], why: "what is left undone belongs in an issue" },
    Rule { word: concat!("#[ig", "nore"), allowed: &[], why: "tests run or are deleted" },
];

/// Checks every tracked or new source file.
pub fn run(layout: &Layout) -> Result<()> {
    let mut problems = Vec::new();
    for path in sources(layout.root())? {
        let text = std::fs::read_to_string(layout.root().join(&path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        problems.extend(check(&path, &text));
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    if problems.is_empty() { Ok(()) } else { bail!("{} broken house rules", problems.len()) }
}

/// What is wrong with one file.
fn check(path: &Path, text: &str) -> Vec<String> {
    let shown = path.display();
    let mut problems = Vec::new();
    let lines = text.lines().count();
    if lines > LINES {
        problems.push(format!("{shown}: {lines} lines, more than {LINES}: split the idea"));
    }
    if path.extension().is_some_and(|e| e == "rs") {
        for rule in RULES.iter().filter(|r| !r.allowed.iter().any(|prefix| path.starts_with(prefix))) {
            for (number, _) in text.lines().enumerate().filter(|(_, line)| line.contains(rule.word)) {
                problems.push(format!("{shown}:{}: '{}': {}", number + 1, rule.word, rule.why));
            }
        }
    }
    problems
}

/// Rust and Python files that git tracks or would track.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--", "*.rs", "*.py"])
        .output()
        .context("cannot run git: `cargo xtask test` works in a git checkout")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let files = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(files.lines().map(PathBuf::from).filter(|path| root.join(path).is_file()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        for rule in RULES {
            let text = format!("// fine\n{}\n", rule.word);
            let found = check(Path::new("crates/onnx-graph/src/planted.rs"), &text);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(":2: ") && found[0].contains(rule.why), "{found:?}");
            for prefix in rule.allowed {
                assert!(check(&Path::new(prefix).join("src/fine.rs"), &text).is_empty());
            }
        }
        assert_eq!(check(Path::new("python/long.py"), &"\n".repeat(LINES + 1)).len(), 1);
        assert!(check(Path::new("python/fine.py"), &"\n".repeat(LINES)).is_empty());
    }
}
