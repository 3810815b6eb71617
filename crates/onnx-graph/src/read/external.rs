//! Tensor contents in a file beside the model.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Component, Path, PathBuf},
};

use crate::{Error, proto::StringStringEntryProto};

/// The `size` bytes that `entries` (`TensorProto.external_data`) point at, in a file below `folder`.
///
/// # Errors
/// [`Error::Parse`] without a folder; [`Error::Tensor`] if the path leads out of the folder, an entry is malformed, the
/// length is another than `size` or the file is too short; [`Error::Io`] if it cannot be read.
pub fn load(
    entries: &[StringStringEntryProto],
    size: usize,
    folder: Option<&Path>,
) -> Result<Vec<u8>, Error> {
    let entry = |key| entries.iter().find(|e| e.key == key).map(|e| e.value.as_str());
    let number = |key| match entry(key) {
        None => Ok(None),
        Some(text) => match text.trim().parse::<u64>() {
            Ok(n) => Ok(Some(n)),
            Err(_) => Err(Error::Tensor(format!("external data has the {key} '{text}'"))),
        },
    };
    let location =
        entry("location").ok_or_else(|| Error::Tensor("external data has no location".to_owned()))?;
    let offset = number("offset")?.unwrap_or(0);
    if let Some(length) = number("length")?.filter(|&n| n != size as u64) {
        return Err(Error::Tensor(format!("it takes {size} bytes, its external data has {length}")));
    }
    let folder = folder
        .ok_or_else(|| Error::Parse(format!("external data in '{location}', but no folder to look in")))?;
    let path = folder.join(inside(location)?);

    let io = |source| Error::Io { path: path.clone(), source };
    let mut file = File::open(&path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    let end = offset.checked_add(size as u64);
    // Checked before anything is allocated: sizes in a broken model can be absurd.
    if !metadata.is_file() || end.is_none_or(|end| end > metadata.len()) {
        return Err(Error::Tensor(format!(
            "external data: {size} bytes from byte {offset} of '{location}', which has {}",
            metadata.len()
        )));
    }
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    let mut bytes = vec![0; size];
    file.read_exact(&mut bytes).map_err(io)?;
    Ok(bytes)
}

/// `location` without its detours.
fn inside(location: &str) -> Result<PathBuf, Error> {
    let mut path = PathBuf::new();
    for component in Path::new(location).components() {
        let stays = match component {
            Component::Normal(part) => {
                path.push(part);
                true
            }
            Component::CurDir => true,
            Component::ParentDir => path.pop(),
            Component::RootDir | Component::Prefix(_) => false,
        };
        if !stays {
            return Err(Error::Tensor(format!("external data outside of the model's folder: '{location}'")));
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(entries: &[(&str, &str)]) -> Vec<StringStringEntryProto> {
        entries
            .iter()
            .map(|(k, v)| StringStringEntryProto { key: k.to_string(), value: v.to_string() })
            .collect()
    }

    fn error(list: &[(&str, &str)], size: usize, folder: Option<&Path>) -> String {
        load(&entries(list), size, folder).unwrap_err().to_string()
    }

    #[test]
    fn reads_the_part_that_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/w.bin"), [0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        let read = |list: &[(&str, &str)], size| load(&entries(list), size, Some(folder.path())).unwrap();
        assert_eq!(read(&[("location", "sub/w.bin"), ("offset", "2"), ("length", "3")], 3), [2, 3, 4]);
        assert_eq!(read(&[("location", "./sub/../sub/w.bin")], 2), [0, 1]);
        assert_eq!(read(&[("location", "sub/w.bin"), ("offset", "8")], 0), []);
    }

    #[test]
    fn says_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("w.bin"), [0; 8]).unwrap();
        let folder = Some(folder.path());
        for outside in ["/etc/hostname", "../w.bin", "sub/../../w.bin", ".."] {
            assert!(error(&[("location", outside)], 1, folder).contains("outside of the model's folder"));
        }
        let w = ("location", "w.bin");
        assert!(error(&[w], 9, folder).contains("which has 8"));
        assert!(error(&[w], usize::MAX, folder).contains("which has 8"));
        assert!(error(&[w, ("offset", "18446744073709551615")], 8, folder).contains("which has 8"));
        assert!(error(&[w, ("length", "4")], 8, folder).contains("takes 8 bytes"));
        assert!(error(&[w, ("offset", "-1")], 8, folder).contains("offset '-1'"));
        assert!(error(&[], 8, folder).contains("no location"));
        assert!(error(&[w], 8, None).contains("no folder"));
        assert!(error(&[("location", ".")], 0, folder).contains("'.'"));
        let missing = load(&entries(&[("location", "none")]), 1, folder);
        assert!(matches!(missing, Err(Error::Io { path, .. }) if path.ends_with("none")));
    }
}
