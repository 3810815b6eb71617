//! Convolution with channels first, by the way that suits device and shapes.

use kernels_metal::convolution::{Convolution, Window};
use mlx_safe::{Array, ConvGeometry, DeviceType, Dtype, concatenate, zeros};

use super::window::{Axis, Order, fit, windows};
use crate::LowerError;

/// How one convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One product of matrices: windows of one element, side by side.
    Product,
    /// The same with channels last, as the convolutions around it have them.
    ProductLast,
    /// MLX's own, with channels last.
    Native,
    /// A kernel of ours for the CPU.
    Host,
    /// A product of matrices, whose rows are then put between each other: every window meets one element of a spread input.
    Apart,
    /// Windows copied into columns, then a product of matrices.
    Columns,
}

/// The only place that chooses. MLX's CPU back end convolves groups, gaps and spread inputs in a scalar loop, and writes
/// out of bounds where the padding exceeds the output. `batch` images have `channels` each.
fn choose(device: DeviceType, axes: &[Axis], groups: i32, batch: i32, channels: i32) -> Way {
    if groups == 1 && axes.iter().all(|a| (a.kernel, a.stride) == (1, 1)) {
        if device == DeviceType::Gpu { Way::ProductLast } else { Way::Product }
    } else if device == DeviceType::Gpu && axes.len() <= 3 {
        Way::Native
    } else if has_host_kernel(axes) {
        let columns = groups == 1 && in_columns(axes, batch, channels) <= MOST_COLUMNS;
        if columns { Way::Columns } else { Way::Host }
    } else if groups == 1 && axes.iter().all(apart) {
        Way::Apart
    } else {
        Way::Columns
    }
}

/// Whether the host's kernel takes such windows.
fn has_host_kernel(axes: &[Axis]) -> bool {
    matches!(axes.len(), 1 | 2) && axes.iter().all(|a| a.spread == 1)
}

/// Up to so many elements of windows side by side, about what a cache holds, copying them for a BLAS product is the quicker way.
const MOST_COLUMNS: i64 = 2 << 20;

/// How many elements the windows side by side have.
fn in_columns(axes: &[Axis], batch: i32, channels: i32) -> i64 {
    let windows = axes.iter().map(|a| i64::from(a.kernel) * i64::from(a.output));
    windows.fold(i64::from(batch) * i64::from(channels), i64::saturating_mul)
}

/// Whether windows are as long as the input's elements are apart, and begin with it.
fn apart(axis: &Axis) -> bool {
    let Axis { size, spread, kernel, stride, dilation, low, output, .. } = *axis;
    (kernel, stride, low, output) == (spread, 1, spread - 1, size * spread) && (dilation == 1 || kernel == 1)
}

/// A constant weight (O, C / groups, kernel...) as it is best stored: for MLX's own convolution with channels last, or MLX
/// would copy it at every run. Its shape stays. `None` if it is well as it is.
pub(crate) fn stored(w: &Array, device: DeviceType) -> mlx_safe::Result<Option<Array>> {
    let spatial: i32 = w.shape().iter().skip(2).product();
    if device != DeviceType::Gpu || w.ndim() > 5 || w.size() == 0 || spatial == 1 {
        return Ok(None);
    }
    let [last, first] = channels_last(w.ndim());
    Ok(Some(w.transpose(&last)?.contiguous()?.transpose(&first)?))
}

