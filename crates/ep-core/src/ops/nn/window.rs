//! Where the windows of convolutions and pools lie: attributes, output sizes, padding, and views of all windows.

use mlx_safe::{Array, PadMode, full};

use crate::{Decline, LowerError, NodeRef};

/// The attribute `auto_pad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AutoPad {
    /// As `pads` says.
    NotSet,
    /// As many windows as strides fit; the odd element after.
    SameUpper,
    /// As many windows as strides fit; the odd element before.
    SameLower,
    /// None.
    Valid,
}

/// The attributes that convolutions and pools share; an empty list stands for its default.
#[derive(Debug)]
pub(crate) struct WindowAttributes {
    pub(crate) auto_pad: AutoPad,
    pads: Vec<i32>,
    strides: Vec<i32>,
    dilations: Vec<i32>,
    /// Whether a last window may reach beyond the padding.
    ceil: bool,
}

/// One spatial axis. `low` elements of padding lie before the input (a negative number cuts), and the windows say how many
/// are needed after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// Elements of the input.
    pub(crate) size: i32,
    /// Steps between the input's elements, with zeros in between.
    pub(crate) spread: i32,
    /// Elements of a window.
    pub(crate) kernel: i32,
    /// Steps between windows.
    pub(crate) stride: i32,
    /// Steps between the elements of a window.
    pub(crate) dilation: i32,
    /// Padding before.
    pub(crate) low: i32,
    /// Padding after, as declared: the windows may leave some of it or, rounding up, want more.
    pub(crate) high: i32,
    /// Windows.
    pub(crate) output: i32,
}

impl Axis {
    /// The input's length with its zeros in between.
    pub(crate) fn spread_size(&self) -> i32 {
        if self.size == 0 { 0 } else { (self.size - 1) * self.spread + 1 }
    }

    /// From the first element of the first window to the last of the last.
    pub(crate) fn reach(&self) -> i32 {
        (self.output - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
    }

    /// Padding after the input that the windows ask for; negative if they leave elements out.
    pub(crate) fn tail(&self) -> i32 {
        self.reach() - self.low - self.spread_size()
    }
}

impl WindowAttributes {
    /// Reads `auto_pad`, `pads`, `strides`, `dilations` and `ceil_mode`.
    pub(crate) fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let auto_pad = match node.string_or("auto_pad", "NOTSET")? {
            "NOTSET" | "" => AutoPad::NotSet,
            "SAME_UPPER" => AutoPad::SameUpper,
            "SAME_LOWER" => AutoPad::SameLower,
            "VALID" => AutoPad::Valid,
            other => return Err(Decline::attribute("auto_pad", other)),
        };
        let attributes = Self {
            auto_pad,
            pads: sizes(node, "pads", 0)?,
            strides: sizes(node, "strides", 1)?,
            dilations: sizes(node, "dilations", 1)?,
            ceil: node.flag_or("ceil_mode", false)?,
        };
        if let Some(rank) = node.input_rank(0) {
            attributes.check(rank.saturating_sub(2)).map_err(Decline::invalid)?;
        }
        Ok(attributes)
    }

    /// Whether some window has gaps.
    pub(crate) fn is_dilated(&self) -> bool {
        self.dilations.iter().any(|&d| d != 1)
    }

    /// The declared padding before and after each axis.
    pub(crate) fn pads(&self) -> (&[i32], &[i32]) {
        self.pads.split_at(self.pads.len() / 2)
    }

    fn check(&self, rank: usize) -> Result<(), String> {
        let lists = [
            ("pads", &self.pads, 2 * rank),
            ("strides", &self.strides, rank),
            ("dilations", &self.dilations, rank),
        ];
        for (name, list, wanted) in lists {
            if !list.is_empty() && list.len() != wanted {
                return Err(format!("{name} has {} entries for {rank} spatial axes", list.len()));
            }
        }
        Ok(())
    }

