//! The plugin's errors and what becomes of them: a status with the right `OrtErrorCode`.

use std::ffi::{CStr, CString};
use std::fmt;
use std::ptr::NonNull;

use ep_core::LowerError;
use ort_sys::{OrtErrorCode, OrtStatus, OrtStatusPtr};

use crate::api::{Statuses, ort};

/// What can go wrong between ONNX Runtime and us.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of ours failed in ONNX Runtime.
    #[error("{0}")]
    Ort(Status),
    /// The runtime lacks what a plugin needs.
    #[error("MLXExecutionProvider needs ONNX Runtime 1.24 or newer, this is {found}: upgrade onnxruntime")]
    RuntimeTooOld {
        /// The version that the runtime reports.
        found: String,
    },
    /// A provider option is unknown or has a bad value.
    #[error(transparent)]
    Option(#[from] ep_core::OptionError),
    /// Compiling or running failed.
    #[error(transparent)]
    Core(#[from] ep_core::Error),
    /// ONNX Runtime's graph has no place in our model of one.
    #[error(transparent)]
    Graph(#[from] onnx_graph::Error),
    /// The file for the option `trace` cannot be written.
    #[error("cannot write the trace file {path}: {source}")]
    Trace {
        /// The file.
        path: std::path::PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A name or an option is not UTF-8.
    #[error("not UTF-8: '{0}'")]
    Text(String),
    /// A tensor has a form that no cluster takes.
    #[error("{0}")]
    Tensor(String),
    /// A node of the domain `ai.ortmlx` does not fit its operator.
    #[error("{0}")]
    Operator(String),
    /// A promise between ONNX Runtime and us, or inside the plugin, is broken.
    #[error("this is a bug: {0}")]
    Bug(String),
}

impl Error {
    fn code(&self) -> OrtErrorCode {
        match self {
            Self::RuntimeTooOld { .. } => OrtErrorCode::ORT_NOT_IMPLEMENTED,
            Self::Option(_) | Self::Text(_) | Self::Tensor(_) | Self::Operator(_) | Self::Trace { .. } => {
                OrtErrorCode::ORT_INVALID_ARGUMENT
            }
            Self::Graph(_) | Self::Core(ep_core::Error::Graph(_)) => OrtErrorCode::ORT_INVALID_GRAPH,
            // A node that cannot be built from its inputs' shapes and values: the caller's to put right.
            Self::Core(ep_core::Error::Node {
                source: LowerError::Invalid(_) | LowerError::Mlx(_), ..
            })
            | Self::Core(
                ep_core::Error::Input { .. }
                | ep_core::Error::Device { .. }
                | ep_core::Error::Precision { .. },
            ) => OrtErrorCode::ORT_INVALID_ARGUMENT,
            // Not `ORT_EP_FAIL`: Python's onnxruntime takes that for a reason to go on without us, for good.
            Self::Ort(_) | Self::Core(_) | Self::Bug(_) => OrtErrorCode::ORT_RUNTIME_EXCEPTION,
        }
    }

    /// The status to hand to ONNX Runtime, which then owns it. A status that came from there goes back as it was.
    pub fn into_status(self, statuses: Statuses) -> OrtStatusPtr {
        let code = self.code();
        let text = match self {
            Self::Ort(status) => return status.give(),
            named @ (Self::Option(_) | Self::Operator(_) | Self::RuntimeTooOld { .. }) => named.to_string(),
            other => format!("MLXExecutionProvider: {other}"),
        };
        statuses.make(code, &c_text(text))
    }
}

/// `text` as a C string, without the zero bytes that one cannot hold.
pub fn c_text(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).unwrap_or_else(|error| {
        let mut bytes = error.into_vec();
        bytes.retain(|&byte| byte != 0);
        CString::new(bytes).unwrap_or_default()
    })
}

/// A failed status that we own.
pub struct Status {
    raw: NonNull<OrtStatus>,
    statuses: Statuses,
}

// SAFETY: a status is plain memory, read only, bound to no thread.
unsafe impl Send for Status {}
// SAFETY: as above.
unsafe impl Sync for Status {}

impl Status {
    /// Takes a status over; `None` for null, which means success.
    ///
    /// # Safety
    /// `raw` must be null or a status that the caller owns.
    pub unsafe fn take(statuses: Statuses, raw: OrtStatusPtr) -> Option<Self> {
        Some(Self { raw: NonNull::new(raw.0)?, statuses })
    }

    /// Gives it up to whoever takes the pointer.
    fn give(self) -> OrtStatusPtr {
        let raw = self.raw.as_ptr();
        std::mem::forget(self);
        OrtStatusPtr(raw)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the text belongs to the status and lives as long as it.
        let text = unsafe { CStr::from_ptr(ort!(self.statuses, GetErrorMessage(self.raw.as_ptr()))) };
        f.write_str(&text.to_string_lossy())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        // SAFETY: we own the status, and this is its last use.
        unsafe { ort!(self.statuses, ReleaseStatus(self.raw.as_ptr())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_bytes_do_not_lose_the_message() {
        assert_eq!(c_text("a\0b").as_bytes(), b"ab");
        assert_eq!(c_text("plain").as_bytes(), b"plain");
    }

    #[test]
    fn an_old_runtime_is_named() {
        let error = Error::RuntimeTooOld { found: "1.22.1".into() };
        assert!(error.to_string().contains("1.24 or newer, this is 1.22.1"));
        assert_eq!(error.code(), OrtErrorCode::ORT_NOT_IMPLEMENTED);
    }
}
