//! What concerns Metal alone.

use std::ffi::CString;
use std::marker::PhantomData;
use std::path::Path;

use mlx_sys as sys;

use crate::Result;
use crate::error::{argument, check};

/// Whether the loaded MLX library has Metal.
///
/// # Errors
/// If MLX cannot say.
pub fn is_available() -> Result<bool> {
    let mut available = false;
    check("metal", || {
        // SAFETY: writes one bool.
        unsafe { sys::mlx_metal_is_available(&mut available) }
    })?;
    Ok(available)
}

/// A recording of the GPU's work, for Xcode; ends when dropped.
#[must_use = "the capture ends when this is dropped"]
pub struct Capture(PhantomData<*const ()>);

impl Capture {
    /// Starts recording to `path`, a new `.gputrace`. The process needs `MTL_CAPTURE_ENABLED=1` in its environment.
    ///
    /// # Errors
    /// Without Metal, or if it refuses.
    pub fn start(path: impl AsRef<Path>) -> Result<Self> {
        if !is_available()? {
            return argument("capture", "MLX has no Metal here");
        }
        let Ok(path) = CString::new(path.as_ref().as_os_str().as_encoded_bytes()) else {
            return argument("capture", "the path holds a NUL");
        };
        check("capture", || {
            // SAFETY: the string lives for the call.
            unsafe { sys::mlx_metal_start_capture(path.as_ptr()) }
        })?;
        Ok(Self(PhantomData))
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// If Metal refuses.
    pub fn stop(self) -> Result<()> {
        std::mem::forget(self);
        end()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // A failure has nowhere to go; `stop` reports it.
        let _ = end();
    }
}

fn end() -> Result<()> {
    check("capture", || {
        // SAFETY: takes nothing.
        unsafe { sys::mlx_metal_stop_capture() }
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn without_metal_a_capture_is_an_error() {
        if !super::is_available().unwrap() {
            assert!(super::Capture::start("trace.gputrace").is_err());
        }
    }
}
