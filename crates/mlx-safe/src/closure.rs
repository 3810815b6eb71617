//! Rust closures that MLX calls: the inputs of function transformations.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mlx_sys as sys;

use crate::error::{check, install_handler};
use crate::handle::VectorArray;
use crate::{Array, Error, Result};

type Function = Box<dyn Fn(&[Array]) -> Result<Vec<Array>>>;

/// A function from arrays to arrays, held by MLX. `Err` and panics inside it come back as the caller's `Err`.
pub struct Closure(sys::mlx_closure, PhantomData<*const ()>);

thread_local! {
    static FAILURE: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// The error of the closure that just failed on this thread.
pub(crate) fn take_failure() -> Option<Error> {
    FAILURE.with(|failure| failure.borrow_mut().take())
}

impl Closure {
    /// Hands `function` to MLX.
    pub fn new(function: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static) -> Self {
        install_handler();
        let boxed: Box<Function> = Box::new(Box::new(function));
        // SAFETY: `call` reads the payload as the `Function` it is, and `destroy` frees it once, when MLX drops its last
        // reference.
        let raw = unsafe {
            sys::mlx_closure_new_func_payload(Some(call), Box::into_raw(boxed).cast(), Some(destroy))
        };
        Self(raw, PhantomData)
    }

    /// Runs a call that fills an empty closure handle.
    pub(crate) fn from_op(
        op: &'static str,
        run: impl FnOnce(*mut sys::mlx_closure) -> c_int,
    ) -> Result<Self> {
        install_handler();
        // SAFETY: makes an empty handle.
        let mut closure = Self(unsafe { sys::mlx_closure_new() }, PhantomData);
        check(op, || run(&mut closure.0))?;
        Ok(closure)
    }

    pub(crate) fn raw(&self) -> sys::mlx_closure {
        self.0
    }

    /// Calls the function.
    ///
    /// # Errors
    /// What the function returned, or MLX's error.
    pub fn apply(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let inputs = VectorArray::from_arrays(inputs)?;
        VectorArray::from_op("closure", |out| {
            // SAFETY: all handles are live; `out` is empty.
            unsafe { sys::mlx_closure_apply(out, self.0, inputs.raw()) }
        })
    }
}

impl Drop for Closure {
    fn drop(&mut self) {
        // SAFETY: we own the handle, and this is its last use.
        unsafe { sys::mlx_closure_free(self.0) };
    }
}

unsafe extern "C" fn call(
    out: *mut sys::mlx_vector_array,
    inputs: sys::mlx_vector_array,
    payload: *mut c_void,
) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the payload is the `Function` of `Closure::new`, alive while MLX holds the closure.
        let function = unsafe { &*payload.cast::<Function>() };
        let outputs = function(&VectorArray::borrowed(inputs).to_arrays()?)?;
        VectorArray::from_arrays(&outputs)
    }));
    let error = match result {
        Ok(Ok(outputs)) => {
            // SAFETY: `out` is a valid handle that mlx-c frees; the references are copied into it.
            return unsafe { sys::mlx_vector_array_set(out, outputs.raw()) };
        }
        Ok(Err(error)) => error,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Error::Closure(format!("panicked: {}", text.unwrap_or_default()))
        }
    };
    FAILURE.with(|failure| *failure.borrow_mut() = Some(error));
    1
}

unsafe extern "C" fn destroy(payload: *mut c_void) {
    // SAFETY: the payload came from `Box::into_raw` in `Closure::new`, and MLX calls this once.
    let function = unsafe { Box::from_raw(payload.cast::<Function>()) };
    // A captured value whose drop panics must not unwind into C++.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(function)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applies_and_reports_failures() {
        let x = Array::scalar(3.0f32);
        let double = Closure::new(|x| Ok(vec![x[0].add(&x[0])?]));
        assert_eq!(double.apply(std::slice::from_ref(&x)).unwrap()[0].item::<f32>().unwrap(), 6.0);

        let failing = Closure::new(|x| Ok(vec![x[0].reshape(&[7])?]));
        let error = failing.apply(std::slice::from_ref(&x)).unwrap_err().to_string();
        assert!(error.starts_with("reshape: "), "{error}");

        let panicking = Closure::new(|_| panic!("on purpose"));
        let error = panicking.apply(&[x]).unwrap_err().to_string();
        assert!(error.contains("on purpose"), "{error}");
    }
}
