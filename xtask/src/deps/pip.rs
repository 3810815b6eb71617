//! Downloads, all through pip, so that the user's mirrors, proxies and certificates are respected. pip checks the hash,
//! and so do we: every time before a file is used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::host::Host;
use super::lock::{Locked, Wheel};
use super::progress::{Bar, Progress};
use super::state::{create_dir, remove, replace};
use super::wheel::verify;
use crate::layout::Layout;

/// More at once only makes registries slow us down.
const AT_ONCE: usize = 4;

/// Fetches locked wheels into `.deps/downloads`.
pub struct Fetcher<'a> {
    layout: &'a Layout,
    host: Host,
    /// pip's name of the platform, when it is not this machine's.
    platform: Option<&'static str>,
    progress: Progress,
}

impl<'a> Fetcher<'a> {
    /// A fetcher that runs the pip of `.deps/venv`.
    pub fn new(layout: &'a Layout, host: Host, progress: Progress) -> Self {
        Self { layout, host, platform: None, progress }
    }

    /// Fetches for another machine from now on, whose platform pip knows by this name.
    pub fn aim_at(&mut self, host: Host, platform: &'static str) {
        self.host = host;
        self.platform = Some(platform);
    }

    /// Where progress is shown.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The wheel of `package` for this host: from the cache if it is there and its hash is right, else downloaded.
    pub fn fetch(&self, package: &Locked) -> Result<PathBuf> {
        let wheel = package.wheel_for(&self.host)?;
        let path = self.layout.downloads().join(&wheel.file);
        if path.exists() && verify(&path, wheel).is_ok() {
            return Ok(path);
        }
        let bar = self.progress.download(&format!("{} {}", package.name, package.version), wheel.size);
        let fetched = self.download(package, wheel, &path, &bar);
        bar.finish(fetched.is_ok());
        fetched.with_context(|| format!("cannot fetch {} {}", package.name, package.version))?;
        Ok(path)
    }

    /// Fetches several packages at once; the first error ends it.
    pub fn fetch_all(&self, packages: &[&Locked]) -> Result<()> {
        let queue = Mutex::new(packages.iter());
        let next = || queue.lock().ok().and_then(|mut queue| queue.next().copied());
        let worker = || -> Result<()> {
            while let Some(package) = next() {
                self.fetch(package)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..AT_ONCE.min(packages.len())).map(|_| scope.spawn(worker)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().map_err(|_| anyhow!("a download panicked"))?)
        })
    }

    fn download(&self, package: &Locked, wheel: &Wheel, path: &Path, bar: &Bar) -> Result<()> {
        let staging = self.layout.staging().join(format!("fetch-{}", wheel.file));
        let growing = staging.join("tmp");
        remove(&staging)?;
        create_dir(&growing)?;
        let requirements = staging.join("requirements.txt");
        fs::write(
            &requirements,
            format!("{}=={} --hash=sha256:{}\n", package.name, package.version, wheel.sha256),
        )?;
        let mut pip = pip(self.layout, "download");
        pip.arg("--dest").arg(&staging).arg("--requirement").arg(&requirements).env("TMPDIR", &growing);
        if let Some(platform) = self.platform {
            pip.args(["--platform", platform]);
        }
        watch(&mut pip, || bar.position(largest_file(&growing).min(wheel.size)))
            .map_err(|error| explain(error, wheel))?;
        let fetched = staging.join(&wheel.file);
        verify(&fetched, wheel)?;
        replace(&fetched, path)?;
        remove(&staging)
    }
}

/// `pip <command>` of the virtual environment with the options that every use shares.
pub fn pip(layout: &Layout, command: &str) -> Command {
    let mut pip = Command::new(layout.venv_python());
    // -I: a PYTHONPATH of the user's must not count as installed packages. pip's own settings still hold.
    pip.args(["-I", "-m", "pip", "--disable-pip-version-check", "--no-input", command, "--quiet"]);
    pip.args(["--no-deps", "--require-hashes", "--only-binary=:all:", "--progress-bar=off"]);
    pip
}

/// Runs pip to its end and calls `tick` ten times a second meanwhile. The error is what pip printed.
///
/// pip reports bytes in a readable form only since 24.1, so progress is taken from the file that grows.
pub fn watch(pip: &mut Command, mut tick: impl FnMut()) -> Result<()> {
    let mut child = pip
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run pip")?;
    let stderr = child.stderr.take().context("pip has no standard error")?;
    let reader = std::thread::spawn(move || std::io::read_to_string(stderr));
    let status = loop {
        match child.try_wait().context("cannot wait for pip")? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(100)),
        }
        tick();
    };
    let said = reader.join().map_err(|_| anyhow!("reading pip's errors panicked"))?.unwrap_or_default();
    if !status.success() {
        bail!("{}", last_error(&said));
    }
    Ok(())
}

/// The line of pip's that tells why, without its prefix.
fn last_error(said: &str) -> String {
    let error = said.lines().rfind(|line| line.starts_with("ERROR: "));
    let line = error.or_else(|| said.lines().rfind(|line| !line.trim().is_empty())).unwrap_or("nothing");
    format!("pip says: {}", line.trim_start_matches("ERROR: ").trim())
}

/// Adds the likely cause when pip found no file that fits.
fn explain(error: anyhow::Error, wheel: &Wheel) -> anyhow::Error {
    if !format!("{error:#}").contains("No matching distribution") {
        return error;
    }
    let glibc = wheel
        .file
        .rsplit("manylinux_")
        .next()
        .and_then(|tag| tag.split('_').nth(1))
        .filter(|_| wheel.file.contains("manylinux_"));
    match glibc {
        Some(minor) => error.context(format!(
            "no network, a mirror without this file, or a system too old for it ({} needs glibc 2.{minor} or newer)",
            wheel.file
        )),
        None => error.context("no network, or a mirror without this file"),
    }
}

fn largest_file(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().filter_map(|entry| {
        let data = entry.metadata().ok()?;
        Some(if data.is_dir() { largest_file(&entry.path()) } else { data.len() })
    });
    sizes.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_taken_from_what_pip_prints() {
        let said = "WARNING: Retrying\nERROR: Could not find a version\nERROR: No matching distribution for a==1\n\n";
        assert_eq!(last_error(said), "pip says: No matching distribution for a==1");
        assert_eq!(last_error("Traceback\nOSError: disk full\n"), "pip says: OSError: disk full");
    }

    #[test]
    fn an_old_system_is_named_as_a_cause() {
        let wheel = |file: &str| Wheel { file: file.into(), size: 0, sha256: String::new() };
        let text = |file| format!("{:#}", explain(anyhow!("No matching distribution"), &wheel(file)));
        assert!(text("mlx_cpu-0.32.2-py3-none-manylinux_2_35_x86_64.whl").contains("glibc 2.35"));
        assert!(!text("a-1-py3-none-any.whl").contains("glibc"));
    }
}