    /// Stride, dilation and declared padding of spatial axis `i` of `rank`.
    ///
    /// # Errors
    /// If a list does not have `rank` entries.
    pub(crate) fn axis(&self, i: usize, size: i32, kernel: i32, rank: usize) -> Result<Axis, LowerError> {
        self.check(rank).map_err(LowerError::Invalid)?;
        let at = |list: &[i32], default: i32| list.get(i).copied().unwrap_or(default);
        let (low, high) = self.pads();
        if kernel < 1 {
            return Err(LowerError::invalid("a window of size 0"));
        }
        Ok(Axis {
            size,
            spread: 1,
            kernel,
            stride: at(&self.strides, 1),
            dilation: at(&self.dilations, 1),
            low: at(low, 0),
            high: at(high, 0),
            output: 0,
        })
    }

    /// The windows of a convolution or a pool over spatial sizes `input`. ONNX Runtime's pools differ: no window is a result,
    /// one that exceeds the input by less than the stride is one, and SAME must not leave gaps that cut the input.
    ///
    /// # Errors
    /// If lists have wrong lengths or no window fits.
    pub(crate) fn axes(&self, input: &[i32], kernel: &[i32], pool: bool) -> Result<Vec<Axis>, LowerError> {
        let mut axes = Vec::with_capacity(input.len());
        for (i, (&size, &kernel)) in input.iter().zip(kernel).enumerate() {
            let mut axis = self.axis(i, size, kernel, input.len())?;
            let [size, kernel, stride, dilation] = [size, kernel, axis.stride, axis.dilation].map(i64::from);
            let same = (size + stride - 1) / stride;
            let total = (same - 1) * stride + kernel - size;
            if pool && total < 0 && matches!(self.auto_pad, AutoPad::SameUpper | AutoPad::SameLower) {
                return Err(LowerError::invalid(format!("a padding of {total} for SAME")));
            }
            let total = total.max(0);
            let (low, high) = match self.auto_pad {
                AutoPad::NotSet => (axis.low.into(), axis.high.into()),
                AutoPad::Valid => (0, 0),
                AutoPad::SameUpper => (total / 2, total - total / 2),
                AutoPad::SameLower => ((total + 1) / 2, total - (total + 1) / 2),
            };
            let steps = size + low + high - dilation * (kernel - 1) - 1;
            let mut output = 1 + if pool { steps / stride } else { steps.div_euclid(stride) };
            if self.ceil && steps % stride > 0 && output * stride < size + low {
                // A window that would begin in the padding after the input is left out.
                output += 1;
            }
            if output < i64::from(!pool) {
                return Err(LowerError::invalid(format!(
                    "no window of {kernel} fits the spatial sizes {input:?} with padding {low} and {high}"
                )));
            }
            axis.low = fit_i32(low)?;
            axis.high = fit_i32(high)?;
            axis.output = fit_i32(output)?;
            fit_i32((output - 1) * stride + (kernel - 1) * dilation + 1)?;
            axes.push(axis);
        }
        Ok(axes)
    }
}

/// An `INTS` attribute of values from `least` that leave room for sums in i64.
pub(crate) fn sizes(node: &NodeRef<'_>, name: &'static str, least: i32) -> Result<Vec<i32>, Decline> {
    let values = node.ints(name)?.unwrap_or_default();
    let small = |v: i64| i32::try_from(v).ok().filter(|&v| v >= least);
    let checked: Option<Vec<i32>> = values.iter().map(|&v| small(v)).collect();
    checked.ok_or_else(|| Decline::attribute(name, format!("{values:?}")))
}

/// A size as MLX holds it.
pub(crate) fn fit_i32(value: i64) -> Result<i32, LowerError> {
    value.try_into().map_err(|_| LowerError::invalid(format!("size {value} is beyond what MLX can hold")))
}

