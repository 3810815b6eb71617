//! The machine the wheels must fit: operating system, architecture, Python version.

use std::fmt;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What decides which wheel fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    system: System,
    arch: &'static str,
    python_minor: u32,
}

/// The systems that MLX has wheels for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Linux with glibc.
    Linux,
    /// macOS of this version.
    MacOs(u32, u32),
}

impl Host {
    /// This machine, with Python 3.`python_minor`.
    pub fn detect(python_minor: u32) -> Result<Self> {
        let (system, arch) = match (std::env::consts::OS, std::env::consts::ARCH) {
            ("linux", arch @ ("x86_64" | "aarch64")) => (System::Linux, arch),
            ("macos", "aarch64") => {
                let (major, minor) = macos_version()?;
                (System::MacOs(major, minor), "arm64")
            }
            (os, arch) => bail!(
                "{os} on {arch} is not supported: MLX has wheels for macOS 14 or newer on Apple Silicon \
                 and for Linux on x86_64 and aarch64"
            ),
        };
        Ok(Self { system, arch, python_minor })
    }

    /// A Mac with Apple Silicon and Python 3.`python_minor`.
    pub fn macos((major, minor): (u32, u32), python_minor: u32) -> Self {
        Self { system: System::MacOs(major, minor), arch: "arm64", python_minor }
    }

    /// The operating system.
    pub fn system(&self) -> System {
        self.system
    }

    /// How well the wheel named `file` fits: `None` if not at all, else larger is better.
    pub fn fit(&self, file: &str) -> Option<(u32, u32)> {
        let mut tags = file.strip_suffix(".whl")?.rsplit('-');
        let (platforms, abi, pythons) = (tags.next()?, tags.next()?, tags.next()?);
        if !pythons.split('.').any(|python| self.runs(python, abi)) {
            return None;
        }
        platforms.split('.').filter_map(|platform| self.loads(platform)).max()
    }

    fn runs(&self, python: &str, abi: &str) -> bool {
        let minor = python.strip_prefix("cp3").and_then(|minor| minor.parse::<u32>().ok());
        match (minor, abi) {
            (Some(minor), "abi3") => minor <= self.python_minor,
            (Some(minor), _) => minor == self.python_minor && abi == python,
            (None, _) => python == "py3",
        }
    }

    fn loads(&self, platform: &str) -> Option<(u32, u32)> {
        if platform == "any" {
            return Some((0, 0));
        }
        match self.system {
            System::Linux => {
                (platform.starts_with("manylinux") && platform.ends_with(self.arch)).then_some((0, 0))
            }
            System::MacOs(major, minor) => {
                let mut words = platform.strip_prefix("macosx_")?.splitn(3, '_');
                let least = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let arch = words.next()?;
                (least <= (major, minor) && (arch == self.arch || arch == "universal2")).then_some(least)
            }
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.system {
            System::Linux => write!(f, "Linux {}", self.arch)?,
            System::MacOs(major, minor) => write!(f, "macOS {major}.{minor} {}", self.arch)?,
        }
        write!(f, ", Python 3.{}", self.python_minor)
    }
}

fn macos_version() -> Result<(u32, u32)> {
    let output = Command::new("sw_vers").arg("-productVersion").output().context("cannot run sw_vers")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.trim().split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        (Some(Ok(major)), None) => Ok((major, 0)),
        _ => bail!("sw_vers printed no version: {text:?}"),
    }
}

#[cfg(test)]
impl Host {
    pub fn linux(arch: &'static str, python_minor: u32) -> Self {
        Self { system: System::Linux, arch, python_minor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_decide() {
        let host = Host::linux("x86_64", 12);
        let fits = |file: &str| host.fit(file).is_some();
        assert!(fits("a-1-py3-none-any.whl"));
        assert!(fits("a-1-py2.py3-none-manylinux2010_x86_64.whl"));
        assert!(fits("a-1-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"));
        assert!(fits("a-1-cp310-abi3-manylinux_2_28_x86_64.whl"));
        assert!(!fits("a-1-cp313-abi3-manylinux_2_28_x86_64.whl"));
        assert!(!fits("a-1-cp312-cp312t-manylinux_2_28_x86_64.whl"));
        assert!(!fits("a-1-cp311-cp311-manylinux_2_28_x86_64.whl"));
        assert!(!fits("a-1-py3-none-manylinux_2_28_aarch64.whl"));
        assert!(!fits("a-1-py3-none-musllinux_1_1_x86_64.whl"));
        assert!(!fits("a-1-py3-none-macosx_14_0_arm64.whl"));
        assert!(!fits("a-1.tar.gz"));
    }
}
