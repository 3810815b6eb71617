//! Derivatives.

use mlx_sys as sys;

use crate::error::{argument, check, install_handler};
use crate::handle::VectorArray;
use crate::{Array, Closure, Error, Result};

/// The outputs of `function` at `primals`, and the products of `cotangents` (one for every output, of its shape) with its
/// Jacobian: one array for every primal, of its shape.
///
/// ```
/// use mlx_safe::{Array, vjp};
/// let x = Array::from_slice(&[1.0f32, 2.0], &[2])?;
/// let (y, dx) = vjp(|x| Ok(vec![x[0].square()?]), &[x], &[Array::from_slice(&[1.0f32, 10.0], &[2])?])?;
/// assert_eq!(y[0].to_vec::<f32>()?, [1.0, 4.0]);
/// assert_eq!(dx[0].to_vec::<f32>()?, [2.0, 40.0]);
/// # Ok::<(), mlx_safe::Error>(())
/// ```
///
/// # Errors
/// What `function` returns; if the cotangents do not fit the outputs; if an operation has no derivative.
pub fn vjp(
    function: impl Fn(&[Array]) -> Result<Vec<Array>>,
    primals: &[Array],
    cotangents: &[Array],
) -> Result<(Vec<Array>, Vec<Array>)> {
    let count = cotangents.len();
    let function = |x: &[Array]| {
        let outputs = function(x)?;
        if outputs.len() != count {
            return argument("vjp", format!("{} outputs and {count} cotangents", outputs.len()));
        }
        // Each an array of its own: MLX passes over outputs of `stop_gradient` when it counts cotangents, and of those that
        // are one array, or an input, it takes the last cotangent.
        outputs.iter().map(Array::copy).collect()
    };
    let primals = VectorArray::from_arrays(primals)?;
    let cotangents = VectorArray::from_arrays(cotangents)?;
    Closure::scoped(&function, |f| {
        two_vectors("vjp", |outputs, products| {
            // SAFETY: all handles are live, and the results are vectors to be filled.
            unsafe { sys::mlx_vjp(outputs, products, f.raw(), primals.raw(), cotangents.raw()) }
        })
    })
}

/// The outputs of `function` at `primals`, and the products of its Jacobian with `tangents` (one for every primal, of its
/// shape): one array for every output, of its shape.
///
/// # Errors
/// What `function` returns; if the tangents do not fit the primals; if an operation has no derivative.
pub fn jvp(
    function: impl Fn(&[Array]) -> Result<Vec<Array>>,
    primals: &[Array],
    tangents: &[Array],
) -> Result<(Vec<Array>, Vec<Array>)> {
    if primals.len() != tangents.len() {
        return argument("jvp", format!("{} primals and {} tangents", primals.len(), tangents.len()));
    }
    let primals = VectorArray::from_arrays(primals)?;
    let tangents = VectorArray::from_arrays(tangents)?;
    Closure::scoped(&function, |f| {
        two_vectors("jvp", |outputs, products| {
            // SAFETY: all handles are live, and the results are vectors to be filled.
            unsafe { sys::mlx_jvp(outputs, products, f.raw(), primals.raw(), tangents.raw()) }
        })
    })
}