/// Convolves `x` (N, C, spatial...) with `w` (O, C / groups, kernel...): (N, O, windows...) in the type of `x`. 16-bit
/// floats are summed in float32.
///
/// # Errors
/// If the channels do not fit.
pub(crate) fn convolve(
    x: &Array,
    w: &Array,
    bias: Option<&Array>,
    axes: &[Axis],
    groups: i32,
    device: DeviceType,
) -> Result<Array, LowerError> {
    let (&[n, c, ..], &[o, c_group, ..]) = (x.shape(), w.shape()) else {
        return Err(LowerError::Bug("a convolution without channels".into()));
    };
    if i64::from(c_group) * i64::from(groups) != i64::from(c) || o % groups != 0 {
        return Err(LowerError::invalid(format!(
            "{c} channels, weight {:?} and {groups} groups do not fit",
            w.shape()
        )));
    }
    if let Some(bias) = bias
        && bias.shape() != [o]
    {
        return Err(LowerError::invalid(format!("bias has shape {:?} for {o} channels", bias.shape())));
    }
    let shape: Vec<i32> = [n, o].into_iter().chain(axes.iter().map(|a| a.output)).collect();
    let dtype = x.dtype();
    // MLX's CPU back end computes 16-bit floats slowly and rounds every step.
    let work = if device == DeviceType::Cpu { Dtype::Float32 } else { dtype };
    let mut y = if shape.contains(&0) || c == 0 || x.size() == 0 {
        zeros(&shape, work)?
    } else {
        let (x, w) = (x.astype(work)?, w.astype(work)?);
        match choose(device, axes, groups, n, c) {
            Way::Product => product(&x, &w, axes, &shape)?,
            Way::ProductLast => return Ok(product_last(&x, &w, bias, axes)?.astype(dtype)?),
            Way::Native => return Ok(native(&x, &w, bias, axes, groups)?.astype(dtype)?),
            Way::Host => {
                let bias = bias.map(|bias| bias.astype(work)).transpose()?;
                return Ok(host(&x, &w, bias.as_ref(), axes, groups)?.astype(dtype)?);
            }
            Way::Apart => interleaved(&x, &w, axes, &shape)?,
            Way::Columns => columns(&x, &w, axes, groups, &shape)?,
        }
    };
    if let Some(bias) = bias {
        let mut along = vec![1; shape.len()];
        along[1] = o;
        y = y.add(&bias.astype(work)?.reshape(&along)?)?;
    }
    Ok(y.astype(dtype)?)
}

fn product(x: &Array, w: &Array, axes: &[Axis], shape: &[i32]) -> Result<Array, LowerError> {
    let x = fit(x, axes, &Array::scalar_of(0.0, x.dtype())?)?;
    let (n, c, o) = (shape[0], x.dim(1)?, shape[1]);
    let y = w.reshape(&[o, c])?.matmul(&x.reshape(&[n, c, -1])?)?;
    Ok(y.reshape(shape)?)
}

/// Channels to the last axis, and the last axis to the channels, of `rank` axes.
fn channels_last(rank: usize) -> [Vec<i32>; 2] {
    let rank = rank as i32;
    [
        [0].into_iter().chain(2..rank).chain([1]).collect(),
        [0, rank - 1].into_iter().chain(1..rank - 1).collect(),
    ]
}

/// Adds a bias with channels last: added to the transposed view, MLX would write the sum with channels first, and the next
/// convolution would have to bring them back.
fn add_last(y: Array, bias: Option<&Array>) -> mlx_safe::Result<Array> {
    match bias {
        Some(bias) => y.add(&bias.astype(y.dtype())?),
        None => Ok(y),
    }
}

fn product_last(x: &Array, w: &Array, bias: Option<&Array>, axes: &[Axis]) -> Result<Array, LowerError> {
    let x = fit(x, axes, &Array::scalar_of(0.0, x.dtype())?)?;
    let [last, first] = channels_last(x.ndim());
    let (c, o) = (x.dim(1)?, w.dim(0)?);
    let x = x.transpose(&last)?;
    let shape = [&x.shape()[..x.ndim() - 1], &[o]].concat();
    let y = x.reshape(&[-1, c])?.matmul(&w.reshape(&[o, c])?.transpose(&[1, 0])?)?;
    Ok(add_last(y, bias)?.reshape(&shape)?.transpose(&first)?)
}

