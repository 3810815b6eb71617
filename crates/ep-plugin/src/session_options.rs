//! Provider options, which arrive as a session's config entries `ep.mlxexecutionprovider.<name>`.

use ep_core::Options;
use ort_sys::OrtSessionOptions;

use crate::api::{Api, ort};
use crate::error::Error;
use crate::key_values::KeyValues;

/// What ONNX Runtime puts before an option's name: `ep.`, our name in lower case, `.`.
const PREFIX: &str = "ep.mlxexecutionprovider.";

/// Reads the options of a session.
///
/// # Errors
/// [`Error::Option`] for an option or value that does not exist.
///
/// # Safety
/// `session` must be null or live.
pub unsafe fn read(api: Api, session: *const OrtSessionOptions) -> Result<Options, Error> {
    if session.is_null() {
        return Ok(Options::parse([])?);
    }
    // SAFETY: the session's options are live; the list made from them is ours.
    let entries = unsafe {
        KeyValues::take(api, api.get(|out| ort!(api, GetSessionOptionsConfigEntries(session, out)))?)
    };
    Ok(Options::parse(ours(entries.entries()?))?)
}

/// The entries meant for us, without the prefix.
fn ours<'a>(entries: Vec<(&'a str, &'a str)>) -> impl Iterator<Item = (&'a str, &'a str)> {
    entries.into_iter().filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_entries_are_taken() {
        let entries = vec![
            ("ep.cpu.device", "x"),
            ("ep.mlxexecutionprovider.claim", "all"),
            ("session.disable_prepacking", "1"),
        ];
        assert_eq!(ours(entries).collect::<Vec<_>>(), [("claim", "all")]);
    }

    #[test]
    fn an_unknown_option_is_an_error_that_lists_the_valid_ones() {
        let error = Error::from(Options::parse([("colour", "red")]).err().unwrap());
        let text = error.to_string();
        assert!(text.contains("colour") && text.contains("device") && text.contains("claim"), "{text}");
    }

    #[test]
    fn an_unknown_value_is_an_error_that_lists_the_valid_ones() {
        let error = Error::from(Options::parse([("device", "abacus")]).err().unwrap());
        let text = error.to_string();
        assert!(text.contains("abacus") && text.contains("gpu") && text.contains("cpu"), "{text}");
    }
}