/// A function that computes `function` and the gradients of its first output, a scalar, by the inputs numbered in
/// `inputs` (distinct, in any order). It returns all outputs, and one gradient for every number, in ascending order.
///
/// ```
/// use mlx_safe::{Array, value_and_grad};
/// let x = Array::from_slice(&[1.0f32, 2.0, 3.0], &[3])?;
/// // `x` is borrowed: only the inputs are differentiated.
/// let loss = value_and_grad(|w| Ok(vec![w[0].multiply(&x)?.sum(&[0], false)?]), &[0]);
/// let (value, gradients) = loss(&[Array::scalar(2.0f32)])?;
/// assert_eq!(value[0].item::<f32>()?, 12.0);
/// assert_eq!(gradients[0].item::<f32>()?, 6.0);
/// # Ok::<(), mlx_safe::Error>(())
/// ```
///
/// # Errors
/// The returned function fails with what `function` returns, if the first output is not a scalar, and if `inputs` does
/// not name inputs.
pub fn value_and_grad<'f>(
    function: impl Fn(&[Array]) -> Result<Vec<Array>> + 'f,
    inputs: &[i32],
) -> impl Fn(&[Array]) -> Result<(Vec<Array>, Vec<Array>)> + 'f {
    let mut numbers = inputs.to_vec();
    numbers.sort_unstable();
    let checked = move |x: &[Array]| {
        let outputs = function(x)?;
        match outputs.first() {
            Some(loss) if loss.ndim() == 0 => Ok(outputs),
            Some(loss) => argument(OP, format!("the first output must be a scalar and has {loss}")),
            None => argument(OP, "the function returned no output"),
        }
    };
    move |x| {
        if numbers.is_empty() || numbers.windows(2).any(|pair| pair[0] == pair[1]) {
            return argument(OP, format!("{numbers:?} must name inputs, each once"));
        }
        if let Some(wrong) = numbers.iter().find(|n| usize::try_from(**n).map_or(true, |n| n >= x.len())) {
            return argument(OP, format!("there is no input {wrong} among {}", x.len()));
        }
        let x = VectorArray::from_arrays(x)?;
        Closure::scoped(&checked, |f| {
            let differentiated = ValueAndGrad::new(f, &numbers)?;
            two_vectors(OP, |values, gradients| {
                // SAFETY: all handles are live, and the results are vectors to be filled.
                unsafe { sys::mlx_closure_value_and_grad_apply(values, gradients, differentiated.0, x.raw()) }
            })
        })
    }
}

const OP: &str = "value_and_grad";

/// A function that computes the gradients of `function`, which returns a scalar, by the inputs numbered in `inputs`.
///
/// ```
/// use mlx_safe::{Array, grad};
/// let slope = grad(|x| x[0].sin(), &[0]);
/// assert_eq!(slope(&[Array::scalar(0.0f32)])?[0].item::<f32>()?, 1.0);
/// # Ok::<(), mlx_safe::Error>(())
/// ```
///
/// # Errors
/// As [`value_and_grad`].
pub fn grad<'f>(
    function: impl Fn(&[Array]) -> Result<Array> + 'f,
    inputs: &[i32],
) -> impl Fn(&[Array]) -> Result<Vec<Array>> + 'f {
    let both = value_and_grad(move |x| Ok(vec![function(x)?]), inputs);
    move |x| Ok(both(x)?.1)
}

struct ValueAndGrad(sys::mlx_closure_value_and_grad);

impl ValueAndGrad {
    fn new(function: &Closure, numbers: &[i32]) -> Result<Self, Error> {
        install_handler();
        // SAFETY: makes an empty handle.
        let mut made = Self(unsafe { sys::mlx_closure_value_and_grad_new() });
        check(OP, || {
            // SAFETY: both handles are live, and `numbers` outlives the call with its length beside it.
            unsafe { sys::mlx_value_and_grad(&mut made.0, function.raw(), numbers.as_ptr(), numbers.len()) }
        })?;
        Ok(made)
    }
}

impl Drop for ValueAndGrad {
    fn drop(&mut self) {
        // SAFETY: we own the handle, and this is its last use.
        unsafe { sys::mlx_closure_value_and_grad_free(self.0) };
    }
}

/// Runs a call that fills two vectors.
pub(super) fn two_vectors(
    op: &'static str,
    call: impl FnOnce(*mut sys::mlx_vector_array, *mut sys::mlx_vector_array) -> std::ffi::c_int,
) -> Result<(Vec<Array>, Vec<Array>)> {
    let mut second = Vec::new();
    let first = VectorArray::from_op(op, |first| {
        let mut status = 1;
        match VectorArray::from_op(op, |out| {
            status = call(first, out);
            status
        }) {
            Ok(arrays) => second = arrays,
            Err(error) => return crate::callback::run(|| Err(error)),
        }
        status
    })?;
    Ok((first, second))
}