fn native(
    x: &Array,
    w: &Array,
    bias: Option<&Array>,
    axes: &[Axis],
    groups: i32,
) -> Result<Array, LowerError> {
    // MLX cuts negative padding before it spreads, and a negative tail is what strides leave over.
    let cut = axes.iter().any(|a| a.low < 0 || a.tail() < 0);
    let (x, low, high, spread) = if cut {
        let none = vec![0; axes.len()];
        let x = fit(x, axes, &Array::scalar_of(0.0, x.dtype())?)?;
        (x, none.clone(), none, vec![1; axes.len()])
    } else {
        let low = axes.iter().map(|a| a.low).collect();
        let high = axes.iter().map(Axis::tail).collect();
        (x.clone(), low, high, axes.iter().map(|a| a.spread).collect())
    };
    let mut geometry = ConvGeometry {
        stride: axes.iter().map(|a| a.stride).collect(),
        padding_low: low,
        padding_high: high,
        kernel_dilation: axes.iter().map(|a| a.dilation).collect(),
        input_dilation: spread,
        groups,
        flip: false,
    };
    let [last, first] = channels_last(x.ndim());
    let (x, w) = (x.transpose(&last)?, w.transpose(&last)?);
    let spread = geometry.input_dilation.iter().any(|&step| step > 1);
    let y = if groups > 1 && (spread || axes.len() > 2) {
        // MLX takes groups on one and two axes only, and its CUDA back end mixes them up when the input is spread.
        geometry.groups = 1;
        let cuts = |n: i32| (1..groups).map(|g| g * (n / groups)).collect::<Vec<_>>();
        let (xs, ws) = (x.split(&cuts(x.dim(-1)?), -1)?, w.split(&cuts(w.dim(0)?), 0)?);
        let parts: mlx_safe::Result<Vec<Array>> =
            xs.iter().zip(&ws).map(|(x, w)| x.conv_general(w, &geometry)).collect();
        concatenate(&parts?, -1)?
    } else {
        x.conv_general(&w, &geometry)?
    };
    Ok(add_last(y, bias)?.transpose(&first)?)
}

/// One axis counts as the columns of images of one row. The last window's tail may lie beyond the declared padding, where
/// there are zeros too.
fn host(x: &Array, w: &Array, bias: Option<&Array>, axes: &[Axis], groups: i32) -> Result<Array, LowerError> {
    let window = |a: &Axis| Window { stride: a.stride, dilation: a.dilation, low: a.low, output: a.output };
    let one = Window { stride: 1, dilation: 1, low: 0, output: 1 };
    let convolve = |windows, x: &Array, w: &Array| Convolution { windows, groups }.forward(x, w, bias);
    Ok(match axes {
        [columns] => {
            let (x, w) = (x.expand_dims(&[2])?, w.expand_dims(&[2])?);
            convolve([one, window(columns)], &x, &w)?.squeeze(&[2])?
        }
        [rows, columns] => convolve([window(rows), window(columns)], x, w)?,
        _ => return Err(LowerError::Bug("a kernel for one or two axes".into())),
    })
}

/// Window p s + r meets element p of the input, with element s - 1 - r of the weight.
fn interleaved(x: &Array, w: &Array, axes: &[Axis], shape: &[i32]) -> Result<Array, LowerError> {
    let (n, c, rank) = (shape[0], x.dim(1)?, axes.len() as i32);
    let w = w.flip(&(2..2 + rank).collect::<Vec<_>>())?;
    // (O, C, r...) to (O r..., C).
    let w = w.moveaxis(1, -1)?.reshape(&[-1, c])?;
    let y = w.matmul(&x.reshape(&[n, c, -1])?)?;
    // (N, O, r..., p...) to (N, O, p, r, ...).
    let split: Vec<i32> = shape[..2]
        .iter()
        .copied()
        .chain(axes.iter().map(|a| a.spread))
        .chain(axes.iter().map(|a| a.size))
        .collect();
    let order: Vec<i32> = [0, 1].into_iter().chain((0..rank).flat_map(|i| [2 + rank + i, 2 + i])).collect();
    Ok(y.reshape(&split)?.transpose(&order)?.reshape(shape)?)
}

