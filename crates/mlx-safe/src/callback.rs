//! What every Rust function that C++ calls goes through: no panic leaves it, and an error waits for the caller.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mlx_sys as sys;

use crate::error::argument;
use crate::handle::VectorArray;
use crate::{Array, Error, Result};

thread_local! {
    static FAILURE: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// The error of the callback that just failed on this thread.
pub(crate) fn take_failure() -> Option<Error> {
    FAILURE.try_with(|failure| failure.borrow_mut().take()).ok().flatten()
}

/// Runs a callback; an error or a panic is kept for [`take_failure`] and reported to C++ as 1.
pub(crate) fn run(work: impl FnOnce() -> Result<()>) -> c_int {
    let error = match catch(work) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error,
        Err(panic) => Error::Closure(panic),
    };
    // Without thread-locals (the thread is ending) C++ still learns that it failed.
    let _ = FAILURE.try_with(|failure| *failure.borrow_mut() = Some(error));
    1
}

/// Runs `work`; a panic becomes its text.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| format!("panicked: {}", text_of(panic)))
}

fn text_of(panic: Box<dyn Any + Send>) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    if let Some(text) = panic.downcast_ref::<String>() {
        return text.clone();
    }
    // Dropping a payload of an unknown type could panic again, here where nothing may.
    std::mem::forget(panic);
    "with a value that is no text".to_owned()
}

/// Frees what a destructor callback was given; a drop that panics ends here.
///
/// # Safety
/// `payload` came from `Box::<T>::into_raw` and is not used after.
pub(crate) unsafe fn release<T>(payload: *mut std::ffi::c_void) {
    // SAFETY: the caller hands over the box.
    let boxed = unsafe { Box::from_raw(payload.cast::<T>()) };
    let _ = catch(|| drop(boxed));
}

/// Calls a function of primals, cotangents and outputs that returns one array for every primal, of its shape.
///
/// # Safety
/// All handles are live for the call.
pub(crate) unsafe fn vjp(
    function: impl Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>>,
    out: *mut sys::mlx_vector_array,
    primals: sys::mlx_vector_array,
    cotangents: sys::mlx_vector_array,
    outputs: sys::mlx_vector_array,
) -> Result<()> {
    let read = |vector| VectorArray::borrowed(vector).to_arrays();
    let primals = read(primals)?;
    let products = function(&primals, &read(cotangents)?, &read(outputs)?)?;
    if products.len() != primals.len() {
        return argument("vjp", format!("{} arrays for {} inputs", products.len(), primals.len()));
    }
    for (product, primal) in products.iter().zip(&primals) {
        if product.shape() != primal.shape() {
            return argument("vjp", format!("{product} for an input of {primal}"));
        }
    }
    // SAFETY: the caller's `out` is live.
    unsafe { VectorArray::from_arrays(&products)?.copy_to(out) }
}