/// `x` (N, C, spatial...) spread, cut and padded with the scalar `fill` to what the windows reach.
pub(crate) fn fit(x: &Array, axes: &[Axis], fill: &Array) -> Result<Array, LowerError> {
    let x = spread(x, axes, fill)?;
    let (mut start, mut stop) = (vec![0; x.ndim()], x.shape().to_vec());
    let (mut low, mut high) = (Vec::new(), Vec::new());
    let mut shape = x.shape()[..2].to_vec();
    for (i, axis) in axes.iter().enumerate() {
        let size = axis.spread_size();
        start[2 + i] = (-axis.low).clamp(0, size);
        stop[2 + i] = (axis.reach() - axis.low).clamp(start[2 + i], size);
        low.push(axis.low.max(0));
        high.push(axis.reach() - axis.low.max(0) - (stop[2 + i] - start[2 + i]));
        shape.push(axis.reach());
    }
    if start.iter().zip(&stop).any(|(start, stop)| start == stop) || high.iter().any(|&n| n < 0) {
        return Ok(full(&shape, fill)?);
    }
    let x = if stop == x.shape() && start.iter().all(|&n| n == 0) {
        x
    } else {
        x.slice(&start, &stop, &vec![1; x.ndim()])?
    };
    if low.iter().chain(&high).all(|&n| n == 0) {
        return Ok(x);
    }
    let spatial: Vec<i32> = (2..x.ndim() as i32).collect();
    Ok(x.pad(&spatial, &low, &high, fill, PadMode::Constant)?)
}

/// `x` (N, C, spatial...) with `fill` between its elements where an axis asks for it.
fn spread(x: &Array, axes: &[Axis], fill: &Array) -> Result<Array, LowerError> {
    let mut x = x.clone();
    for (i, axis) in axes.iter().enumerate().filter(|(_, axis)| axis.spread > 1 && axis.size > 0) {
        let at = 2 + i as i32;
        let apart =
            x.expand_dims(&[at + 1])?.pad(&[at + 1], &[0], &[axis.spread - 1], fill, PadMode::Constant)?;
        let joined = apart.flatten(at, at + 1)?;
        let mut stop = joined.shape().to_vec();
        stop[2 + i] = axis.spread_size();
        x = joined.slice(&vec![0; stop.len()], &stop, &vec![1; stop.len()])?;
    }
    Ok(x)
}

/// In which order [`windows`] lists a window's axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// (N, C, windows..., elements...)
    ElementsLast,
    /// (N, C, elements..., windows...)
    WindowsLast,
}

/// A view of every window of `x`, which [`fit`] made.
pub(crate) fn windows(x: &Array, axes: &[Axis], order: Order) -> Result<Array, LowerError> {
    let shape = x.shape();
    let mut strides = vec![1i64; shape.len()];
    for i in (0..shape.len() - 1).rev() {
        strides[i] = strides[i + 1] * i64::from(shape[i + 1]);
    }
    let outer = axes.iter().zip(&strides[2..]).map(|(a, &s)| (a.output, s * i64::from(a.stride)));
    let inner = axes.iter().zip(&strides[2..]).map(|(a, &s)| (a.kernel, s * i64::from(a.dilation)));
    let lead = [(shape[0], strides[0]), (shape[1], strides[1])].into_iter();
    let (shape, strides): (Vec<i32>, Vec<i64>) = match order {
        Order::ElementsLast => lead.chain(outer).chain(inner).unzip(),
        Order::WindowsLast => lead.chain(inner).chain(outer).unzip(),
    };
    Ok(x.as_strided(&shape, &strides, 0)?)
}

/// The spatial sizes of `shape` (N, C, spatial...).
///
/// # Errors
/// If there are none.
pub(crate) fn spatial(shape: &[i32]) -> Result<&[i32], LowerError> {
    match shape {
        [_, _, spatial @ ..] if !spatial.is_empty() => Ok(spatial),
        _ => Err(LowerError::invalid(format!("shape {shape:?} has no spatial axes"))),
    }
}
