//! What the pools share: their attributes and what becomes of empty inputs.

use mlx_safe::{Array, Dtype, zeros};

use super::window::{Axis, WindowAttributes, sizes, spatial};
use crate::{Decline, LowerError, NodeRef};

/// The attributes that all pools have.
pub(super) struct Pool {
    windows: WindowAttributes,
    kernel: Vec<i32>,
}

impl Pool {
    /// Reads `kernel_shape` and the attributes of windows.
    pub(super) fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let windows = WindowAttributes::claim(node)?;
        let kernel = sizes(node, "kernel_shape", 1)?;
        if kernel.is_empty() {
            return Err(Decline::invalid("kernel_shape is missing"));
        }
        if node.input_rank(0).is_some_and(|rank| rank != kernel.len() + 2) {
            return Err(Decline::invalid("kernel_shape does not have one entry a spatial axis"));
        }
        let (low, high) = windows.pads();
        if [low, high].iter().any(|pads| pads.iter().zip(&kernel).any(|(pad, kernel)| pad >= kernel)) {
            return Err(Decline::invalid("padding as large as the window"));
        }
        Ok(Self { windows, kernel })
    }

    /// The windows over an input of `shape`.
    pub(super) fn axes(&self, shape: &[i32]) -> Result<Vec<Axis>, LowerError> {
        let input = spatial(shape)?;
        if input.len() != self.kernel.len() {
            return Err(LowerError::invalid(format!(
                "kernel_shape {:?} for an input {shape:?}",
                self.kernel
            )));
        }
        self.windows.axes(input, &self.kernel, 0)
    }

    /// Whether the result has no elements.
    ///
    /// # Errors
    /// If it has, but the input has none to pool.
    pub(super) fn is_empty(&self, shape: &[i32], axes: &[Axis]) -> Result<bool, LowerError> {
        let empty = shape[..2].contains(&0) || axes.iter().any(|a| a.output == 0);
        if !empty && shape.contains(&0) {
            return Err(LowerError::invalid(format!("windows over an empty input {shape:?}")));
        }
        Ok(empty)
    }

    /// The result without elements.
    pub(super) fn empty(&self, shape: &[i32], axes: &[Axis], dtype: Dtype) -> Result<Array, LowerError> {
        let shape: Vec<i32> = shape[..2].iter().copied().chain(axes.iter().map(|a| a.output)).collect();
        Ok(zeros(&shape, dtype)?)
    }
}
