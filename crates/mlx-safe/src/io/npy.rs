//! NumPy's format for one array.

use std::path::Path;

use mlx_sys as sys;

use super::{c_path, header, long_enough, of_clean_bools, size};
use crate::error::{argument, check};
use crate::ops::op;
use crate::{Array, Device, Result, Stream};

/// Computes `array` and writes it as `.npy`, an ending that MLX appends if `path` lacks it. NumPy knows no bfloat16 and reads
/// it as two bytes without a meaning (`V2`).
///
/// # Errors
/// If the evaluation fails, or the file cannot be written.
pub fn save_npy(path: impl AsRef<Path>, array: &Array) -> Result<()> {
    let path = c_path("save_npy", path.as_ref())?;
    array.eval()?;
    check("save_npy", || {
        // SAFETY: the string and the array live for the call.
        unsafe { sys::mlx_save(path.as_ptr(), array.raw()) }
    })
}

/// The array of a `.npy` file, of version 1 or 2 and with the header that NumPy writes.
///
/// # Errors
/// If the file is not there, is too short, holds what MLX has no type for (big-endian complex numbers among it), or has
/// another header.
pub fn load_npy(path: impl AsRef<Path>) -> Result<Array> {
    const OP: &str = "load_npy";
    let path = path.as_ref();
    let name = c_path(OP, path)?;
    let (start, text) = read_header(OP, path)?;
    let Some((kind, shape)) = parse(&text) else {
        return argument(OP, format!("{}: cannot read the header {:?}", path.display(), text.trim_end()));
    };
    // MLX looks at three letters, and swaps the two parts of a complex number with their bytes.
    if kind.len() != 3 || kind == ">c8" {
        return argument(OP, format!("{}: no type for {kind:?}", path.display()));
    }
    let array = Stream::default_on(Device::CPU)?.scope(|| op!(OP, mlx_load(name.as_ptr())))?;
    if array.shape() != shape {
        return argument(OP, format!("{}: {shape:?} was read as {array}", path.display()));
    }
    long_enough(OP, path, start, [&array])?;
    of_clean_bools(array)
}

/// Where the data begins, and the header's text.
fn read_header(op: &'static str, path: &Path) -> Result<(u64, String)> {
    let version = |start: &[u8; 10]| match start {
        [b'\x93', b'N', b'U', b'M', b'P', b'Y', 1, _, low, high] => {
            Some(u64::from(u16::from_le_bytes([*low, *high])))
        }
        _ => None,
    };
    let long = |start: &[u8; 12]| match start {
        [b'\x93', b'N', b'U', b'M', b'P', b'Y', 2, _, a, b, c, d] => {
            Some(u64::from(u32::from_le_bytes([*a, *b, *c, *d])))
        }
        _ => None,
    };
    header(op, path, version).or_else(|error| header(op, path, long).map_err(|_| error))
}

/// Type and sizes, if the header is written as NumPy and MLX write it: MLX reads it by position.
fn parse(header: &str) -> Option<(&str, Vec<i32>)> {
    let (kind, rest) = header.strip_prefix("{'descr': '")?.split_once("', 'fortran_order': ")?;
    let rest = rest.strip_prefix("True").or_else(|| rest.strip_prefix("False"))?;
    let (tuple, end) = rest.strip_prefix(", 'shape': (")?.split_once(')')?;
    let sizes = tuple.trim_end().trim_end_matches(',');
    // (6) is a number to Python.
    if !matches!(end.trim_end(), ", }" | "}") || (!tuple.is_empty() && !tuple.contains(',')) {
        return None;
    }
    let sizes = sizes.split(", ").filter(|n| !n.is_empty()).map(size).collect::<Option<_>>()?;
    Some((kind, sizes))
}
