//! Rust closures that MLX calls: the inputs of function transformations.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::rc::Rc;

use mlx_sys as sys;

use crate::callback::{self, release};
use crate::error::{argument, check, install_handler};
use crate::handle::VectorArray;
use crate::{Array, Error, Result};

type Function = Box<dyn Fn(&[Array]) -> Result<Vec<Array>>>;

/// A function from arrays to arrays, held by MLX. `Err` and panics inside it come back as the caller's `Err`.
///
/// Not `Send`: the function captures what it likes, arrays too, and what [`compile`](crate::compile) makes of it lives in
/// a cache of the thread that calls it.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<mlx_safe::Closure>();
/// ```
///
/// `Clone` copies the reference: both call the same function.
pub struct Closure(sys::mlx_closure, PhantomData<*const ()>);

impl Clone for Closure {
    fn clone(&self) -> Self {
        // SAFETY: makes an empty handle.
        let mut raw = unsafe { sys::mlx_closure_new() };
        // SAFETY: both handles are live; the function's payload is shared.
        unsafe { sys::mlx_closure_set(&mut raw, self.0) };
        Self(raw, PhantomData)
    }
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

    /// Runs `work` with a closure that calls `function`, which may borrow: when `work` has returned, whatever of the
    /// closure MLX still holds is an error to call.
    pub(crate) fn scoped<T>(
        function: &dyn Fn(&[Array]) -> Result<Vec<Array>>,
        work: impl FnOnce(&Closure) -> T,
    ) -> T {
        type Borrowed<'a> = &'a dyn Fn(&[Array]) -> Result<Vec<Array>>;
        struct End(Rc<Cell<Option<Borrowed<'static>>>>);
        impl Drop for End {
            fn drop(&mut self) {
                self.0.set(None);
            }
        }
        // SAFETY: only the lifetime changes, and `End` takes the reference away before `function`'s borrow ends.
        let unbound = unsafe { std::mem::transmute::<Borrowed<'_>, Borrowed<'static>>(function) };
        let slot = Rc::new(Cell::new(Some(unbound)));
        let closure = Closure::new({
            let slot = slot.clone();
            move |inputs| match slot.get() {
                Some(function) => function(inputs),
                None => Err(Error::Closure("called after its transformation ended".into())),
            }
        });
        let _end = End(slot);
        work(&closure)
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
    callback::run(|| {
        // SAFETY: the payload is the `Function` of `Closure::new`, alive while MLX holds the closure.
        let function = unsafe { &*payload.cast::<Function>() };
        // SAFETY: takes nothing.
        if unsafe { sys::ortmlx_stack_is_short() } {
            return argument("closure", "functions call each other too deeply for this thread's stack");
        }
        let outputs = function(&VectorArray::borrowed(inputs).to_arrays()?)?;
        let outputs = VectorArray::from_arrays(&outputs)?;
        check("closure", || {
            // SAFETY: both vectors are live.
            unsafe { sys::ortmlx_check_depth(inputs, outputs.raw()) }
        })?;
        // SAFETY: `out` is a valid handle that mlx-c frees.
        unsafe { outputs.copy_to(out) }
    })
}

unsafe extern "C" fn destroy(payload: *mut c_void) {
    // SAFETY: the payload came from `Box::into_raw` in `Closure::new`, and MLX calls this once.
    unsafe { release::<Function>(payload) };
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

    #[test]
    fn a_scoped_closure_ends_with_its_scope() {
        let offset = Array::scalar(1.0f32);
        let add = |x: &[Array]| Ok(vec![x[0].add(&offset)?]);
        let mut escaped = None;
        Closure::scoped(&add, |closure| {
            assert_eq!(closure.apply(&[Array::scalar(1.0f32)]).unwrap()[0].item::<f32>().unwrap(), 2.0);
            escaped = Some(crate::checkpoint({
                let copy = closure.clone();
                move |x| copy.apply(x)
            }));
        });
        let error = escaped.unwrap().unwrap().apply(&[Array::scalar(1.0f32)]).unwrap_err().to_string();
        assert!(error.contains("ended"), "{error}");
    }
}
