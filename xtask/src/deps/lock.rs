//! `deps/lock.toml`: which wheels are fetched, and their hashes. A wheel's name says where it fits.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::host::Host;
use crate::layout::Layout;

/// A lock file: packages, each pinned to one version.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Every package of the file, in its order.
    #[serde(rename = "package")]
    pub packages: Vec<Locked>,
}

/// One release of one package, with its wheels for every platform.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// The package's name in the registry.
    pub name: String,
    /// Its exact version.
    pub version: String,
    wheels: Vec<Wheel>,
}

/// One file of a release.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wheel {
    /// File name, tags included.
    pub file: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 in lower-case hexadecimal digits.
    pub sha256: String,
}

impl Lock {
    /// Reads and checks a lock file.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not a valid lock file", path.display()))
    }

    /// `deps/lock.toml`.
    pub fn of_project(layout: &Layout) -> Result<Self> {
        Self::read(&layout.root().join("deps/lock.toml"))
    }

    fn parse(text: &str) -> Result<Self> {
        let lock: Self = toml::from_str(text)?;
        for wheel in lock.packages.iter().flat_map(|package| &package.wheels) {
            wheel.check()?;
        }
        Ok(lock)
    }

    /// The release of `name` that the lock holds, or its first if there are several.
    pub fn package(&self, name: &str) -> Result<&Locked> {
        let found = self.packages.iter().find(|package| package.name == name);
        found.with_context(|| format!("the lock file has no package {name}"))
    }

    /// One certain release of `name`.
    pub fn release(&self, name: &str, version: &str) -> Result<&Locked> {
        let found = self.packages.iter().find(|package| package.name == name && package.version == version);
        found.with_context(|| format!("the lock file has no package {name} {version}"))
    }
}

impl Locked {
    /// The wheel that fits `host` best.
    pub fn wheel_for(&self, host: &Host) -> Result<&Wheel> {
        let fitting = self.wheels.iter().filter_map(|wheel| Some((host.fit(&wheel.file)?, wheel)));
        match fitting.max_by_key(|(fit, _)| *fit) {
            Some((_, wheel)) => Ok(wheel),
            None => bail!("the lock file has no wheel of {} {} for {host}", self.name, self.version),
        }
    }
}

impl Wheel {
    fn check(&self) -> Result<()> {
        let hex =
            self.sha256.len() == 64 && self.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        ensure!(hex, "{}: sha256 must be 64 lower-case hexadecimal digits", self.file);
        ensure!(!self.file.contains(['/', '\\']), "{}: a wheel's name has no folders", self.file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed() -> Lock {
        Lock::parse(include_str!("../../../deps/lock.toml")).unwrap()
    }

    #[test]
    fn every_host_finds_its_wheels() {
        let linux = ["mlx-cpu", "mlx-cuda-12", "mlx-cuda-13"];
        for minor in 11..=14 {
            for host in [Host::linux("x86_64", minor), Host::linux("aarch64", minor)] {
                for package in committed().packages.iter().filter(|package| package.name != "mlx-metal") {
                    package.wheel_for(&host).unwrap();
                }
            }
            let mac = Host::macos((14, 0), minor);
            for package in committed().packages {
                let name = package.name.as_str();
                assert_eq!(package.wheel_for(&mac).is_ok(), !linux.contains(&name), "{name}");
            }
        }
    }

    #[test]
    fn a_newer_mac_gets_the_newer_wheel() {
        let lock = committed();
        let metal = lock.package("mlx-metal").unwrap();
        let file = |version| &metal.wheel_for(&Host::macos(version, 12)).unwrap().file;
        assert!(file((14, 5)).contains("macosx_14_0"));
        assert!(file((15, 2)).contains("macosx_15_0"));
        assert!(file((27, 0)).contains("macosx_26_0"));
        assert!(metal.wheel_for(&Host::macos((13, 6), 12)).is_err());
    }

    #[test]
    fn a_bad_hash_is_refused() {
        let text = r#"
            [[package]]
            name = "a"
            version = "1"
            wheels = [{ file = "a-1-py3-none-any.whl", size = 1, sha256 = "zz" }]
        "#;
        assert!(Lock::parse(text).unwrap_err().to_string().contains("hexadecimal"));
    }
}
