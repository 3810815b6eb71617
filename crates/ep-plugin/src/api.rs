//! Access to ONNX Runtime's function tables, whose length depends on the runtime found: they are reached through
//! raw pointers, and only members that [`abi::OLDEST`] has are called.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use ort_sys::{OrtApi, OrtApiBase, OrtErrorCode, OrtStatusPtr};

use crate::abi::{self, OrtEpApi};
use crate::error::{Error, Status};

/// Calls a member of ONNX Runtime's main table.
macro_rules! ort {
    ($api:expr, $function:ident($($argument:expr),* $(,)?)) => {
        ((*$api.table()).$function)($($argument),*)
    };
}
pub(crate) use ort;

/// What every runtime since 1.0 can do: make and read statuses.
#[derive(Clone, Copy)]
pub struct Statuses(*const OrtApi);

// SAFETY: the table is static and never written.
unsafe impl Send for Statuses {}
// SAFETY: as above.
unsafe impl Sync for Statuses {}

impl Statuses {
    /// # Safety
    /// `base` must be what ONNX Runtime hands to `CreateEpFactories`.
    pub unsafe fn new(base: *const OrtApiBase) -> Self {
        // SAFETY: the base table is there for the life of the runtime.
        Self(unsafe { ((*base).GetApi)(1) })
    }

    /// A new status; null if `message` cannot be passed on, which no `CStr` is.
    pub fn make(self, code: OrtErrorCode, message: &CStr) -> OrtStatusPtr {
        // SAFETY: `CreateStatus` copies the text; it is the first member of the table in every version.
        unsafe { ort!(self, CreateStatus(code, message.as_ptr())) }
    }

    /// One that calls through `table`, of which only the part for statuses need be there.
    #[cfg(test)]
    pub(crate) fn over(table: *const OrtApi) -> Self {
        Self(table)
    }

    pub(crate) fn table(self) -> *const OrtApi {
        self.0
    }
}

/// The function tables of a runtime that is new enough.
#[derive(Clone, Copy)]
pub struct Api {
    table: *const OrtApi,
    ep: *const OrtEpApi,
    version: u32,
    minor: u32,
}

// SAFETY: both tables are static and never written.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

impl Api {
    /// Agrees on a version with the runtime behind `base`.
    ///
    /// # Errors
    /// [`Error::RuntimeTooOld`] for anything before 1.24.
    ///
    /// # Safety
    /// `base` must be what ONNX Runtime hands to `CreateEpFactories`.
    pub unsafe fn connect(base: *const OrtApiBase) -> Result<Self, Error> {
        // SAFETY: the version string is static.
        let found = unsafe { CStr::from_ptr(((*base).GetVersionString)()) }.to_string_lossy();
        let minor = minor_version(&found).filter(|&minor| minor >= abi::OLDEST);
        let Some(minor) = minor else {
            return Err(Error::RuntimeTooOld { found: found.into_owned() });
        };
        let version = minor.min(abi::NEWEST);
        // SAFETY: the runtime has this version, since it is no newer than the runtime itself.
        let table = unsafe { ((*base).GetApi)(version) };
        if table.is_null() {
            return Err(Error::Bug(format!("ONNX Runtime {found} has no API version {version}")));
        }
        // SAFETY: `GetEpApi` is there since version 22; its table is static.
        let ep = unsafe { ((*table).GetEpApi)() };
        Ok(Self { table, ep: ep.cast(), version, minor })
    }

    /// The version to report as supported.
    pub fn version(self) -> u32 {
        self.version
    }

    /// The runtime's own minor version, which may be newer.
    pub fn minor(self) -> u32 {
        self.minor
    }

    /// The part that makes statuses.
    pub fn statuses(self) -> Statuses {
        Statuses(self.table)
    }

    pub(crate) fn table(self) -> *const OrtApi {
        self.table
    }

    pub(crate) fn ep_table(self) -> *const OrtEpApi {
        self.ep
    }

    /// Takes the status that a call returned.
    ///
    /// # Errors
    /// [`Error::Ort`] if it says that the call failed.
    ///
    /// # Safety
    /// The status must be null or owned by the caller.
    pub unsafe fn check(self, status: OrtStatusPtr) -> Result<(), Error> {
        // SAFETY: the caller passes ownership on.
        match unsafe { Status::take(self.statuses(), status) } {
            Some(status) => Err(Error::Ort(status)),
            None => Ok(()),
        }
    }

    /// The value that `call` writes through the pointer it is given.
    ///
    /// # Safety
    /// `call` must be a call of ONNX Runtime that sets its out-parameter when it succeeds.
    pub unsafe fn get<T>(self, call: impl FnOnce(*mut T) -> OrtStatusPtr) -> Result<T, Error> {
        let mut out = MaybeUninit::zeroed();
        let status = call(out.as_mut_ptr());
        // SAFETY: the status is ours; after a success the value is set.
        unsafe {
            self.check(status)?;
            Ok(out.assume_init())
        }
    }

    /// The `len` values that `call` writes through the pointer it is given.
    ///
    /// # Safety
    /// `call` must be a call of ONNX Runtime that sets all `len` values when it succeeds.
    pub unsafe fn list<T: Copy>(
        self,
        len: usize,
        call: impl FnOnce(*mut T, usize) -> OrtStatusPtr,
    ) -> Result<Vec<T>, Error> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let mut out = Vec::with_capacity(len);
        let status = call(out.as_mut_ptr(), len);
        // SAFETY: the status is ours; after a success the values are set.
        unsafe {
            self.check(status)?;
            out.set_len(len);
        }
        Ok(out)
    }
}

/// Text that ONNX Runtime owns; empty for a null pointer.
///
/// # Errors
/// [`Error::Text`] if it is not UTF-8.
///
/// # Safety
/// `text` must be null or a C string that lives as long as `'a`.
pub unsafe fn text<'a>(text: *const std::ffi::c_char) -> Result<&'a str, Error> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: by the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::Text(text.to_string_lossy().into_owned()))
}

/// The 24 of `1.24.4`; a later major version counts as newer than any.
fn minor_version(version: &str) -> Option<u32> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next()??, parts.next()??) {
        (1, minor) => Some(minor),
        (major, _) if major > 1 => Some(u32::MAX),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(minor_version("1.24.4"), Some(24));
        assert_eq!(minor_version("1.32.0-dev"), Some(32));
        assert_eq!(minor_version("1.8"), Some(8));
        assert_eq!(minor_version("2.0.0"), Some(u32::MAX));
        assert_eq!(minor_version("0.5.0"), None);
        assert_eq!(minor_version("nightly"), None);
    }
}
