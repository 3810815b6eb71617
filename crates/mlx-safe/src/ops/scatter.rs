//! Writing by index: copies with some elements changed. Indices are integers; negative ones count from the end, and one that
//! is then out of range writes to the nearest element that is there. Which of two writes to one place wins is not said.

use mlx_sys as sys;

use super::bounds::bounded;
use super::{methods, op};
use crate::error::argument;
use crate::handle::VectorArray;
use crate::{Array, Result, Stream};

methods! {
    /// A copy with `values`, in order, where `mask` (of this shape, or of its first axes) is true. Too few are an error of the
    /// evaluation on a CPU; on a GPU the rest stays as it is.
    masked_scatter(mask: &Array, values: &Array) => mlx_masked_scatter(mask.raw(), values.raw());
}

/// What a scatter does with the value that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterMode {
    /// Replaces it.
    Set,
    /// Adds to it.
    Add,
    /// Multiplies it.
    Prod,
    /// Keeps the larger.
    Max,
    /// Keeps the smaller.
    Min,
}

impl Array {
    /// A copy with `values` put at `indices` along `axis`; the other axes broadcast.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn put_along_axis(&self, indices: &Array, values: &Array, axis: i32) -> Result<Array> {
        let indices = bounded("put_along_axis", indices, self, &[axis], 1)?;
        op!("put_along_axis", mlx_put_along_axis(self.raw(), indices.raw(), values.raw(), axis))
    }

    /// A copy with `values` added at `indices` along `axis`; the other axes broadcast.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn scatter_add_axis(&self, indices: &Array, values: &Array, axis: i32) -> Result<Array> {
        let indices = bounded("scatter_add_axis", indices, self, &[axis], 1)?;
        op!("scatter_add_axis", mlx_scatter_add_axis(self.raw(), indices.raw(), values.raw(), axis))
    }

    /// MLX's scatter: writes `updates` (broadcast index shape followed by one slice, of rank `self.ndim()`) at
    /// `indices` of `axes`.
    ///
    /// # Errors
    /// If shapes and numbers do not fit.
    pub fn scatter(
        &self,
        mode: ScatterMode,
        indices: &[Array],
        updates: &Array,
        axes: &[i32],
    ) -> Result<Array> {
        let function = match mode {
            ScatterMode::Set => sys::mlx_scatter,
            ScatterMode::Add => sys::mlx_scatter_add,
            ScatterMode::Prod => sys::mlx_scatter_prod,
            ScatterMode::Max => sys::mlx_scatter_max,
            ScatterMode::Min => sys::mlx_scatter_min,
        };
        if indices.len() != axes.len() || updates.ndim() < self.ndim() {
            return argument("scatter", format!("{self:?}, axes {axes:?} and {updates:?} do not fit"));
        }
        let slice = &updates.shape()[updates.ndim() - self.ndim()..];
        let indices: Result<Vec<Array>> = indices
            .iter()
            .zip(axes)
            .map(|(indices, &axis)| bounded("scatter", indices, self, &[axis], slice[self.axis(axis)?]))
            .collect();
        let indices = VectorArray::from_arrays(&indices?)?;
        Stream::with_current(|s| {
            Array::from_op("scatter", |out| {
                // SAFETY: every handle is live and `axes` outlives the call with its length beside it.
                unsafe {
                    function(out, self.raw(), indices.raw(), updates.raw(), axes.as_ptr(), axes.len(), s)
                }
            })
        })
    }

    /// [`Array::scatter`] with one index array, on `axis`.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn scatter_single(
        &self,
        mode: ScatterMode,
        indices: &Array,
        updates: &Array,
        axis: i32,
    ) -> Result<Array> {
        self.scatter(mode, std::slice::from_ref(indices), updates, &[axis])
    }
}
