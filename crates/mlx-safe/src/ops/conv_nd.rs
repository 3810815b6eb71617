//! Convolutions of a fixed number of spatial axes, as [`ConvGeometry`]. Channels are last, as everywhere in MLX.

use super::conv::ConvGeometry;
use crate::error::argument;
use crate::{Array, Result};

/// The same padding on both sides.
fn window(stride: &[i32], padding: &[i32], dilation: &[i32], groups: i32) -> Result<ConvGeometry> {
    if padding.iter().any(|&n| n < 0) {
        return argument("conv", format!("padding {padding:?} is negative"));
    }
    Ok(ConvGeometry {
        stride: stride.to_vec(),
        padding_low: padding.to_vec(),
        padding_high: padding.to_vec(),
        kernel_dilation: dilation.to_vec(),
        input_dilation: vec![1; stride.len()],
        groups,
        flip: false,
    })
}

/// What spreads elements out as [`window`] gathers them: the input gets holes, and the flipped kernel goes over it with as
/// much padding as the kernel is longer than `padding`.
fn transposed(
    weight: &Array,
    stride: &[i32],
    padding: &[i32],
    dilation: &[i32],
    output_padding: &[i32],
    groups: i32,
) -> Result<ConvGeometry> {
    let gathering = window(stride, padding, dilation, groups)?;
    if weight.ndim() != stride.len() + 2 || output_padding.iter().any(|&n| n < 0) {
        return argument("conv_transpose", format!("{weight:?} and {output_padding:?} do not fit"));
    }
    let sizes = weight.shape()[1..].iter().zip(dilation);
    let reach = sizes.map(|(&n, &step)| i64::from(n - 1) * i64::from(step));
    let low: Vec<i64> = reach.zip(padding).map(|(reach, &padding)| reach - i64::from(padding)).collect();
    let high = low.iter().zip(output_padding).map(|(low, &more)| low + i64::from(more));
    let narrow = |n: i64| i32::try_from(n).or_else(|_| argument("conv_transpose", format!("padding of {n}")));
    Ok(ConvGeometry {
        stride: vec![1; stride.len()],
        padding_low: low.iter().copied().map(narrow).collect::<Result<_>>()?,
        padding_high: high.map(narrow).collect::<Result<_>>()?,
        input_dilation: stride.to_vec(),
        flip: true,
        ..gathering
    })
}

impl Array {
    /// Convolves (N, W, C) with `weight` (O, W, C / groups), as correlation: the kernel is not flipped. `padding` is on both
    /// sides.
    ///
    /// # Errors
    /// If ranks or channel counts do not fit, a step is below 1, a padding negative, or no window fits in.
    pub fn conv1d(
        &self,
        weight: &Array,
        stride: i32,
        padding: i32,
        dilation: i32,
        groups: i32,
    ) -> Result<Array> {
        self.conv_general(weight, &window(&[stride], &[padding], &[dilation], groups)?)
    }

    /// The transpose of [`Array::conv1d`]: each element of (N, W, C) with `weight` (O, W, C / groups), spreads out.
    /// `output_padding` is added at the far end only.
    ///
    /// # Errors
    /// If ranks or channel counts do not fit, a step is below 1 or a padding negative.
    pub fn conv_transpose1d(
        &self,
        weight: &Array,
        stride: i32,
        padding: i32,
        dilation: i32,
        output_padding: i32,
        groups: i32,
    ) -> Result<Array> {
        let (stride, padding, dilation) = (&[stride], &[padding], &[dilation]);
        let geometry = transposed(weight, stride, padding, dilation, &[output_padding], groups)?;
        self.conv_general(weight, &geometry)
    }

    /// Convolves (N, H, W, C) with `weight` (O, H, W, C / groups), as correlation: the kernel is not flipped. `padding` is on both
    /// sides.
    ///
    /// # Errors
    /// If ranks or channel counts do not fit, a step is below 1, a padding negative, or no window fits in.
    pub fn conv2d(
        &self,
        weight: &Array,
        stride: [i32; 2],
        padding: [i32; 2],
        dilation: [i32; 2],
        groups: i32,
    ) -> Result<Array> {
        self.conv_general(weight, &window(&stride, &padding, &dilation, groups)?)
    }

    /// The transpose of [`Array::conv2d`]: each element of (N, H, W, C) with `weight` (O, H, W, C / groups), spreads out.
    /// `output_padding` is added at the far end only.
    ///
    /// # Errors
    /// If ranks or channel counts do not fit, a step is below 1 or a padding negative.
    pub fn conv_transpose2d(
        &self,
        weight: &Array,
        stride: [i32; 2],
        padding: [i32; 2],
        dilation: [i32; 2],
        output_padding: [i32; 2],
        groups: i32,
    ) -> Result<Array> {
        let (stride, padding, dilation) = (&stride, &padding, &dilation);
        let geometry = transposed(weight, stride, padding, dilation, &output_padding, groups)?;
        self.conv_general(weight, &geometry)
    }

    /// Convolves (N, D, H, W, C) with `weight` (O, D, H, W, C / groups), as correlation: the kernel is not flipped. `padding` is on both
    /// sides.
    ///
    /// # Errors
    /// If ranks or channel counts do not fit, a step is below 1, a padding negative, or no window fits in.
    pub fn conv3d(
        &self,
        weight: &Array,
        stride: [i32; 3],
        padding: [i32; 3],
        dilation: [i32; 3],
        groups: i32,
    ) -> Result<Array> {
        self.conv_general(weight, &window(&stride, &padding, &dilation, groups)?)
    }

    /// The transpose of [`Array::conv3d`]: each element of (N, D, H, W, C) with `weight` (O, D, H, W, C / groups), spreads out.
    /// `output_padding` is added at the far end only.
    ///
    /// # Errors
    /// If ranks or channel counts do not fit, a step is below 1 or a padding negative.
    pub fn conv_transpose3d(
        &self,
        weight: &Array,
        stride: [i32; 3],
        padding: [i32; 3],
        dilation: [i32; 3],
        output_padding: [i32; 3],
        groups: i32,
    ) -> Result<Array> {
        let (stride, padding, dilation) = (&stride, &padding, &dilation);
        let geometry = transposed(weight, stride, padding, dilation, &output_padding, groups)?;
        self.conv_general(weight, &geometry)
    }
}
