//! Several arrays made one, or made to fit each other.

use super::{op, op_vec};
use crate::handle::VectorArray;
use crate::{Array, Result};

/// The arrays one after another along `axis`; with `None`, each flattened first.
///
/// # Errors
/// If there is no array, or shapes differ elsewhere than on `axis`.
pub fn concatenate(arrays: &[Array], axis: impl Into<Option<i32>>) -> Result<Array> {
    let arrays = VectorArray::from_arrays(arrays)?;
    match axis.into() {
        None => op!("concatenate", mlx_concatenate(arrays.raw())),
        Some(axis) => op!("concatenate", mlx_concatenate_axis(arrays.raw(), axis)),
    }
}

/// The arrays along a new axis, the first by default.
///
/// # Errors
/// If there is no array, or shapes differ.
pub fn stack(arrays: &[Array], axis: impl Into<Option<i32>>) -> Result<Array> {
    let arrays = VectorArray::from_arrays(arrays)?;
    match axis.into() {
        None => op!("stack", mlx_stack(arrays.raw())),
        Some(axis) => op!("stack", mlx_stack_axis(arrays.raw(), axis)),
    }
}

/// All arrays broadcast to their common shape.
///
/// # Errors
/// If there is none.
pub fn broadcast_arrays(arrays: &[Array]) -> Result<Vec<Array>> {
    let arrays = VectorArray::from_arrays(arrays)?;
    op_vec!("broadcast_arrays", mlx_broadcast_arrays(arrays.raw()))
}

/// Which of a grid's first two axes the first array runs along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// The second: x across, y down.
    Xy,
    /// The first: matrix order.
    Ij,
}

/// Coordinate arrays of the grid that 1-d `arrays` span; `sparse` ones have size 1 on every other axis.
///
/// # Errors
/// If an array has more than one axis.
pub fn meshgrid(arrays: &[Array], sparse: bool, indexing: Indexing) -> Result<Vec<Array>> {
    let indexing = match indexing {
        Indexing::Xy => c"xy",
        Indexing::Ij => c"ij",
    };
    let arrays = VectorArray::from_arrays(arrays)?;
    op_vec!("meshgrid", mlx_meshgrid(arrays.raw(), sparse, indexing.as_ptr()))
}

/// `inputs`, which will not be computed before `dependencies` are.
///
/// # Errors
/// If MLX refuses.
pub fn depends(inputs: &[Array], dependencies: &[Array]) -> Result<Vec<Array>> {
    if inputs.is_empty() {
        // MLX looks at the first.
        return Ok(Vec::new());
    }
    let (inputs, dependencies) = (VectorArray::from_arrays(inputs)?, VectorArray::from_arrays(dependencies)?);
    VectorArray::from_op("depends", |out| {
        // SAFETY: both vectors are live and `out` is empty.
        unsafe { mlx_sys::mlx_depends(out, inputs.raw(), dependencies.raw()) }
    })
}
