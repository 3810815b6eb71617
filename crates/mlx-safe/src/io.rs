//! Arrays in files: NumPy's `.npy` and safetensors. Reading is lazy, on the CPU: the file must stay as it is until the arrays
//! are evaluated.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::ptr;

use mlx_sys as sys;

use crate::error::{argument, check};
use crate::ops::op;
use crate::{Array, Device, Result, Stream};

/// Computes `array` and writes it as `.npy`, an ending that MLX appends if `path` lacks it.
///
/// # Errors
/// If the evaluation fails, the type has no name in NumPy (bfloat16), or the file cannot be written.
pub fn save_npy(path: impl AsRef<Path>, array: &Array) -> Result<()> {
    let path = c_path("save_npy", path.as_ref())?;
    array.eval()?;
    check("save_npy", || {
        // SAFETY: the string and the array live for the call.
        unsafe { sys::mlx_save(path.as_ptr(), array.raw()) }
    })
}

/// The array of a `.npy` file.
///
/// # Errors
/// If the file is not there, is too short, or its header cannot be read.
pub fn load_npy(path: impl AsRef<Path>) -> Result<Array> {
    const OP: &str = "load_npy";
    let name = c_path(OP, path.as_ref())?;
    let array = Stream::default_on(Device::CPU)?.scope(|| op!(OP, mlx_load(name.as_ptr())))?;
    let header = match first_bytes(OP, path.as_ref())? {
        [.., 1, _, low, high, _, _] => 10 + u64::from(u16::from_le_bytes([low, high])),
        [.., a, b, c, d] => 12 + u64::from(u32::from_le_bytes([a, b, c, d])),
    };
    long_enough(OP, path.as_ref(), header, [&array])?;
    Ok(array)
}

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
    /// If the evaluation fails, a name holds a NUL, a type has no name in the format (complex64), or the file cannot be
    /// written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        const OP: &str = "save_safetensors";
        let path = c_path(OP, path.as_ref())?;
        let (arrays, metadata) = (ArrayMap::new(), TextMap::new());
        for (name, array) in &self.arrays {
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
        let name = c_path(OP, path.as_ref())?;
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
        let (arrays, metadata) = (arrays.read()?, metadata.read()?);
        let [a, b, c, d, e, f, g, h, ..] = first_bytes(OP, path.as_ref())?;
        let header = 8u64.saturating_add(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        long_enough(OP, path.as_ref(), header, arrays.values())?;
        Ok(Self { arrays, metadata })
    }
}

fn first_bytes(op: &'static str, path: &Path) -> Result<[u8; 12]> {
    let mut bytes = [0; 12];
    match File::open(path).and_then(|mut file| file.read_exact(&mut bytes)) {
        Ok(()) => Ok(bytes),
        Err(error) => argument(op, format!("{}: {error}", path.display())),
    }
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

fn c_text(op: &'static str, text: &str) -> Result<CString> {
    CString::new(text).or_else(|_| argument(op, format!("{text:?} holds a NUL")))
}

fn c_path(op: &'static str, path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_encoded_bytes())
        .or_else(|_| argument(op, format!("{} holds a NUL", path.display())))
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
