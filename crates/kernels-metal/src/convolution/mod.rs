//! Convolution on a CPU, channels first, over one or two axes, with groups, strides and gaps in any mixture.
//!
//! ```text
//! y[o, p, q] = bias[o] + sum over c, i, j of w[o, c, i, j] x[c, p s + i d - low, q s + j d - low]
//! ```

pub mod host;
#[cfg(test)]
mod tests;

use host::{Axis, Problem};
use mlx_safe::{Array, Dtype, HostError, HostOp, Spec};

use crate::{Error, Result};

const KERNEL: &str = "convolution";

/// How windows lie along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Steps between windows.
    pub stride: i32,
    /// Steps between the elements of a window.
    pub dilation: i32,
    /// Zeros before the input; a negative number cuts.
    pub low: i32,
    /// The number of windows. What they need after the input is zero.
    pub output: i32,
}

/// A convolution of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// The windows along the rows' axis, and along the columns'.
    pub windows: [Window; 2],
    /// How many groups the channels fall into.
    pub groups: i32,
}

impl Convolution {
    /// Convolves `x` (..., C, H, W) with `w` (O, C / groups, I, J) and adds `bias` (O): (..., O, P, Q), all float32.
    ///
    /// It runs on the CPU whatever the stream is, and cannot be differentiated.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn forward(&self, x: &Array, w: &Array, bias: Option<&Array>) -> Result<Array> {
        let bias = bias.into_iter();
        for (name, array) in [("x", x), ("w", w)].into_iter().chain(bias.clone().map(|bias| ("bias", bias))) {
            if array.dtype() != Dtype::Float32 {
                return Err(Error::Dtype {
                    kernel: KERNEL,
                    array: name,
                    dtype: array.dtype(),
                    wanted: "float32",
                });
            }
        }
        let convolution = *self;
        let op = HostOp::new(
            "convolution/host",
            move |specs| {
                let ([a, b], o) = (convolution.windows, specs[1].shape.first().copied().unwrap_or(0));
                convolution.problem(&specs[0].shape, &specs[1].shape)?;
                let leading = specs[0].shape.len() - 3;
                let shape = [&specs[0].shape[..leading], &[o, a.output, b.output]].concat();
                Ok(vec![Spec::new(&shape, Dtype::Float32)])
            },
            move |inputs, outputs| {
                let problem = convolution.problem(inputs[0].shape(), inputs[1].shape())?;
                let bias = inputs.get(2).map(|bias| bias.as_slice()).transpose()?;
                let (x, w) = (inputs[0].as_slice()?, inputs[1].as_slice()?);
                Ok(host::forward(&problem, x, w, bias, outputs[0].as_mut_slice()?)?)
            },
        );
        let inputs: Vec<&Array> = [x, w].into_iter().chain(bias).collect();
        Ok(op.stacking()?.call(&inputs)?.swap_remove(0))
    }

    fn problem(&self, x: &[i32], w: &[i32]) -> Result<Problem, HostError> {
        let (&[ref leading @ .., c, height, width], &[o, depth, i, j]) = (x, w) else {
            return Err(format!("{x:?} and {w:?} are not (..., C, H, W) and (O, C / groups, I, J)").into());
        };
        let groups = self.groups;
        if groups < 1 || i64::from(depth) * i64::from(groups) != i64::from(c) || o % groups != 0 {
            return Err(format!("{c} channels, a weight {w:?} and {groups} groups do not fit").into());
        }
        let axis = |window: Window, size: i32, kernel: i32| {
            if window.stride < 1 || window.dilation < 1 || window.output < 0 {
                return Err(format!("{window:?} is no window"));
            }
            Ok(Axis {
                size: size as usize,
                kernel: kernel as usize,
                stride: window.stride as usize,
                dilation: window.dilation as usize,
                low: window.low as isize,
                output: window.output as usize,
            })
        };
        Ok(Problem {
            batch: leading.iter().map(|&n| n as usize).product(),
            groups: groups as usize,
            channels: depth as usize,
            outputs: (o / groups) as usize,
            rows: axis(self.windows[0], height, i)?,
            columns: axis(self.windows[1], width, j)?,
        })
    }
}
