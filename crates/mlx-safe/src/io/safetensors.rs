//! Named arrays in the safetensors format.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr;

use mlx_sys as sys;

use super::{c_path, header, long_enough, of_clean_bools, size};
use crate::error::{argument, check};
use crate::{Array, Device, Result, Stream};

/// What a safetensors file holds.
#[derive(Clone, Debug, Default)]
pub struct Safetensors {
    /// The arrays by name.
    pub arrays: BTreeMap<String, Array>,
    /// Free text by name.
    pub metadata: BTreeMap<String, String>,
}

impl Safetensors {
    /// Computes the arrays and writes them; MLX appends `.safetensors` if `path` lacks it.
    ///
    /// # Errors
    /// If the evaluation fails, a name holds a NUL or is the format's own (`__metadata__`), a type is one that MLX does not
    /// write (float64), or the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        const OP: &str = "save_safetensors";
        let path = c_path(OP, path.as_ref())?;
        let (arrays, metadata) = (ArrayMap::new(), TextMap::new());
        for (name, array) in &self.arrays {
            if name == METADATA {
                return argument(OP, format!("{name} is no name for an array"));
            }
            let name = c_text(OP, name)?;
            check(OP, || {
                // SAFETY: the map, the name and the array live for the call; the map copies both.
                unsafe { sys::mlx_map_string_to_array_insert(arrays.0, name.as_ptr(), array.raw()) }
            })?;
        }
        for (name, text) in &self.metadata {
            let (name, text) = (c_text(OP, name)?, c_text(OP, text)?);
            check(OP, || {
                // SAFETY: the map and the strings live for the call; the map copies both.
                unsafe { sys::mlx_map_string_to_string_insert(metadata.0, name.as_ptr(), text.as_ptr()) }
            })?;
        }
        crate::eval(self.arrays.values())?;
        check(OP, || {
            // SAFETY: the string and both maps live for the call.
            unsafe { sys::mlx_save_safetensors(path.as_ptr(), arrays.0, metadata.0) }
        })
    }

    /// Reads the names, shapes and metadata of a file.
    ///
    /// # Errors
    /// If the file is not there, is too short, or its header cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        const OP: &str = "load_safetensors";
        let path = path.as_ref();
        let name = c_path(OP, path)?;
        let length = |start: &[u8; 8]| Some(u64::from_le_bytes(*start)).filter(|&n| n < LONGEST_HEADER);
        let (start, text) = header(OP, path, length)?;
        let (mut arrays, mut metadata) = (ArrayMap::new(), TextMap::new());
        Stream::default_on(Device::CPU)?.scope(|| {
            Stream::with_current(|stream| {
                check(OP, || {
                    // SAFETY: both maps are live and are filled; the string and the stream live for the call.
                    unsafe {
                        sys::mlx_load_safetensors(&mut arrays.0, &mut metadata.0, name.as_ptr(), stream)
                    }
                })
            })
        })?;
        if let Some(wrong) = wrong_sizes(&text) {
            return argument(OP, format!("{}: [{wrong}] is no shape", path.display()));
        }
        let (arrays, metadata) = (arrays.read()?, metadata.read()?);
        long_enough(OP, path, start, arrays.values())?;
        let clean = arrays.into_iter().map(|(name, array)| Ok((name, of_clean_bools(array)?)));
        Ok(Self { arrays: clean.collect::<Result<_>>()?, metadata })
    }
}

/// What the format allows, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;

/// The name under which the format keeps free text.
const METADATA: &str = "__metadata__";

/// The first shape of a header with a size that is no `i32`: MLX cuts numbers down to 32 bits, and fractions off.
fn wrong_sizes(header: &str) -> Option<&str> {
    let lists = header.split("\"shape\"").skip(1).filter_map(|rest| {
        let list = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('[')?;
        Some(list.split_once(']')?.0)
    });
    lists.filter(|list| !list.trim().is_empty()).find(|list| !list.split(',').all(|n| size(n).is_some()))
}

fn c_text(op: &'static str, text: &str) -> Result<CString> {
    CString::new(text).or_else(|_| argument(op, format!("{text:?} holds a NUL")))
}

/// Copies a string that a map lends.
fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: mlx-c's maps lend C strings that live until the map changes.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// What mlx-c's iterators return at the end.
const END: i32 = 2;

struct ArrayMap(sys::mlx_map_string_to_array);

impl ArrayMap {
    fn new() -> Self {
        crate::error::install_handler();
        // SAFETY: makes an empty map.
        Self(unsafe { sys::mlx_map_string_to_array_new() })
    }

    fn read(&self) -> Result<BTreeMap<String, Array>> {
        // SAFETY: the map is live and outlives the iterator.
        let iterator = unsafe { sys::mlx_map_string_to_array_iterator_new(self.0) };
        let mut entries = BTreeMap::new();
        let result = loop {
            let (mut name, mut ended) = (ptr::null(), false);
            let array = Array::from_op("load_safetensors", |out| {
                // SAFETY: the iterator is live, and the call fills the name and the empty array handle.
                let code = unsafe { sys::mlx_map_string_to_array_iterator_next(&mut name, out, iterator) };
                ended = code == END;
                if ended { 0 } else { code }
            });
            match array {
                Ok(_) if ended => break Ok(entries),
                Ok(array) => entries.insert(owned(name), array),
                Err(error) => break Err(error),
            };
        };
        // SAFETY: we own the iterator, and this is its last use.
        unsafe { sys::mlx_map_string_to_array_iterator_free(iterator) };
        result
    }
}

impl Drop for ArrayMap {
    fn drop(&mut self) {
        // SAFETY: we own the map, and this is its last use.
        unsafe { sys::mlx_map_string_to_array_free(self.0) };
    }
}

struct TextMap(sys::mlx_map_string_to_string);

impl TextMap {
    fn new() -> Self {
        crate::error::install_handler();
        // SAFETY: makes an empty map.
        Self(unsafe { sys::mlx_map_string_to_string_new() })
    }

    fn read(&self) -> Result<BTreeMap<String, String>> {
        // SAFETY: the map is live and outlives the iterator.
        let iterator = unsafe { sys::mlx_map_string_to_string_iterator_new(self.0) };
        let mut entries = BTreeMap::new();
        let result = loop {
            let (mut name, mut text, mut ended) = (ptr::null(), ptr::null(), false);
            let step = check("load_safetensors", || {
                // SAFETY: the iterator is live, and the call fills both strings.
                let code =
                    unsafe { sys::mlx_map_string_to_string_iterator_next(&mut name, &mut text, iterator) };
                ended = code == END;
                if ended { 0 } else { code }
            });
            match step {
                Ok(()) if ended => break Ok(entries),
                Ok(()) => entries.insert(owned(name), owned(text)),
                Err(error) => break Err(error),
            };
        };
        // SAFETY: we own the iterator, and this is its last use.
        unsafe { sys::mlx_map_string_to_string_iterator_free(iterator) };
        result
    }
}

impl Drop for TextMap {
    fn drop(&mut self) {
        // SAFETY: we own the map, and this is its last use.
        unsafe { sys::mlx_map_string_to_string_free(self.0) };
    }
}
