//! The tools that must be there already, and what to say when one is not.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Python versions that every locked wheel exists for (3.minor).
pub const PYTHON_MINORS: std::ops::RangeInclusive<u32> = 11..=14;

/// A C++20 compiler must take this.
const CXX_PROBE: &str = "#include <concepts>\n#include <span>\n\
    template <std::integral T> T twice(T x) { return x + x; }\n\
    int main() { int a[1] = {0}; return twice(std::span<int>(a)[0]); }\n";

/// A tool that is missing or unfit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// No Python of a usable version; what was found instead.
    Python(Vec<String>),
    /// `python -m venv` does not work; the last line it printed.
    Venv(String),
    /// No C++ compiler under this name.
    Cxx(String),
    /// The compiler of this name does not compile C++20; its first error.
    Cxx20(String, String),
    /// No `cargo` to be run.
    Cargo,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (PYTHON_MINORS.start(), PYTHON_MINORS.end());
        match self {
            Self::Python(found) => {
                let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
                write!(
                    f,
                    "Python 3.{low} to 3.{high} is needed and was not found (found: {found}). Install it with `{}`, \
                     or name one in the environment variable PYTHON",
                    install(
                        "apt install python3 python3-venv",
                        "dnf install python3",
                        "brew install python@3.13"
                    )
                )
            }
            Self::Venv(said) => write!(
                f,
                "Python cannot create a virtual environment with pip ({said}). Install the missing modules with `{}`",
                install("apt install python3-venv", "dnf install python3-pip", "brew reinstall python@3.13")
            ),
            Self::Cxx(name) => write!(
                f,
                "no C++ compiler: `{name}` cannot be run. Install one with `{}`, or name one in the environment \
                 variable CXX",
                install("apt install g++", "dnf install gcc-c++", "xcode-select --install")
            ),
            Self::Cxx20(name, error) => write!(
                f,
                "the C++ compiler `{name}` does not compile C++20 ({error}). GCC 11, Clang 14 or Xcode 15 will do: \
                 install one with `{}`, or name another in the environment variable CXX",
                install("apt install g++", "dnf install gcc-c++", "xcode-select --install")
            ),
            Self::Cargo => write!(f, "`cargo` cannot be run: install Rust through rustup"),
        }
    }
}

impl std::error::Error for Missing {}

/// The command for this platform; Linux distributions differ, so both families are named there.
fn install(debian: &str, fedora: &str, macos: &str) -> String {
    if cfg!(target_os = "macos") { macos.to_owned() } else { format!("sudo {debian}` or `sudo {fedora}") }
}

/// A Python interpreter that will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Python {
    /// The interpreter itself, with no wrapper or virtual environment between.
    pub path: PathBuf,
    /// Its version, such as `3.11.7`.
    pub version: String,
    /// The middle number of the version.
    pub minor: u32,
}

impl Python {
    /// The first usable one of `$PYTHON`, `python3`, `python3.14` ... `python3.11`, `python`.
    pub fn find() -> Result<Self> {
        let named = std::env::var("PYTHON").ok().filter(|name| !name.is_empty());
        let candidates: Vec<String> = match named {
            Some(name) => vec![name],
            None => {
                let versions = PYTHON_MINORS.rev().map(|minor| format!("python3.{minor}"));
                ["python3".to_owned()].into_iter().chain(versions).chain(["python".to_owned()]).collect()
            }
        };
        let mut unfit = Vec::new();
        for name in candidates {
            match Self::ask(&name) {
                Some(python) if PYTHON_MINORS.contains(&python.minor) => return Ok(python),
                Some(python) => unfit.push(format!("{name} {}", python.version)),
                None => {}
            }
        }
        Err(Missing::Python(unfit).into())
    }

    fn ask(name: &str) -> Option<Self> {
        let script = "import sys; print(sys.executable); print('%d.%d.%d' % sys.version_info[:3])";
        let output = Command::new(name).args(["-c", script]).stderr(Stdio::null()).output().ok()?;
        Self::parse(&String::from_utf8(output.stdout).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let (path, version) = text.trim().split_once('\n')?;
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
        let (major, minor) = (numbers.next()??, numbers.next()??);
        // A Python 2 counts as version 3.0: found, and too old.
        let minor = if major == 3 { minor } else { 0 };
        Some(Self { path: path.into(), version: version.to_owned(), minor })
    }
}

/// Finds the C++ compiler (`$CXX`, else `c++`) and has it compile a little C++20. Returns its name.
pub fn cxx() -> Result<String> {
    let name = std::env::var("CXX").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "c++".to_owned());
    check_cxx(&name)?;
    Ok(name)
}

fn check_cxx(name: &str) -> Result<()> {
    // $CXX may carry arguments or a launcher: `ccache g++`.
    let mut words = name.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("c++"));
    command.args(words).args(["-std=c++20", "-fsyntax-only", "-x", "c++", "-"]);
    let started = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = started else { bail!(Missing::Cxx(name.to_owned())) };
    if let Some(mut stdin) = child.stdin.take() {
        // A compiler that refuses its arguments closes the pipe at once; its exit status tells.
        let _ = stdin.write_all(CXX_PROBE.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("cannot run {name}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let first = errors.lines().find(|line| line.contains("error")).or(errors.lines().next());
    bail!(Missing::Cxx20(name.to_owned(), first.unwrap_or("no message").trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_package_to_install() {
        let cases = [
            (Missing::Python(vec![]), "found: none", "python"),
            (Missing::Python(vec!["python3 3.9.2".into()]), "found: python3 3.9.2", "python"),
            (Missing::Venv("No module named ensurepip".into()), "No module named ensurepip", "python"),
            (
                Missing::Cxx("c++".into()),
                "`c++` cannot be run",
                if cfg!(target_os = "macos") { "xcode" } else { "g++" },
            ),
            (
                Missing::Cxx20("g++-8".into(), "no <span>".into()),
                "`g++-8` does not compile C++20 (no <span>)",
                "CXX",
            ),
        ];
        for (missing, says, names) in cases {
            let message = missing.to_string();
            assert!(message.contains(says), "{message}");
            assert!(message.contains(names), "{message}");
            assert!(!message.contains('\n') && !message.ends_with('.'), "{message}");
        }
    }

    #[test]
    fn python_versions_are_read() {
        let minor = |text| Python::parse(text).map(|python| python.minor);
        assert_eq!(minor("/usr/bin/python3\n3.13.1\n"), Some(13));
        assert_eq!(minor("/usr/bin/python\n2.7.18\n"), Some(0));
        assert_eq!(minor("nonsense"), None);
    }

    #[test]
    fn a_compiler_that_cannot_be_run_or_does_not_compile_is_named() {
        let error = |name| check_cxx(name).unwrap_err().downcast::<Missing>().unwrap();
        assert_eq!(error("/no/such/compiler"), Missing::Cxx("/no/such/compiler".into()));
        assert!(matches!(error("false"), Missing::Cxx20(name, _) if name == "false"));
    }
}
