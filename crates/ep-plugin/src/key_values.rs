//! ONNX Runtime's lists of key and value.

use std::ptr::{null, null_mut};
use std::slice;

use ort_sys::OrtKeyValuePairs;

use crate::api::{Api, ort, text};
use crate::error::{Error, c_text};

/// A list that we must release.
pub struct KeyValues {
    api: Api,
    raw: *mut OrtKeyValuePairs,
}

impl KeyValues {
    /// A list of `entries`.
    pub fn new(api: Api, entries: &[(&str, &str)]) -> Self {
        let mut raw = null_mut();
        // SAFETY: the call sets its out-parameter; keys and values are copied.
        unsafe {
            ort!(api, CreateKeyValuePairs(&raw mut raw));
            for &(key, value) in entries {
                ort!(api, AddKeyValuePair(raw, c_text(key).as_ptr(), c_text(value).as_ptr()));
            }
        }
        Self { api, raw }
    }

    /// # Safety
    /// `raw` must be a live list that the caller owns.
    pub unsafe fn take(api: Api, raw: *mut OrtKeyValuePairs) -> Self {
        Self { api, raw }
    }

    /// The list itself.
    pub fn raw(&self) -> *const OrtKeyValuePairs {
        self.raw
    }

    /// Its entries, ordered by key.
    ///
    /// # Errors
    /// [`Error::Text`] for one that is not UTF-8.
    pub fn entries(&self) -> Result<Vec<(&str, &str)>, Error> {
        let (mut keys, mut values, mut len) = (null(), null(), 0);
        // SAFETY: the list is live; the call sets all three, and both arrays hold `len` strings of the list's.
        unsafe {
            ort!(self.api, GetKeyValuePairs(self.raw, &raw mut keys, &raw mut values, &raw mut len));
            if len == 0 {
                return Ok(Vec::new());
            }
            let pairs = slice::from_raw_parts(keys, len).iter().zip(slice::from_raw_parts(values, len));
            pairs.map(|(&key, &value)| Ok((text(key)?, text(value)?))).collect()
        }
    }
}

impl Drop for KeyValues {
    fn drop(&mut self) {
        // SAFETY: we own the list, and this is its last use.
        unsafe { ort!(self.api, ReleaseKeyValuePairs(self.raw)) }
    }
}
