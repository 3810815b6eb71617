//! Vectorisation: a function of one item applied to all of them.

use std::ffi::c_int;

use mlx_sys as sys;

use super::grad::two_vectors;
use crate::error::argument;
use crate::handle::VectorArray;
use crate::{Array, Closure, Result};

/// `function` applied to every item of `inputs` at once, and its outputs stacked along a new first axis.
///
/// `in_axes[i]` says along which axis of input `i` the items lie (a negative one counts from the end); with `None` every
/// item gets the whole input. The function is called once, with arrays of one item's shape whose values are not there: it
/// must be pure and cannot evaluate them. An output that does not depend on the items is repeated. MLX 0.32.2 mixes up the
/// groups of a convolution whose weight alone has items: give its input the items too.
///
/// ```
/// use mlx_safe::{Array, vmap};
/// let rows = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// let weight = Array::from_slice(&[10.0f32, 1.0], &[2])?;
/// let dot = |x: &[Array]| Ok(vec![x[0].multiply(&x[1])?.sum(&[0], false)?]);
/// let y = vmap(dot, &[rows, weight], &[Some(0), None])?;
/// assert_eq!(y[0].to_vec::<f32>()?, [12.0, 34.0]);
/// # Ok::<(), mlx_safe::Error>(())
/// ```
///
/// # Errors
/// What `function` returns; if no input has items or their counts differ; if MLX cannot vectorise an operation, such as a
/// host op or a custom kernel.
pub fn vmap(
    function: impl Fn(&[Array]) -> Result<Vec<Array>>,
    inputs: &[Array],
    in_axes: &[Option<i32>],
) -> Result<Vec<Array>> {
    let axes = axes(inputs, in_axes)?;
    // First in every input: MLX's scatter confuses axes of items that are not.
    let moved =
        |(input, &axis): (&Array, &c_int)| if axis > 0 { input.moveaxis(axis, 0) } else { Ok(input.clone()) };
    let inputs = inputs.iter().zip(&axes).map(moved).collect::<Result<Vec<_>>>()?;
    let axes: Vec<c_int> = axes.iter().map(|&axis| axis.min(0)).collect();
    let inputs = VectorArray::from_arrays(&inputs)?;
    let function = |x: &[Array]| function(x);
    let (items, outputs) = Closure::scoped(&function, |f| {
        two_vectors("vmap", |items, outputs| {
            // SAFETY: all handles are live, the results are vectors to be filled, and `axes` has one entry an input.
            unsafe {
                sys::mlx_detail_vmap_trace(items, outputs, f.raw(), inputs.raw(), axes.as_ptr(), axes.len())
            }
        })
    })?;
    let out_axes = vec![0; outputs.len()];
    let (items, outputs) = (VectorArray::from_arrays(&items)?, VectorArray::from_arrays(&outputs)?);
    VectorArray::from_op("vmap", |out| {
        // SAFETY: all handles are live, `out` is empty, and both lists of axes are as long as they are said to be.
        unsafe {
            sys::mlx_detail_vmap_replace(
                out,
                inputs.raw(),
                items.raw(),
                outputs.raw(),
                axes.as_ptr(),
                axes.len(),
                out_axes.as_ptr(),
                out_axes.len(),
            )
        }
    })
}

/// The axes as MLX writes them, -1 for none: MLX itself checks neither every bound nor that there is an axis at all.
fn axes(inputs: &[Array], in_axes: &[Option<i32>]) -> Result<Vec<c_int>> {
    if inputs.len() != in_axes.len() {
        return argument("vmap", format!("{} axes for {} inputs", in_axes.len(), inputs.len()));
    }
    let mut items = None;
    let mut axes = Vec::with_capacity(in_axes.len());
    for (input, axis) in inputs.iter().zip(in_axes) {
        let Some(axis) = *axis else {
            axes.push(-1);
            continue;
        };
        let count = input.dim(axis)?;
        if *items.get_or_insert(count) != count {
            return argument("vmap", format!("{count} items of one input, {items:?} of another"));
        }
        axes.push(if axis < 0 { axis + input.ndim() as i32 } else { axis });
    }
    match items {
        Some(_) => Ok(axes),
        None => argument("vmap", "no input has an axis of items"),
    }
}