fn columns(x: &Array, w: &Array, axes: &[Axis], groups: i32, shape: &[i32]) -> Result<Array, LowerError> {
    let x = fit(x, axes, &Array::scalar_of(0.0, x.dtype())?)?;
    let count: i32 = axes.iter().map(|a| a.kernel).product();
    let (n, c, o) = (shape[0], x.dim(1)?, shape[1]);
    let depth = c / groups * count;
    let columns = windows(&x, axes, Order::WindowsLast)?.reshape(&[n, groups, depth, -1])?;
    let w = w.reshape(&[1, groups, o / groups, depth])?;
    Ok(w.matmul(&columns)?.reshape(shape)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(shape: &[i32]) -> Array {
        let count: i32 = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|i| ((i * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect();
        Array::from_slice(&values, shape).unwrap()
    }

    fn axis(size: i32, spread: i32, kernel: i32, stride: i32, dilation: i32, low: i32, output: i32) -> Axis {
        Axis { size, spread, kernel, stride, dilation, low, high: 0, output }
    }

    fn values(array: &Array) -> Vec<f32> {
        array.to_vec().unwrap()
    }

    fn agree(a: &Array, b: &Array) {
        assert_eq!(a.shape(), b.shape());
        assert!(values(a).iter().zip(values(b)).all(|(a, b)| (a - b).abs() < 1e-4), "{a:?}");
    }

    /// MLX's own convolution is chosen on GPUs only; its arguments are checked here against the columns.
    #[test]
    fn every_way_gives_the_same() {
        let cases: &[(&[Axis], i32)] = &[
            (&[axis(9, 1, 3, 1, 1, 1, 9)], 1),
            (&[axis(9, 1, 3, 2, 2, 1, 4)], 2),
            (&[axis(9, 1, 3, 2, 1, -1, 3)], 1),
            (&[axis(5, 3, 4, 1, 1, 2, 12)], 1),
            (&[axis(5, 2, 2, 1, 2, -1, 6)], 2),
            (&[axis(7, 1, 3, 2, 1, 1, 4), axis(8, 1, 2, 3, 1, 0, 3)], 1),
            (&[axis(7, 1, 3, 1, 1, 1, 7), axis(8, 1, 3, 1, 1, 1, 8)], 4),
            (&[axis(4, 2, 2, 1, 1, 1, 8), axis(3, 3, 3, 1, 1, 2, 9)], 1),
            (&[axis(4, 2, 3, 1, 1, 2, 8), axis(3, 1, 3, 1, 1, 1, 3)], 2),
            (&[axis(4, 1, 2, 1, 1, 0, 3), axis(5, 1, 2, 2, 1, 1, 3), axis(3, 1, 3, 1, 1, 1, 3)], 2),
        ];
        for (axes, groups) in cases {
            let x = wave(&[2, 4].into_iter().chain(axes.iter().map(|a| a.size)).collect::<Vec<_>>());
            let w =
                wave(&[8, 4 / groups].into_iter().chain(axes.iter().map(|a| a.kernel)).collect::<Vec<_>>());
            let shape: Vec<i32> = [2, 8].into_iter().chain(axes.iter().map(|a| a.output)).collect();
            let expected = columns(&x, &w, axes, *groups, &shape).unwrap();
            if axes.iter().all(apart) {
                agree(&interleaved(&x, &w, axes, &shape).unwrap(), &expected);
            }
            agree(&native(&x, &w, None, axes, *groups).unwrap(), &expected);
            let bias = wave(&[8]);
            let along: Vec<i32> = [1, 8].into_iter().chain(axes.iter().map(|_| 1)).collect();
            let biased = expected.add(&bias.reshape(&along).unwrap()).unwrap();
            agree(&native(&x, &w, Some(&bias), axes, *groups).unwrap(), &biased);
            if has_host_kernel(axes) {
                agree(&host(&x, &w, Some(&bias), axes, *groups).unwrap(), &biased);
            }
        }
    }

    #[test]
    fn products_are_the_same_with_channels_first_and_last() {
        let axes = [axis(5, 1, 1, 1, 1, 1, 7), axis(4, 1, 1, 1, 1, 0, 4)];
        let (x, w, bias) = (wave(&[2, 3, 5, 4]), wave(&[6, 3, 1, 1]), wave(&[6]));
        let first = product(&x, &w, &axes, &[2, 6, 7, 4]).unwrap();
        agree(&product_last(&x, &w, None, &axes).unwrap(), &first);
        let biased = first.add(&bias.reshape(&[1, 6, 1, 1]).unwrap()).unwrap();
        agree(&product_last(&x, &w, Some(&bias), &axes).unwrap(), &biased);
    }

    #[test]
    fn weights_are_stored_with_channels_last_and_stay_the_same() {
        let w = wave(&[4, 3, 2, 5]);
        let stored = stored(&w, DeviceType::Gpu).unwrap().unwrap();
        agree(&stored, &w);
        assert!(super::stored(&w, DeviceType::Cpu).unwrap().is_none());
        assert!(super::stored(&wave(&[4, 3]), DeviceType::Gpu).unwrap().is_none());
    }
}
