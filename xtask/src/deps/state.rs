//! `.deps/state.json`: which parts are in place, and what each was made of. A part is made in a staging folder, renamed
//! into place and only then recorded, so an interrupted run leaves nothing that a later one would trust.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::layout::Layout;

/// What a part was made of. A part whose recipe differs from the recorded one is made anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// The version people know the part by.
    pub version: String,
    /// Names and hashes of everything that went in.
    pub inputs: Vec<String>,
    /// Raised when the code that makes the part changes its result.
    pub revision: u32,
}

/// The record of parts in place.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    staging: PathBuf,
    parts: BTreeMap<String, Recipe>,
}

impl State {
    /// Reads the record; a missing or unreadable one counts as empty, since all it costs is doing the work again.
    pub fn load(layout: &Layout) -> Self {
        let path = layout.deps().join("state.json");
        let parts =
            fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Self { path, staging: layout.staging(), parts }
    }

    /// The recorded recipe of `part`.
    pub fn recipe(&self, part: &str) -> Option<&Recipe> {
        self.parts.get(part)
    }

    /// Whether `part` lies at `target` as `recipe` would make it.
    pub fn is_current(&self, part: &str, recipe: &Recipe, target: &Path) -> bool {
        self.recipe(part) == Some(recipe) && target.exists()
    }

    /// Makes `part` through `build`, which fills the empty folder it is given, and puts that folder at `target`.
    pub fn install(
        &mut self,
        part: &str,
        recipe: Recipe,
        target: &Path,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        self.forget(part)?;
        let staged = self.staging.join(part);
        remove(&staged)?;
        create_dir(&staged)?;
        build(&staged)?;
        replace(&staged, target)?;
        self.record(part, recipe)
    }

    /// Empties the record, so that every part is made anew.
    pub fn clear(&mut self) -> Result<()> {
        self.parts.clear();
        self.save()
    }

    /// Drops `part` from the record, before anything of it is touched.
    pub fn forget(&mut self, part: &str) -> Result<()> {
        match self.parts.remove(part) {
            Some(_) => self.save(),
            None => Ok(()),
        }
    }

    /// Notes that `part` is in place.
    pub fn record(&mut self, part: &str, recipe: Recipe) -> Result<()> {
        self.parts.insert(part.to_owned(), recipe);
        self.save()
    }

    fn save(&self) -> Result<()> {
        let new = self.path.with_extension("json.new");
        let text = serde_json::to_string_pretty(&self.parts)?;
        fs::write(&new, text + "\n").with_context(|| format!("cannot write {}", new.display()))?;
        fs::rename(&new, &self.path).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Creates a folder and its parents.
pub fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}

/// Removes a file, link or folder, if there is one.
pub fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error),
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

/// Moves `from` to `to` in place of what was there.
pub fn replace(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        create_dir(parent)?;
    }
    remove(to)?;
    fs::rename(from, to).with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}

/// Makes `link` point at `target` (relative to the link's folder), atomically.
pub fn symlink(target: &Path, link: &Path) -> Result<()> {
    if fs::read_link(link).is_ok_and(|old| old == target) {
        return Ok(());
    }
    let new = link.with_extension("new");
    remove(&new)?;
    let made = std::os::unix::fs::symlink(target, &new).and_then(|()| fs::rename(&new, link));
    made.with_context(|| format!("cannot link {}", link.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(revision: u32) -> Recipe {
        Recipe { version: "1".into(), inputs: vec!["a".into()], revision }
    }

    #[test]
    fn a_part_is_current_until_its_recipe_changes_or_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::at(dir.path());
        create_dir(&layout.deps()).unwrap();
        let target = layout.deps().join("thing");
        let mut state = State::load(&layout);
        state.install("thing", recipe(1), &target, |to| Ok(fs::write(to.join("f"), "x")?)).unwrap();

        let state = State::load(&layout);
        assert!(state.is_current("thing", &recipe(1), &target));
        assert!(!state.is_current("thing", &recipe(2), &target));
        remove(&target).unwrap();
        assert!(!state.is_current("thing", &recipe(1), &target));
    }

    #[test]
    fn a_failed_build_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::at(dir.path());
        create_dir(&layout.deps()).unwrap();
        let target = layout.deps().join("thing");
        let mut state = State::load(&layout);
        state.install("thing", recipe(1), &target, |_| Ok(())).unwrap();
        state.install("thing", recipe(1), &target, |_| anyhow::bail!("interrupted")).unwrap_err();

        let mut state = State::load(&layout);
        assert!(!state.is_current("thing", &recipe(1), &target));
        fs::write(layout.staging().join("thing/left-over"), "x").unwrap();
        state.install("thing", recipe(1), &target, |_| Ok(())).unwrap();
        assert!(!target.join("left-over").exists());
    }
}
