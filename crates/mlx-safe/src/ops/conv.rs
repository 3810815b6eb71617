//! Convolutions.

use mlx_sys as sys;

use crate::error::argument;
use crate::{Array, Result, Stream};

/// Where a convolution's windows lie; one entry a spatial axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvGeometry {
    /// Steps between windows.
    pub stride: Vec<i32>,
    /// Zeros before.
    pub padding_low: Vec<i32>,
    /// Zeros after.
    pub padding_high: Vec<i32>,
    /// Steps between the elements of a window.
    pub kernel_dilation: Vec<i32>,
    /// Steps between input elements, with zeros in between: above 1 for a transposed convolution.
    pub input_dilation: Vec<i32>,
    /// Groups of channels.
    pub groups: i32,
    /// Whether the kernel is flipped: true convolution instead of correlation.
    pub flip: bool,
}

impl Array {
    /// Convolves `self` (N, spatial..., C) with `weight` (O, spatial..., C / groups), 1 to 3 spatial axes. Channels are
    /// last, as everywhere in MLX.
    ///
    /// # Errors
    /// If ranks or channel counts do not fit, or a step is below 1.
    pub fn conv_general(&self, weight: &Array, geometry: &ConvGeometry) -> Result<Array> {
        let g = geometry;
        let n = self.ndim().saturating_sub(2);
        let all = [&g.stride, &g.padding_low, &g.padding_high, &g.kernel_dilation, &g.input_dilation];
        if n == 0 || all.iter().any(|entries| entries.len() != n) || weight.ndim() != self.ndim() {
            return argument("conv_general", format!("{self:?}, {weight:?} and {g:?} do not fit"));
        }
        let steps = g.stride.iter().chain(&g.kernel_dilation).chain(&g.input_dilation);
        if g.groups < 1 || steps.copied().any(|step| step < 1) {
            return argument("conv_general", format!("{g:?}: steps and groups are 1 at least"));
        }
        let convolved = Stream::with_current(|s| {
            Array::from_op("conv_general", |out| {
                // SAFETY: handles are live and each slice has `n` entries that outlive the call.
                unsafe {
                    sys::mlx_conv_general(
                        out,
                        self.raw(),
                        weight.raw(),
                        g.stride.as_ptr(),
                        n,
                        g.padding_low.as_ptr(),
                        n,
                        g.padding_high.as_ptr(),
                        n,
                        g.kernel_dilation.as_ptr(),
                        n,
                        g.input_dilation.as_ptr(),
                        n,
                        g.groups,
                        g.flip,
                        s,
                    )
                }
            })
        })?;
        convolved.zeros_if_from_empty(&[self, weight])
    }
}
