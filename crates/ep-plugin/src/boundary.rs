//! The guards that every entry point passes through: no panic and no error crosses into C++ except as a status.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use ort_sys::OrtStatusPtr;

use crate::api::Statuses;
use crate::error::Error;

/// Guards an entry that returns a status.
pub fn status(
    statuses: Statuses,
    entry: &'static str,
    body: impl FnOnce() -> Result<(), Error>,
) -> OrtStatusPtr {
    match guarded(entry, body) {
        Ok(()) => OrtStatusPtr(null_mut()),
        Err(error) => error.into_status(statuses),
    }
}

/// Guards an entry that returns a plain value, a pointer or a flag; `fallback` is what a panic turns into.
pub fn value<T>(entry: &'static str, fallback: T, body: impl FnOnce() -> T) -> T {
    match guarded(entry, || Ok(body())) {
        Ok(value) => value,
        Err(error) => {
            tracing::error!("{error}");
            fallback
        }
    }
}

/// Guards an entry that returns nothing.
pub fn void(entry: &'static str, body: impl FnOnce()) {
    value(entry, (), body);
}

fn guarded<T>(entry: &'static str, body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    // Nothing of what a panic may leave half done is used again: the call fails as a whole.
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|payload| Err(Error::Bug(format!("panic in {entry}: {}", message(payload.as_ref())))))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let literal = payload.downcast_ref::<&str>().copied();
    literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ort_sys::{OrtApi, OrtErrorCode, OrtStatus};
    use std::ffi::{CStr, CString, c_char};
    use std::mem::MaybeUninit;

    /// A status as this test's runtime makes it: the code and the text.
    type Made = (OrtErrorCode, CString);

    unsafe extern "system" fn create_status(code: OrtErrorCode, text: *const c_char) -> OrtStatusPtr {
        // SAFETY: callers pass a C string.
        let text = unsafe { CStr::from_ptr(text) }.to_owned();
        OrtStatusPtr(Box::into_raw(Box::new((code, text))).cast())
    }

    /// What [`status`] returns to a runtime that has no more than `CreateStatus`.
    fn returned(body: impl FnOnce() -> Result<(), Error>) -> Option<Made> {
        let mut table = MaybeUninit::<OrtApi>::zeroed();
        // SAFETY: the member lies inside the table, and no other is read.
        unsafe { (&raw mut (*table.as_mut_ptr()).CreateStatus).write(create_status) };
        let raw: *mut OrtStatus = status(Statuses::over(table.as_ptr()), "Compile", body).0;
        // SAFETY: made by `create_status`, and taken once.
        (!raw.is_null()).then(|| unsafe { *Box::from_raw(raw.cast::<Made>()) })
    }

    #[test]
    fn success_is_null() {
        assert!(returned(|| Ok(())).is_none());
    }

    #[test]
    fn an_error_becomes_a_status() {
        let (code, text) = returned(|| Err(Error::Tensor("input 'x' is missing".into()))).unwrap();
        assert_eq!(code, OrtErrorCode::ORT_INVALID_ARGUMENT);
        assert_eq!(text.to_str().unwrap(), "MLXExecutionProvider: input 'x' is missing");
    }

    #[test]
    fn a_panic_becomes_a_status_with_its_message() {
        let end = |body: fn() -> Result<(), Error>| {
            let (code, text) = returned(body).unwrap();
            assert_eq!(code, OrtErrorCode::ORT_RUNTIME_EXCEPTION);
            text.into_string().unwrap().rsplit_once("panic in ").unwrap().1.to_owned()
        };
        assert_eq!(end(|| panic!("no {}", "luck")), "Compile: no luck");
        assert_eq!(end(|| panic!("plain")), "Compile: plain");
        assert_eq!(end(|| std::panic::panic_any(7)), "Compile: no message");
    }

    #[test]
    fn values_pass_and_panics_fall_back() {
        assert_eq!(value("GetVendorId", 0, || 7), 7);
        assert!(value("GetName", null_mut::<u8>(), || panic!("down")).is_null());
        assert!(!value("IsStreamAware", false, || panic!("down")));
        void("ReleaseEp", || panic!("down"));
    }
}
