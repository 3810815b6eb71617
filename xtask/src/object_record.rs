//! What an object file was made of: a digest of the compiler's flags and of every file that the compiler read, kept beside it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// The record of one object.
pub struct Record<'a> {
    object: PathBuf,
    flags: &'a [String],
}

impl<'a> Record<'a> {
    pub fn of(object: PathBuf, flags: &'a [String]) -> Self {
        Self { object, flags }
    }

    /// Where the compiler is to list what it read, as a rule of `make`.
    pub fn dependencies(&self) -> PathBuf {
        self.object.with_extension("d")
    }

    /// Whether compiling again would make the same object.
    pub fn is_fresh(&self) -> bool {
        self.object.exists()
            && fs::read_to_string(self.path()).is_ok_and(|kept| self.digest().is_ok_and(|now| now == kept))
    }

    /// Keeps what the object was just made of.
    pub fn keep(&self) -> Result<()> {
        fs::write(self.path(), self.digest()?)
            .with_context(|| format!("cannot write {}", self.path().display()))
    }

    fn path(&self) -> PathBuf {
        self.object.with_extension("sha256")
    }

    fn digest(&self) -> Result<String> {
        let list = self.dependencies();
        let rule = fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
        let mut digest = Sha256::new();
        for flag in self.flags {
            digest.update(flag);
            digest.update([0]);
        }
        for file in prerequisites(&rule) {
            digest.update(fs::read(Path::new(&file)).with_context(|| format!("cannot read {file}"))?);
            digest.update([0]);
        }
        Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The files behind the target of a rule of `make`, which escapes spaces and line ends with backslashes.
fn prerequisites(rule: &str) -> Vec<String> {
    let files = rule.split_once(": ").map_or("", |(_, files)| files);
    let joined = files.replace("\\\n", " ").replace("\\ ", "\0");
    joined.split_whitespace().map(|file| file.replace('\0', " ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let rule = "out/a.o: /src/a.cpp \\\n  /my\\ headers/b.h /c.h\n";
        assert_eq!(prerequisites(rule), ["/src/a.cpp", "/my headers/b.h", "/c.h"]);
        assert!(prerequisites("").is_empty());
    }

    #[test]
    fn an_object_is_fresh_until_something_that_it_is_made_of_changes() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let (object, header) = (folder.path().join("a.o"), folder.path().join("a.h"));
        let flags = ["-O2".to_owned()];
        let record = Record::of(object.clone(), &flags);
        assert!(!record.is_fresh());
        fs::write(&object, "object")?;
        fs::write(&header, "one")?;
        fs::write(record.dependencies(), format!("{}: {}\n", object.display(), header.display()))?;
        assert!(!record.is_fresh());
        record.keep()?;
        assert!(record.is_fresh());
        assert!(!Record::of(object, &["-O3".to_owned()]).is_fresh());
        fs::write(&header, "two")?;
        assert!(!record.is_fresh());
        Ok(())
    }
}
