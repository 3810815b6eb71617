//! Arrays in files: NumPy's `.npy` and safetensors. Reading is lazy, on the CPU: the file must stay as it is until the arrays
//! are evaluated.

mod npy;
mod safetensors;

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::argument;
use crate::{Array, Dtype, Error, Result};

pub use npy::{load_npy, save_npy};
pub use safetensors::Safetensors;

/// The first `N` bytes of an open file, and the header of as many bytes as `length` reads in them: what MLX reads too
/// freely is looked at before.
fn header<const N: usize>(
    op: &'static str,
    path: &Path,
    length: impl FnOnce(&[u8; N]) -> Option<u64>,
) -> Result<(u64, String)> {
    let failed = |why: String| Error::Argument { op, message: format!("{}: {why}", path.display()) };
    let mut file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut start = [0; N];
    file.read_exact(&mut start).map_err(|_| failed("no header".into()))?;
    let length = length(&start).ok_or_else(|| failed("not a file of this format".into()))?;
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 != length {
        return Err(failed("the header is cut short".into()));
    }
    let text = String::from_utf8(text).map_err(|_| failed("the header is not UTF-8".into()))?;
    Ok((N as u64 + length, text))
}

/// A size in a header.
fn size(text: &str) -> Option<i32> {
    text.trim().parse().ok().filter(|&n| n >= 0)
}

/// MLX takes any byte of a file for a bool.
fn of_clean_bools(array: Array) -> Result<Array> {
    if array.dtype() == Dtype::Bool { array.view(Dtype::Bool) } else { Ok(array) }
}

/// MLX hands out what memory held before where a file ends too early.
fn long_enough<'a>(
    op: &'static str,
    path: &Path,
    header: u64,
    arrays: impl IntoIterator<Item = &'a Array>,
) -> Result<()> {
    let needed = arrays.into_iter().fold(header, |sum, array| sum.saturating_add(array.nbytes() as u64));
    match path.metadata() {
        Ok(found) if found.len() >= needed => Ok(()),
        Ok(found) => argument(op, format!("{} has {} bytes of {needed}", path.display(), found.len())),
        Err(error) => argument(op, format!("{}: {error}", path.display())),
    }
}

fn c_path(op: &'static str, path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_encoded_bytes())
        .or_else(|_| argument(op, format!("{} holds a NUL", path.display())))
}
