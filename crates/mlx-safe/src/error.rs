//! MLX's errors, caught per thread.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Once;

/// What can go wrong in a call to MLX.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// MLX refused an operation; the message is its own.
    #[error("{op}: {message}")]
    Mlx {
        /// The operation, as named in this crate.
        op: &'static str,
        /// MLX's message.
        message: String,
    },
    /// An argument cannot be handed to MLX.
    #[error("{op}: {message}")]
    Argument {
        /// The operation, as named in this crate.
        op: &'static str,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// A Rust closure that MLX called returned an error or panicked.
    #[error("closure: {0}")]
    Closure(String),
}

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Whether `LAST` may hold something: quicker to ask than `LAST` itself, on every call.
    static TOLD: Cell<bool> = const { Cell::new(false) };
}

static INSTALL: Once = Once::new();

/// Replaces mlx-c's default handler, which prints and exits, and starts MLX. Every path into MLX comes by here first.
pub(crate) fn install_handler() {
    INSTALL.call_once(|| {
        // SAFETY: `remember` has the handler's signature, takes no state, and does not unwind.
        unsafe { mlx_sys::mlx_set_error_handler(Some(remember), std::ptr::null_mut(), None) };
        // SAFETY: nothing of MLX's was called before.
        unsafe { mlx_sys::ortmlx_start() };
    });
}

unsafe extern "C" fn remember(message: *const c_char, _: *mut c_void) {
    // SAFETY: mlx-c passes a C string that lives for this call.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    // A failing closure is reported twice, the second time as "returned a non-zero value": the first report says why.
    TOLD.set(true);
    let _ = LAST.try_with(|last| last.borrow_mut().get_or_insert_with(|| message.into_owned()).len());
}

/// Runs one mlx-c call and turns its return code and message into a `Result`.
#[inline]
pub(crate) fn check(op: &'static str, call: impl FnOnce() -> c_int) -> Result<()> {
    install_handler();
    if TOLD.take() {
        LAST.with(|last| last.borrow_mut().take());
    }
    if call() == 0 {
        return Ok(());
    }
    if let Some(error) = crate::callback::take_failure() {
        return Err(error);
    }
    Err(Error::Mlx { op, message: take_message() })
}

/// The message of the call that just failed on this thread.
pub(crate) fn take_message() -> String {
    LAST.with(|last| last.borrow_mut().take()).unwrap_or_else(|| "MLX gave no reason".to_owned())
}

pub(crate) fn argument<T>(op: &'static str, message: impl Into<String>) -> Result<T> {
    Err(Error::Argument { op, message: message.into() })
}
