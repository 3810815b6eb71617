//! Convolution in plain Rust over slices, row-major; no MLX.
//!
//! One input channel a group: every element of the window is a multiplication of shifted rows. Else a product of matrices,
//! for which windows are laid out as columns block by block, within a core's caches.

mod depthwise;
mod product;

use super::KERNEL;
use crate::{Error, Result};

/// One spatial axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Elements of the input.
    pub size: usize,
    /// Elements of a window.
    pub kernel: usize,
    /// Steps between windows.
    pub stride: usize,
    /// Steps between the elements of a window.
    pub dilation: usize,
    /// Zeros before the input; a negative number cuts.
    pub low: isize,
    /// Windows.
    pub output: usize,
}

/// The sizes.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// Images.
    pub batch: usize,
    /// Groups of channels.
    pub groups: usize,
    /// Input channels of a group.
    pub channels: usize,
    /// Output channels of a group.
    pub outputs: usize,
    /// The rows of an image.
    pub rows: Axis,
    /// The columns of an image.
    pub columns: Axis,
}

impl Problem {
    /// Elements of a channel of the input.
    fn plane(&self) -> usize {
        self.rows.size * self.columns.size
    }

    /// Windows.
    fn windows(&self) -> usize {
        self.rows.output * self.columns.output
    }

    /// Elements of a window over all channels of a group.
    fn depth(&self) -> usize {
        self.channels * self.rows.kernel * self.columns.kernel
    }

    /// Multiplications.
    fn work(&self) -> usize {
        self.batch * self.groups * self.outputs * self.depth() * self.windows()
    }
}

/// Below so many multiplications one thread is quicker than several.
const SMALL: usize = 1 << 18;

/// Convolves `x` (B, G C, H, W) with `w` (G O, C, I, J) into `y` (B, G O, P, Q), and adds `bias` (G O).
///
/// # Errors
/// If a length does not fit the sizes.
pub fn forward(problem: &Problem, x: &[f32], w: &[f32], bias: Option<&[f32]>, y: &mut [f32]) -> Result<()> {
    let all = problem.groups * problem.outputs;
    length("x", x.len(), problem.batch * problem.groups * problem.channels * problem.plane())?;
    length("w", w.len(), all * problem.depth())?;
    length("y", y.len(), problem.batch * all * problem.windows())?;
    let zeros = vec![0.0; if bias.is_none() { all } else { 0 }];
    let bias = bias.unwrap_or(&zeros);
    length("bias", bias.len(), all)?;
    if y.is_empty() {
        return Ok(());
    }
    if problem.channels == 1 && problem.groups > 1 {
        depthwise::forward(problem, x, w, bias, y);
    } else {
        product::forward(problem, x, w, bias, y);
    }
    Ok(())
}

fn length(array: &'static str, length: usize, wanted: usize) -> Result<()> {
    if length == wanted {
        return Ok(());
    }
    Err(Error::Length { kernel: KERNEL, array, length, wanted })
}

/// Every `stride`-th element of `line`, which has zeros around it, from `first` on.
#[inline(always)]
fn pick(line: &[f32], first: isize, stride: usize, to: &mut [f32]) {
    let before = first.min(0).unsigned_abs().div_ceil(stride).min(to.len());
    let (zeros, to) = to.split_at_mut(before);
    zeros.fill(0.0);
    let first = (first + (before * stride) as isize) as usize;
    let there = line.get(first..).unwrap_or_default();
    let (to, zeros) = to.split_at_mut(there.len().div_ceil(stride).min(to.len()));
    if stride == 1 {
        to.copy_from_slice(&there[..to.len()]);
    } else {
        for (to, from) in to.iter_mut().zip(there.iter().step_by(stride)) {
            *to = *from;
        }
    }
    zeros.fill(0.0);
}
