//! Convolutions.
//!
//! MLX's derivative of a convolution is right for equal padding on both sides that is shorter than the kernel, and for an
//! input without holes or steps of 1; its convolution, for padding that is not negative or an input without holes. Everything
//! else is brought to that form.

use mlx_sys as sys;

use crate::error::argument;
use crate::{Array, Dtype, PadMode, Result, Stream};

/// Where a convolution's windows lie; one entry a spatial axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvGeometry {
    /// Steps between windows.
    pub stride: Vec<i32>,
    /// Zeros before; a negative number leaves elements out.
    pub padding_low: Vec<i32>,
    /// Zeros after; a negative number leaves elements out.
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
    /// If ranks or channel counts do not fit, a step is below 1, or no window fits into the padded input.
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
        let spans: Vec<Span> = (0..n).map(|i| Span::new(self, weight, g, i)).collect();
        if let Some(span) = spans.iter().find(|span| span.windows() < 1) {
            return argument("conv_general", format!("{span:?}: no window fits in"));
        }
        let convolved = match spans.iter().map(Span::even).collect::<Option<Vec<_>>>() {
            Some(even) => {
                let padding: Vec<i32> = even.iter().map(|even| even.padding).collect();
                let whole = self.convolve(weight, &padding, g)?;
                let mut part = whole;
                for (axis, (even, span)) in even.iter().zip(&spans).enumerate() {
                    let (first, after) = (even.first, even.first + span.windows() as i32);
                    if first > 0 || after < part.dim(axis as i32 + 1)? {
                        part = part.slice_axis(axis as i32 + 1, first..after)?;
                    }
                }
                part
            }
            None => {
                let plain = ConvGeometry { input_dilation: vec![1; n], ..g.clone() };
                self.with_holes(&g.input_dilation)?.framed(g)?.convolve(weight, &vec![0; n], &plain)?
            }
        };
        convolved.zeros_if_from_empty(&[self, weight])
    }

    /// MLX's convolution with `padding` on both sides instead of the geometry's.
    fn convolve(&self, weight: &Array, padding: &[i32], g: &ConvGeometry) -> Result<Array> {
        let n = padding.len();
        Stream::with_current(|s| {
            Array::from_op("conv_general", |out| {
                // SAFETY: handles are live and each slice has `n` entries that outlive the call.
                unsafe {
                    sys::mlx_conv_general(
                        out,
                        self.raw(),
                        weight.raw(),
                        g.stride.as_ptr(),
                        n,
                        padding.as_ptr(),
                        n,
                        padding.as_ptr(),
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
        })
    }

    /// Zeros put between the elements of the spatial axes, which lie `steps` apart then.
    fn with_holes(&self, steps: &[i32]) -> Result<Array> {
        let mut array = self.clone();
        for (axis, &step) in (1..).zip(steps) {
            let n = array.dim(axis)?;
            if step > 1 && n > 1 {
                let parts = array.expand_dims(axis + 1)?;
                let zero = Array::scalar_of(0.0, Dtype::Bool)?.astype(self.dtype())?;
                let parts = parts.pad(&[axis + 1], &[0], &[step - 1], &zero, PadMode::Constant)?;
                let length = (i64::from(n) - 1) * i64::from(step) + 1;
                let Ok(length) = i32::try_from(length) else {
                    return argument("conv_general", format!("{self:?} with steps {steps:?} is too large"));
                };
                array = parts.flatten(axis, axis + 1)?.slice_axis(axis, ..length)?;
            }
        }
        Ok(array)
    }

    /// The spatial axes padded, or cut where the padding is negative.
    fn framed(&self, g: &ConvGeometry) -> Result<Array> {
        let axes: Vec<i32> = (1..=g.padding_low.len() as i32).collect();
        let zeros = |padding: &[i32]| padding.iter().map(|&n| n.max(0)).collect::<Vec<i32>>();
        let zero = Array::scalar_of(0.0, Dtype::Bool)?.astype(self.dtype())?;
        let (low, high) = (zeros(&g.padding_low), zeros(&g.padding_high));
        let mut array = self.pad(&axes, &low, &high, &zero, PadMode::Constant)?;
        for (i, &axis) in axes.iter().enumerate() {
            let (first, cut) = ((-g.padding_low[i]).max(0), g.padding_high[i].min(0));
            if first > 0 || cut < 0 {
                array = array.slice_axis(axis, first..array.dim(axis)? + cut)?;
            }
        }
        Ok(array)
    }
}

/// A spatial axis, in elements of the input with its holes.
#[derive(Debug)]
struct Span {
    input: i64,
    kernel: i64,
    stride: i64,
    low: i64,
    high: i64,
    /// Whether the input has holes.
    holes: bool,
}

/// A padding that is the same on both sides, and the first window that counts then.
struct Even {
    padding: i32,
    first: i32,
}

impl Span {
    fn new(input: &Array, weight: &Array, g: &ConvGeometry, i: usize) -> Self {
        let reach = |n: i32, step: i32| if n == 0 { 0 } else { i64::from(n - 1) * i64::from(step) + 1 };
        Self {
            input: reach(input.shape()[i + 1], g.input_dilation[i]),
            kernel: reach(weight.shape()[i + 1], g.kernel_dilation[i]),
            stride: g.stride[i].into(),
            low: g.padding_low[i].into(),
            high: g.padding_high[i].into(),
            holes: g.input_dilation[i] > 1,
        }
    }

    /// How many windows there are; below 1 if the padded input is shorter than one.
    fn windows(&self) -> i64 {
        (self.input + self.low + self.high - self.kernel).div_euclid(self.stride) + 1
    }

    fn even(&self) -> Option<Even> {
        let padding = self.low.max(self.high);
        let more = padding - self.low;
        let fits = self.low.min(self.high) >= 0 && padding < self.kernel.max(1) && more % self.stride == 0;
        let fits = fits && (self.stride == 1 || !self.holes);
        let first = i32::try_from(more / self.stride).ok()?;
        fits.then_some(Even { padding: i32::try_from(padding).ok()?, first })
    }
}
