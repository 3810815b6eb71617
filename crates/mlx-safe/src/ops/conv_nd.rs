//! Convolutions of a fixed number of spatial axes. Channels are last, as everywhere in MLX.

use super::op;
use crate::error::argument;
use crate::{Array, Result};

/// Refuses what MLX would divide by.
fn check(op: &'static str, positive: &[i32], padding: &[i32], groups: i32) -> Result<()> {
    if groups < 1 || positive.iter().any(|&n| n < 1) || padding.iter().any(|&n| n < 0) {
        return argument(
            op,
            format!("steps {positive:?}, padding {padding:?} and groups {groups} do not fit"),
        );
    }
    Ok(())
}

impl Array {
    /// Convolves (N, W, C) with `weight` (O, W, C / groups), as correlation: the kernel is not flipped. `padding` is on both
    /// sides.
    ///
    /// # Errors
    /// If ranks or channel counts do not fit, a step is below 1 or a padding negative.
    pub fn conv1d(
        &self,
        weight: &Array,
        stride: i32,
        padding: i32,
        dilation: i32,
        groups: i32,
    ) -> Result<Array> {
        check("conv1d", &[stride, dilation], &[padding], groups)?;
        op!("conv1d", mlx_conv1d(self.raw(), weight.raw(), stride, padding, dilation, groups))?
            .zeros_if_from_empty(&[self, weight])
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
        check("conv_transpose1d", &[stride, dilation], &[padding, output_padding], groups)?;
        op!(
            "conv_transpose1d",
            mlx_conv_transpose1d(self.raw(), weight.raw(), stride, padding, dilation, output_padding, groups)
        )?
        .zeros_if_from_empty(&[self, weight])
    }

    /// Convolves (N, H, W, C) with `weight` (O, H, W, C / groups), as correlation: the kernel is not flipped. `padding` is on both
    /// sides.
    ///
    /// # Errors
    /// If ranks or channel counts do not fit, a step is below 1 or a padding negative.
    pub fn conv2d(
        &self,
        weight: &Array,
        stride: [i32; 2],
        padding: [i32; 2],
        dilation: [i32; 2],
        groups: i32,
    ) -> Result<Array> {
        check("conv2d", &[stride, dilation].concat(), &padding, groups)?;
        op!(
            "conv2d",
            mlx_conv2d(
                self.raw(),
                weight.raw(),
                stride[0],
                stride[1],
                padding[0],
                padding[1],
                dilation[0],
                dilation[1],
                groups
            )
        )?
        .zeros_if_from_empty(&[self, weight])
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
        check("conv_transpose2d", &[stride, dilation].concat(), &[padding, output_padding].concat(), groups)?;
        op!(
            "conv_transpose2d",
            mlx_conv_transpose2d(
                self.raw(),
                weight.raw(),
                stride[0],
                stride[1],
                padding[0],
                padding[1],
                dilation[0],
                dilation[1],
                output_padding[0],
                output_padding[1],
                groups
            )
        )?
        .zeros_if_from_empty(&[self, weight])
    }

    /// Convolves (N, D, H, W, C) with `weight` (O, D, H, W, C / groups), as correlation: the kernel is not flipped. `padding` is on both
    /// sides.
    ///
    /// # Errors
    /// If ranks or channel counts do not fit, a step is below 1 or a padding negative.
    pub fn conv3d(
        &self,
        weight: &Array,
        stride: [i32; 3],
        padding: [i32; 3],
        dilation: [i32; 3],
        groups: i32,
    ) -> Result<Array> {
        check("conv3d", &[stride, dilation].concat(), &padding, groups)?;
        op!(
            "conv3d",
            mlx_conv3d(
                self.raw(),
                weight.raw(),
                stride[0],
                stride[1],
                stride[2],
                padding[0],
                padding[1],
                padding[2],
                dilation[0],
                dilation[1],
                dilation[2],
                groups
            )
        )?
        .zeros_if_from_empty(&[self, weight])
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
        check("conv_transpose3d", &[stride, dilation].concat(), &[padding, output_padding].concat(), groups)?;
        op!(
            "conv_transpose3d",
            mlx_conv_transpose3d(
                self.raw(),
                weight.raw(),
                stride[0],
                stride[1],
                stride[2],
                padding[0],
                padding[1],
                padding[2],
                dilation[0],
                dilation[1],
                dilation[2],
                output_padding[0],
                output_padding[1],
                output_padding[2],
                groups
            )
        )?
        .zeros_if_from_empty(&[self, weight])
    }
}
