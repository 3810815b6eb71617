//! `Conv` (ai.onnx 1+) on any number of spatial axes.

use mlx_safe::{Array, DeviceType};

use super::convolve::{convolve, stored};
use super::window::{AutoPad, WindowAttributes, sizes, spatial};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The attributes.
pub(crate) struct Conv {
    windows: WindowAttributes,
    /// Empty where the weight alone says so.
    kernel: Vec<i32>,
    groups: i32,
    device: DeviceType,
}

impl Op for Conv {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Conv")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        let windows = WindowAttributes::claim(node)?;
        if matches!(windows.auto_pad, AutoPad::SameUpper | AutoPad::SameLower) && windows.is_dilated() {
            return Err(Decline::form("dilations with auto_pad SAME"));
        }
        Ok(Self {
            windows,
            kernel: sizes(node, "kernel_shape", 1)?,
            groups: groups(node)?,
            device: node.device(),
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("windows are laid out for the sizes")
    }

    fn stored(&self, i: usize, constant: &Array) -> mlx_safe::Result<Option<Array>> {
        if i == 1 { stored(constant, self.device) } else { Ok(None) }
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let y = self.convolve(cx)?;
        cx.emit(0, y)
    }
}

impl Conv {
    /// The convolution of the first three inputs.
    pub(super) fn convolve(&self, cx: &Lowering<'_>) -> Result<Array, LowerError> {
        let (x, w) = (cx.array(0)?, cx.array(1)?);
        let kernel = kernel_of(x.shape(), w.shape(), &self.kernel)?;
        let axes = self.windows.axes(spatial(x.shape())?, kernel, false)?;
        let bias = cx.optional_array(2)?;
        convolve(&x, &w, bias.as_ref(), &axes, self.groups, self.device)
    }
}

/// The attribute `group`.
pub(super) fn groups(node: &NodeRef<'_>) -> Result<i32, Decline> {
    let groups = node.int_or("group", 1)?;
    i32::try_from(groups).ok().filter(|&g| g >= 1).ok_or_else(|| Decline::attribute("group", groups))
}

/// The weight's spatial sizes.
///
/// # Errors
/// If they are not the `declared` ones, or the ranks differ.
pub(super) fn kernel_of<'a>(x: &[i32], w: &'a [i32], declared: &[i32]) -> Result<&'a [i32], LowerError> {
    if x.len() != w.len() {
        return Err(LowerError::invalid(format!("input {x:?} and weight {w:?} differ in rank")));
    }
    let kernel = spatial(w)?;
    if !declared.is_empty() && declared != kernel {
        return Err(LowerError::invalid(format!("kernel_shape is {declared:?}, the weight {w:?}")));
    }
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    use onnx_graph::Tensor;

    use crate::testing::*;

    fn conv(x: impl Into<Vec<usize>>, w: impl Into<Vec<usize>>) -> Case {
        case("Conv", 11).x(f32s(x)).c(f32s(w))
    }

    op_cases! {
        plain: conv([2, 3, 7, 8], [4, 3, 3, 3]) => close(tol::F32_SUM);
        bias_and_pads: conv([1, 3, 7, 8], [4, 3, 3, 2]).c(f32s([4])).attr("pads", vec![1, 0, 2, 1]).attr("kernel_shape", vec![3, 2]) => close(tol::F32_SUM);
        strides: conv([1, 3, 9, 10], [4, 3, 3, 3]).attr("strides", vec![2, 3]).attr("pads", vec![1, 1, 1, 1]) => close(tol::F32_SUM);
        dilations: conv([1, 3, 9, 10], [4, 3, 3, 2]).attr("dilations", vec![2, 3]) => close(tol::F32_SUM);
        pointwise: conv([2, 8, 5, 6], [4, 8, 1, 1]).c(f32s([4])) => close(tol::F32_SUM);
        pointwise_padded: conv([2, 8, 5, 6], [4, 8, 1, 1]).attr("pads", vec![1, 0, 0, 2]) => close(tol::F32_SUM);
        pointwise_strided: conv([2, 8, 5, 6], [4, 8, 1, 1]).attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        pointwise_one_window: conv([1, 64, 2, 2], [8, 64, 1, 1]).attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        pointwise_one_window_of_stride_3: conv([1, 8, 3, 3], [4, 8, 1, 1]).attr("strides", vec![3, 3]) => close(tol::F32_SUM);
        pointwise_one_window_of_one_axis: conv([1, 2, 3], [3, 2, 1]).attr("strides", vec![3]) => close(tol::F32_SUM);
        pointwise_one_window_of_three_axes: conv([1, 4, 2, 2, 2], [3, 4, 1, 1, 1]).attr("strides", vec![2, 2, 2]) => close(tol::F32_SUM);
        pointwise_one_window_of_groups: conv([1, 8, 2, 2], [4, 4, 1, 1]).attr("group", 2).attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        groups: conv([1, 6, 7, 8], [4, 3, 3, 3]).attr("group", 2) => close(tol::F32_SUM);
        groups_dilated: conv([2, 6, 9, 8], [9, 2, 3, 3]).attr("group", 3).attr("dilations", vec![2, 2]) => close(tol::F32_SUM);
        depthwise: conv([2, 6, 7, 8], [6, 1, 3, 3]).c(f32s([6])).attr("group", 6).attr("pads", vec![1, 1, 1, 1]) => close(tol::F32_SUM);
        depthwise_multiplier: conv([2, 3, 7, 8], [6, 1, 3, 3]).attr("group", 3).attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        depthwise_wide: conv([2, 6, 17, 75], [6, 1, 5, 5]).c(f32s([6])).attr("group", 6).attr("pads", vec![2, 2, 2, 2]).attr("strides", vec![1, 2]) => close(tol::F32_SUM);
        depthwise_dilated: conv([1, 6, 17, 35], [6, 1, 3, 3]).attr("group", 6).attr("pads", vec![2, 3, 2, 3]).attr("dilations", vec![2, 3]).attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        depthwise_one_axis: conv([2, 6, 40], [6, 1, 4]).attr("group", 6).attr("pads", vec![3, 0]) => close(tol::F32_SUM);
        deep: conv([1, 40, 20, 21], [20, 40, 3, 3]).c(f32s([20])).attr("pads", vec![1, 1, 1, 1]) => close(tol::F32_SUM);
        depthwise_large: conv([1, 3, 12, 13], [3, 1, 9, 9]).attr("group", 3).attr("pads", vec![4, 4, 4, 4]) => close(tol::F32_SUM);
        one_axis: conv([2, 3, 9], [4, 3, 3]).attr("pads", vec![1, 2]).attr("strides", vec![2]) => close(tol::F32_SUM);
        one_axis_groups: conv([2, 4, 9], [4, 2, 3]).attr("group", 2) => close(tol::F32_SUM);
        three_axes: conv([1, 2, 4, 5, 6], [3, 2, 2, 3, 2]).attr("pads", vec![0, 1, 0, 1, 0, 1]).attr("strides", vec![1, 2, 1]) => close(tol::F32_SUM);
        three_axes_groups: conv([1, 4, 4, 5, 6], [2, 2, 2, 3, 2]).attr("group", 2) => close(tol::F32_SUM);
        same_upper: conv([1, 2, 7, 8], [3, 2, 4, 3]).attr("auto_pad", "SAME_UPPER").attr("strides", vec![2, 3]) => close(tol::F32_SUM);
        same_lower: conv([1, 2, 7, 8], [3, 2, 4, 3]).attr("auto_pad", "SAME_LOWER").attr("strides", vec![2, 1]) => close(tol::F32_SUM);
        same_with_gaps_between_windows: conv([1, 1, 6], [1, 1, 1]).attr("auto_pad", "SAME_UPPER").attr("strides", vec![3]) => close(tol::F32_SUM);
        same_lower_with_gaps_between_windows: conv([1, 1, 9], [1, 1, 1]).attr("auto_pad", "SAME_LOWER").attr("strides", vec![4]) => close(tol::F32_SUM);
        valid_ignores_pads: conv([1, 2, 7, 8], [3, 2, 4, 3]).attr("auto_pad", "VALID").attr("strides", vec![2, 2]) => close(tol::F32_SUM);
        padding_exceeds_the_input: conv([1, 2, 1, 1], [2, 2, 3, 3]).attr("pads", vec![3, 3, 1, 1]) => close(tol::F32_SUM);
        negative_pads: conv([1, 2, 7, 8], [3, 2, 3, 3]).attr("pads", vec![-1, 0, -2, 1]) => declines();
        dynamic_weight: case("Conv", 1).x(f32s([1, 2, 5, 6])).x(f32s([3, 2, 2, 3])).x(f32s([3])) => close(tol::F32_SUM);
        half: case("Conv", 22).x(random(E::Float16, [1, 3, 6, 7])).c(random(E::Float16, [4, 3, 3, 3])).c(random(E::Float16, [4])) => close(tol::F16);
        half_depthwise: case("Conv", 11).x(random(E::Float16, [1, 3, 6, 7])).c(random(E::Float16, [3, 1, 3, 3])).attr("group", 3) => close(tol::F16);
        bfloat: case("Conv", 22).x(random(E::Bfloat16, [1, 3, 6, 7])).c(random(E::Bfloat16, [4, 3, 3, 3])) => close(tol::BF16);
        no_batch: conv([0, 3, 7, 8], [4, 3, 3, 3]) => exact();
        no_channels: conv([1, 0, 7, 8], [4, 0, 3, 3]) => exact();
        no_pixels_but_padding: conv([1, 2, 0], [4, 2, 3]).attr("pads", vec![2, 2]) => exact();
        too_small: conv([1, 1, 2], [1, 1, 3]) => fails("no window");
        wrong_channels: case("Conv", 11).x(f32s([1, 3, 7])).x(f32s([4, 2, 3])) => fails("channels");
        wrong_kernel: case("Conv", 11).x(f32s([1, 3, 7])).x(f32s([4, 3, 3])).attr("kernel_shape", vec![2]) => fails("kernel_shape");
        same_dilated: conv([1, 1, 6], [1, 1, 3]).attr("auto_pad", "SAME_UPPER").attr("dilations", vec![2]) => declines();
        double: case("Conv", 11).x(random(E::Double, [1, 1, 3])).x(random(E::Double, [1, 1, 2])) => declines();
    }

    /// A filter that `Slice` reversed, and an input that it cut.
    #[test]
    fn after_a_slice() {
        let slice = |x: Tensor<'static>, start: i64, stop: i64, axis: i64, step: i64| {
            case("Slice", 13).x(x).c(i64s(&[start])).c(i64s(&[stop])).c(i64s(&[axis])).c(i64s(&[step]))
        };
        let conv = |x: [usize; 3]| case("Conv", 13).x(f32s(x));
        chain(&slice(f32s([2, 1, 2]), -1, -9, 0, -1), E::Float, &conv([1, 1, 3]), tol::F32_SUM);
        chain(&slice(f32s([4, 3, 2]), -1, -9, 0, -1), E::Float, &conv([2, 3, 5]), tol::F32_SUM);
        chain(&slice(f32s([4, 3, 2]), -1, -9, 1, -1), E::Float, &conv([2, 3, 5]), tol::F32_SUM);
        chain(&slice(f32s([4, 3, 9]), 1, 9, 2, 3), E::Float, &conv([1, 3, 3]), tol::F32_SUM);
    }
}
