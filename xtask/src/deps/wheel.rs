//! Wheels on disk: their hash, and unpacking them (a wheel is a zip archive).

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use zip::ZipArchive;

use super::lock::Wheel;
use super::state::create_dir;

/// Fails unless the file at `path` has the hash that `wheel` is locked to.
pub fn verify(path: &Path, wheel: &Wheel) -> Result<()> {
    let found = sha256(path)?;
    ensure!(
        found == wheel.sha256,
        "{} has SHA-256 {found}, but the lock file says {}",
        path.display(),
        wheel.sha256
    );
    Ok(())
}

/// SHA-256 of a file in lower-case hexadecimal digits.
pub fn sha256(path: &Path) -> Result<String> {
    let hash = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let mut hasher = Sha256::new();
        let mut block = vec![0; 1 << 20];
        loop {
            match file.read(&mut block)? {
                0 => return Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
                n => hasher.update(&block[..n]),
            }
        }
    };
    hash().with_context(|| format!("cannot read {}", path.display()))
}

/// Unpacks the files of a wheel into `into`: `place` says where each goes (relative), or `None` to leave it out.
///
/// Returns how many files were written.
pub fn unpack(wheel: &Path, into: &Path, place: impl Fn(&Path) -> Option<PathBuf>) -> Result<usize> {
    let context = || format!("cannot unpack {}", wheel.display());
    let mut archive = ZipArchive::new(File::open(wheel).with_context(context)?).with_context(context)?;
    let mut written = 0;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).with_context(context)?;
        let Some(path) = entry.enclosed_name().filter(|_| entry.is_file()) else { continue };
        let Some(path) = place(&path) else { continue };
        let path = into.join(path);
        if let Some(parent) = path.parent() {
            create_dir(parent)?;
        }
        let mut file = File::create(&path).with_context(context)?;
        io::copy(&mut entry, &mut file).with_context(context)?;
        if entry.unix_mode().is_some_and(|mode| mode & 0o111 != 0) {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).with_context(context)?;
        }
        written += 1;
    }
    Ok(written)
}

/// Unpacks the one file of a wheel whose path ends in `suffix` to the file `to`.
pub fn unpack_file(wheel: &Path, suffix: &str, to: &Path) -> Result<()> {
    let into = to.parent().context("a file to unpack to lies in a folder")?;
    let written = unpack(wheel, into, |path| path.ends_with(suffix).then(|| to.to_path_buf()))?;
    ensure!(written == 1, "{} holds {written} files named {suffix}, not one", wheel.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::write::SimpleFileOptions;

    use super::*;

    fn sample(dir: &Path) -> PathBuf {
        let path = dir.join("a-1-py3-none-any.whl");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        for (name, mode) in [("a/lib/x.so", 0o644), ("a-1.data/scripts/tool", 0o755), ("../evil", 0o644)] {
            zip.start_file(name, SimpleFileOptions::default().unix_permissions(mode)).unwrap();
            zip.write_all(name.as_bytes()).unwrap();
        }
        zip.finish().unwrap();
        path
    }

    #[test]
    fn unpacks_inside_the_folder_only() {
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("out/deep");
        assert_eq!(unpack(&sample(dir.path()), &into, |path| Some(path.to_path_buf())).unwrap(), 2);
        assert_eq!(fs::read_to_string(into.join("a/lib/x.so")).unwrap(), "a/lib/x.so");
        assert!(!dir.path().join("out/evil").exists());
        let mode = fs::metadata(into.join("a-1.data/scripts/tool")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn a_single_file_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = sample(dir.path());
        unpack_file(&wheel, "lib/x.so", &dir.path().join("b/y.so")).unwrap();
        assert!(dir.path().join("b/y.so").exists());
        assert!(unpack_file(&wheel, "z.so", &dir.path().join("b/z.so")).is_err());
    }

    #[test]
    fn a_changed_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.whl");
        fs::write(&path, "abc").unwrap();
        // From FIPS 180-2, appendix B.1.
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned();
        let wheel = Wheel { file: "f.whl".into(), size: 3, sha256 };
        verify(&path, &wheel).unwrap();
        fs::write(&path, "abd").unwrap();
        assert!(verify(&path, &wheel).unwrap_err().to_string().contains("lock file says ba78"));
    }
}
