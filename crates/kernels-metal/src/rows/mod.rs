//! Functions of whole rows, the last axis, that MLX's CPU back end computes one element at a time: softmaxes and norms.

pub mod host;

use mlx_safe::{Array, Dtype, HostOp, Result};

use crate::worth::worth_host;

/// A function of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Row {
    /// exp(x) over its sum.
    Softmax,
    /// The logarithm of that.
    LogSoftmax,
    /// The row over the root of the mean of its squares and epsilon.
    Norm {
        /// Whether the mean is taken off first.
        centred: bool,
        /// What is added to the mean.
        epsilon: f32,
    },
}

impl Row {
    /// The function of the rows of `x` (..., N), and for a norm, times `scale` (N) and plus `bias` (N); float32, whatever the
    /// inputs' floats are. `None` where MLX's own operations are the better choice: on a GPU, and for small arrays.
    ///
    /// # Errors
    /// If MLX refuses.
    pub fn apply(self, x: &Array, scale: Option<&Array>, bias: Option<&Array>) -> Result<Option<Array>> {
        let Some(&width) = x.shape().last().filter(|_| x.size() > 0) else { return Ok(None) };
        let fits = |array: &Array| array.shape() == [width];
        if !worth_host(x)? || !scale.is_none_or(fits) || !bias.is_none_or(fits) {
            return Ok(None);
        }
        let (scaled, raised) = (scale.is_some(), bias.is_some());
        let op = HostOp::in_place("rows/host", move |others, values| {
            let mut others = others.iter();
            let mut next = |there: bool| {
                others.by_ref().take(usize::from(there)).next().map(|view| view.as_slice()).transpose()
            };
            let (scale, bias) = (next(scaled)?, next(raised)?);
            host::apply(self, width as usize, values.as_mut_slice()?, scale, bias);
            Ok(())
        });
        let inputs = [Some(x), scale, bias].into_iter().flatten().map(|array| array.astype(Dtype::Float32));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        Ok(Some(op.call(&inputs.iter().collect::<Vec<_>>())?.swap_remove(0)))
    }
}
