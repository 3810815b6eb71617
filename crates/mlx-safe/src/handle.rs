//! RAII for mlx-c's small handles that never leave this crate: strings and vectors of arrays.

use std::ffi::{CStr, c_int};

use mlx_sys as sys;

use crate::error::{check, install_handler};
use crate::{Array, Dtype, Result};

/// Runs a call that fills a string and copies it out.
pub(crate) fn read_string(
    op: &'static str,
    call: impl FnOnce(*mut sys::mlx_string) -> c_int,
) -> Result<String> {
    // SAFETY: makes an empty handle.
    let mut string = unsafe { sys::mlx_string_new() };
    let result = check(op, || call(&mut string)).map(|()| {
        // SAFETY: the call filled `string`; its data lives until it is freed below.
        let data = unsafe { sys::mlx_string_data(string) };
        if data.is_null() {
            return String::new();
        }
        // SAFETY: mlx-c's string data is a C string.
        unsafe { CStr::from_ptr(data) }.to_string_lossy().into_owned()
    });
    // SAFETY: we own the handle, and this is its last use.
    unsafe { sys::mlx_string_free(string) };
    result
}

/// An owned `std::vector<array>`.
pub(crate) struct VectorArray(sys::mlx_vector_array);

impl VectorArray {
    pub(crate) fn new() -> Self {
        install_handler();
        // SAFETY: makes an empty handle.
        Self(unsafe { sys::mlx_vector_array_new() })
    }

    pub(crate) fn from_arrays<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<Self> {
        let raw: Vec<sys::mlx_array> = arrays.into_iter().map(Array::raw).collect();
        let vector = Self::new();
        check("vector", || {
            // SAFETY: both handles are live, and mlx-c copies the `raw.len()` references.
            unsafe { sys::mlx_vector_array_append_data(vector.0, raw.as_ptr(), raw.len()) }
        })?;
        Ok(vector)
    }

    /// Runs a call that fills a vector.
    pub(crate) fn from_op(
        op: &'static str,
        call: impl FnOnce(*mut sys::mlx_vector_array) -> c_int,
    ) -> Result<Vec<Array>> {
        let mut vector = Self::new();
        check(op, || call(&mut vector.0))?;
        vector.to_arrays()
    }

    /// Wraps a handle that mlx-c owns and lends for one call; the caller must not let the result drop.
    pub(crate) fn borrowed(raw: sys::mlx_vector_array) -> std::mem::ManuallyDrop<Self> {
        std::mem::ManuallyDrop::new(Self(raw))
    }

    /// Copies the references into a vector of someone else's.
    ///
    /// # Safety
    /// `out` is a live handle.
    pub(crate) unsafe fn copy_to(&self, out: *mut sys::mlx_vector_array) -> Result<()> {
        check("vector", || {
            // SAFETY: both handles are live.
            unsafe { sys::mlx_vector_array_set(out, self.0) }
        })
    }

    pub(crate) fn raw(&self) -> sys::mlx_vector_array {
        self.0
    }

    pub(crate) fn to_arrays(&self) -> Result<Vec<Array>> {
        // SAFETY: the handle is live.
        let size = unsafe { sys::mlx_vector_array_size(self.0) };
        (0..size)
            .map(|i| {
                Array::from_op("vector_get", |out| {
                    // SAFETY: `out` is an empty array handle and `i` is below the vector's size.
                    unsafe { sys::mlx_vector_array_get(out, self.0, i) }
                })
            })
            .collect()
    }
}

impl Drop for VectorArray {
    fn drop(&mut self) {
        // SAFETY: we own the handle, and this is its last use.
        unsafe { sys::mlx_vector_array_free(self.0) };
    }
}

pub(crate) fn optional_int(value: Option<i32>) -> sys::mlx_optional_int {
    sys::mlx_optional_int { value: value.unwrap_or_default(), has_value: value.is_some() }
}

pub(crate) fn optional_float(value: Option<f32>) -> sys::mlx_optional_float {
    sys::mlx_optional_float { value: value.unwrap_or_default(), has_value: value.is_some() }
}

pub(crate) fn optional_dtype(value: Option<Dtype>) -> sys::mlx_optional_dtype {
    sys::mlx_optional_dtype { value: value.unwrap_or(Dtype::Float32).raw(), has_value: value.is_some() }
}
