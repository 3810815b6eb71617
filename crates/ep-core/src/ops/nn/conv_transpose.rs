//! `ConvTranspose` (ai.onnx 1+) as a convolution of the input spread by the strides with the flipped weight.

use mlx_safe::{Array, DeviceType};

use super::conv::{groups, kernel_of};
use super::convolve::convolve;
use super::window::{AutoPad, Axis, WindowAttributes, fit_i32, sizes, spatial};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The attributes.
pub(crate) struct ConvTranspose {
    windows: WindowAttributes,
    /// Empty where the weight alone says so.
    kernel: Vec<i32>,
    groups: i32,
    /// Empty for zeros.
    output_padding: Vec<i32>,
    /// Spatial sizes; empty if not given.
    output_shape: Vec<i32>,
    device: DeviceType,
}

impl Op for ConvTranspose {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("ConvTranspose")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        let output_shape = sizes(node, "output_shape", 0)?;
        if node.input_rank(0).is_some_and(|rank| !output_shape.is_empty() && output_shape.len() + 2 != rank) {
            return Err(Decline::form("output_shape that is not one size a spatial axis"));
        }
        Ok(Self {
            windows: WindowAttributes::claim(node)?,
            kernel: sizes(node, "kernel_shape", 1)?,
            groups: groups(node)?,
            output_padding: sizes(node, "output_padding", 0)?,
            output_shape,
            device: node.device(),
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("windows are laid out for the sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (x, w) = (cx.array(0)?, cx.array(1)?);
        let kernel = kernel_of(x.shape(), w.shape(), &self.kernel)?;
        if w.dim(0)? != x.dim(1)? || w.dim(0)? % self.groups != 0 {
            return Err(LowerError::invalid(format!(
                "input {:?}, weight {:?} and {} groups do not fit in channels",
                x.shape(),
                w.shape(),
                self.groups
            )));
        }
        let input = spatial(x.shape())?;
        let axes: Result<Vec<Axis>, LowerError> = (input.iter().zip(kernel).enumerate())
            .map(|(i, (&size, &kernel))| self.axis(i, size, kernel, input.len()))
            .collect();
        let bias = cx.optional_array(2)?;
        let y = convolve(&x, &turned(&w, self.groups)?, bias.as_ref(), &axes?, self.groups, self.device)?;
        cx.emit(0, y)
    }
}

impl ConvTranspose {
    /// The equivalent convolution along spatial axis `i`.
    fn axis(&self, i: usize, size: i32, kernel: i32, rank: usize) -> Result<Axis, LowerError> {
        let axis = self.windows.axis(i, size, kernel, rank)?;
        let extra = self.output_padding.get(i).copied().unwrap_or(0);
        let fit = |n: usize| n == 0 || n == rank;
        if !fit(self.output_padding.len()) || !fit(self.output_shape.len()) || extra >= axis.stride {
            return Err(LowerError::invalid(format!(
                "output_padding {:?} and output_shape {:?} do not fit strides {} and {rank} axes",
                self.output_padding, self.output_shape, axis.stride
            )));
        }
        let window = i64::from(kernel - 1) * i64::from(axis.dilation) + 1;
        let whole = i64::from(size - 1) * i64::from(axis.stride) + window + i64::from(extra);
        let asked = match (self.output_shape.get(i), self.windows.auto_pad) {
            (Some(&output), _) => Some(i64::from(output)),
            (None, AutoPad::SameUpper | AutoPad::SameLower) => {
                Some(whole.min(i64::from(size) * i64::from(axis.stride)))
            }
            (None, _) => None,
        };
        let (before, output) = match (asked, self.windows.auto_pad) {
            (Some(output), _) if output + i64::from(extra) >= whole + i64::from(axis.stride) => {
                return Err(LowerError::invalid(format!(
                    "output_shape {output} is more than the input's {size} can give"
                )));
            }
            (Some(output), AutoPad::SameUpper) => ((whole - output).max(0) / 2, output),
            (Some(output), _) => (((whole - output).max(0) + 1) / 2, output),
            (None, AutoPad::NotSet) => {
                let (low, high) = (i64::from(axis.low), i64::from(axis.high));
                (low, whole - low - high)
            }
            (None, _) => (0, whole),
        };
        if output <= 0 {
            return Err(LowerError::invalid(format!("an output of size {output} for an input of {size}")));
        }
        let axis = Axis {
            spread: axis.stride,
            stride: 1,
            low: fit_i32(window - 1 - before)?,
            output: fit_i32(output)?,
            ..axis
        };
        fit_i32(output + window)?;
        fit_i32(i64::from(size) * i64::from(axis.spread))?;
        Ok(axis)
    }
}

/// (C, O / groups, kernel...) as the weight of a convolution, (O, C / groups, flipped kernel...).
fn turned(w: &Array, groups: i32) -> Result<Array, LowerError> {
    let &[c, o_group, ref kernel @ ..] = w.shape() else {
        return Err(LowerError::Bug("a weight without channels".into()));
    };
    let rank = w.ndim() as i32;
    let with = |lead: &[i32]| lead.iter().chain(kernel).copied().collect::<Vec<i32>>();
    let order: Vec<i32> = [0, 2, 1].into_iter().chain(3..rank + 1).collect();
    let turned = w
        .reshape(&with(&[groups, c / groups, o_group]))?
        .transpose(&order)?
        .reshape(&with(&[groups * o_group, c / groups]))?;
    Ok(turned.flip(&(2..rank).collect::<Vec<_>>())?)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn transposed(x: impl Into<Vec<usize>>, w: impl Into<Vec<usize>>) -> Case {
        case("ConvTranspose", 11).x(f32s(x)).c(f32s(w))
    }

    op_cases! {
        plain: transposed([2, 3, 4, 5], [3, 4, 3, 3]) => close(tol::F32_SUM);
        strides: transposed([1, 3, 4, 5], [3, 4, 3, 3]).c(f32s([4])).attr("strides", vec![2, 3]) => close(tol::F32_SUM);
        kernel_as_long_as_strides: transposed([2, 3, 4, 5], [3, 4, 2, 3]).c(f32s([4])).attr("strides", vec![2, 3]) => close(tol::F32_SUM);
        kernel_as_long_as_strides_cut: transposed([2, 3, 4, 5], [3, 4, 2, 3]).attr("strides", vec![2, 3]).attr("pads", vec![1, 0, 0, 0]) => close(tol::F32_SUM);
        kernel_as_long_as_stride: transposed([2, 3, 5], [3, 4, 3]).attr("strides", vec![3]) => close(tol::F32_SUM);
        stride_exceeds_kernel: transposed([1, 2, 4, 5], [2, 3, 2, 1]).attr("strides", vec![3, 3]) => close(tol::F32_SUM);
        pads: transposed([1, 3, 4, 5], [3, 4, 4, 4]).attr("strides", vec![2, 2]).attr("pads", vec![1, 0, 2, 1]) => close(tol::F32_SUM);
        pads_exceed_kernel: transposed([1, 1, 5], [1, 1, 3]).attr("strides", vec![2]).attr("pads", vec![3, 4]) => close(tol::F32_SUM);
        negative_pads: transposed([1, 1, 5], [1, 1, 3]).attr("pads", vec![-1, 0]) => declines();
        output_padding: transposed([1, 2, 4, 5], [2, 3, 3, 3]).attr("strides", vec![3, 2]).attr("output_padding", vec![2, 1]) => close(tol::F32_SUM);
        dilations: transposed([1, 2, 4, 5], [2, 3, 3, 3]).attr("strides", vec![2, 1]).attr("dilations", vec![2, 3]) => close(tol::F32_SUM);
        groups: transposed([2, 4, 4, 5], [4, 3, 3, 3]).attr("group", 2).attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        groups_of_one_pixel: transposed([1, 4, 1, 1], [4, 3, 1, 1]).attr("group", 2).attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        groups_of_one_column: transposed([1, 4, 5, 1], [4, 3, 1, 1]).attr("group", 2).attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        depthwise: transposed([2, 4, 4, 5], [4, 1, 4, 4]).c(f32s([4])).attr("group", 4).attr("strides", vec![2, 2]).attr("pads", vec![1, 1, 1, 1]) => close(tol::F32_SUM);
        same_upper: transposed([1, 2, 4, 5], [2, 3, 4, 3]).attr("auto_pad", "SAME_UPPER").attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        same_lower: transposed([1, 2, 4, 5], [2, 3, 4, 3]).attr("auto_pad", "SAME_LOWER").attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        same_short: transposed([1, 1, 3], [1, 1, 2]).attr("auto_pad", "SAME_UPPER").attr("strides", vec![3]) => close(tol::F32_SUM);
        same_dilated: transposed([1, 1, 3], [1, 1, 3]).attr("auto_pad", "SAME_LOWER").attr("strides", vec![2]).attr("dilations", vec![2]) => close(tol::F32_SUM);
        valid: transposed([1, 2, 4, 5], [2, 3, 4, 3]).attr("auto_pad", "VALID").attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        output_shape: transposed([1, 2, 3, 3], [2, 3, 3, 3]).attr("strides", vec![3, 2]).attr("output_shape", vec![10, 8]) => close(tol::F32_SUM);
        output_shape_cuts: transposed([1, 1, 3], [1, 1, 3]).attr("strides", vec![2]).attr("output_shape", vec![6]) => close(tol::F32_SUM);
        output_shape_upper: transposed([1, 1, 3], [1, 1, 3]).attr("strides", vec![2]).attr("output_shape", vec![6]).attr("auto_pad", "SAME_UPPER") => close(tol::F32_SUM);
        output_shape_all: transposed([1, 1, 3], [1, 1, 3]).attr("strides", vec![2]).attr("output_shape", vec![6]).attr("output_padding", vec![1]).attr("dilations", vec![2]) => close(tol::F32_SUM);
        one_axis: transposed([2, 3, 5], [3, 2, 4]).c(f32s([2])).attr("strides", vec![2]).attr("pads", vec![1, 1]) => close(tol::F32_SUM);
        three_axes: transposed([1, 2, 3, 2, 4], [2, 3, 2, 3, 2]).attr("strides", vec![2, 1, 2]) => close(tol::F32_SUM);
        dynamic_weight: case("ConvTranspose", 1).x(f32s([1, 2, 5])).x(f32s([2, 3, 3])).x(f32s([3])) => close(tol::F32_SUM);
        half: case("ConvTranspose", 22).x(random(E::Float16, [1, 3, 4, 5])).c(random(E::Float16, [3, 2, 3, 3])).attr("strides", vec![2, 2]) => close(tol::F16);
        bfloat: case("ConvTranspose", 22).x(random(E::Bfloat16, [1, 3, 4])).c(random(E::Bfloat16, [3, 2, 3])) => close(tol::BF16);
        no_batch: transposed([0, 2, 4], [2, 3, 3]) => exact();
        no_pixels: transposed([1, 1, 0], [1, 1, 3]) => exact();
        nothing_left: transposed([1, 1, 3], [1, 1, 3]).attr("pads", vec![3, 3]) => fails("output");
        wrong_channels: case("ConvTranspose", 11).x(f32s([1, 3, 4])).x(f32s([2, 3, 3])) => fails("channels");
        output_shape_too_large: transposed([1, 1, 3], [1, 1, 3]).attr("strides", vec![2]).attr("output_shape", vec![9]) => fails("output_shape");
        output_shape_too_large_with_padding: transposed([1, 1, 3], [1, 1, 3]).attr("strides", vec![2]).attr("output_shape", vec![9]).attr("output_padding", vec![1]) => fails("output_shape");
        output_shape_largest: transposed([1, 1, 3], [1, 1, 3]).attr("strides", vec![2]).attr("output_shape", vec![8]).attr("output_padding", vec![1]) => close(tol::F32_SUM);
        output_padding_of_dilation: transposed([1, 1, 3], [1, 1, 3]).attr("strides", vec![2]).attr("dilations", vec![3]).attr("output_padding", vec![2]) => fails("output_padding");
        output_padding_of_dilation_and_shape: transposed([1, 1, 3], [1, 1, 3]).attr("strides", vec![2]).attr("dilations", vec![3]).attr("output_padding", vec![2]).attr("output_shape", vec![7]) => fails("output_padding");
        output_padding_too_large: transposed([1, 1, 3], [1, 1, 3]).attr("strides", vec![2]).attr("output_padding", vec![2]) => fails("output_padding");
    }
}
