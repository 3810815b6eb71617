//! Functions with a derivative of their own.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use mlx_sys as sys;

use crate::callback::{self, release};
use crate::error::{argument, install_handler};
use crate::{Array, Closure, Result, depends, vjp};

/// `function` with `vjp` for its derivative: `vjp(primals, cotangents, outputs)` returns one array for every primal, of its
/// shape. [`jvp`](crate::jvp), and derivatives of a [`vmap`](crate::vmap) over the result, go by `function`.
///
/// ```
/// use mlx_safe::{Array, custom_vjp, grad};
/// // Rounds, and lets gradients through as if it had not.
/// let round = custom_vjp(|x| Ok(vec![x[0].round(0)?]), |_, cotangents, _| Ok(cotangents.to_vec()))?;
/// let slope = grad(|x| Ok(round.apply(x)?.remove(0)), &[0]);
/// assert_eq!(slope(&[Array::scalar(2.6f32)])?[0].item::<f32>()?, 1.0);
/// # Ok::<(), mlx_safe::Error>(())
/// ```
///
/// # Errors
/// If MLX refuses. Errors of the functions come from the call that needed them; `function` returns one output at least.
pub fn custom_vjp(
    function: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static,
    vjp: impl Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>> + 'static,
) -> Result<Closure> {
    let function = Closure::new(move |inputs| {
        let outputs = function(inputs)?;
        // MLX looks at the first without asking whether there is one.
        if outputs.is_empty() {
            return argument("custom_vjp", "the function returned no output");
        }
        Ok(outputs)
    });
    let vjp = Vjp::new(Box::new(vjp));
    Closure::from_op("custom_vjp", |out| {
        // SAFETY: `out` is empty and the others are live; MLX shares their references.
        unsafe { sys::mlx_custom_vjp(out, function.raw(), vjp.0) }
    })
}

/// `function` whose intermediate results are not kept for its derivative but computed again: less memory, more time.
///
/// # Errors
/// If MLX refuses. Errors of `function` come from the call that needed it; it returns one output at least, and as many when it
/// is called again.
pub fn checkpoint(function: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static) -> Result<Closure> {
    let function = Rc::new(function);
    let again = function.clone();
    // MLX's own has the faults that `vjp` of this crate makes good.
    custom_vjp(
        move |inputs| function(inputs),
        move |primals, cotangents, outputs| Ok(vjp(&*again, &depends(primals, outputs)?, cotangents)?.1),
    )
}

type VjpFunction = Box<dyn Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>>>;

struct Vjp(sys::mlx_closure_custom);

impl Vjp {
    fn new(function: VjpFunction) -> Self {
        install_handler();
        let payload = Box::into_raw(Box::new(function)).cast();
        // SAFETY: `call` reads the payload as the `VjpFunction` it is, and `destroy` frees it once, when MLX drops its
        // last reference.
        Self(unsafe { sys::mlx_closure_custom_new_func_payload(Some(call), payload, Some(destroy)) })
    }
}

impl Drop for Vjp {
    fn drop(&mut self) {
        // SAFETY: we own the handle, and this is its last use.
        unsafe { sys::mlx_closure_custom_free(self.0) };
    }
}

unsafe extern "C" fn call(
    out: *mut sys::mlx_vector_array,
    primals: sys::mlx_vector_array,
    cotangents: sys::mlx_vector_array,
    outputs: sys::mlx_vector_array,
    payload: *mut c_void,
) -> c_int {
    callback::run(|| {
        // SAFETY: the payload is the `VjpFunction` of `Vjp::new`, alive while MLX holds the closure.
        let function = unsafe { &*payload.cast::<VjpFunction>() };
        // SAFETY: mlx-c lends the vectors and `out` for this call.
        unsafe { callback::vjp(function, out, primals, cotangents, outputs) }
    })
}

unsafe extern "C" fn destroy(payload: *mut c_void) {
    // SAFETY: the payload came from `Box::into_raw` in `Vjp::new`, and MLX calls this once.
    unsafe { release::<VjpFunction>(payload) };
}
