//! What the pools share: their attributes, what becomes of empty inputs, and windows folded into values.

use mlx_safe::{Array, DeviceType, Dtype, where_, zeros};

use super::window::{Axis, Order, WindowAttributes, fit, sizes, spatial, windows};
use crate::{Decline, LowerError, NodeRef};

/// The attributes that all pools have.
pub(super) struct Pool {
    windows: WindowAttributes,
    kernel: Vec<i32>,
    device: DeviceType,
}

/// What becomes of the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// The largest; padding never is.
    Max,
    /// The sum; padding is zero.
    Sum,
}

impl Pool {
    /// Reads `kernel_shape` and the attributes of windows.
    pub(super) fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let windows = WindowAttributes::claim(node)?;
        let kernel = sizes(node, "kernel_shape", 1)?;
        if kernel.is_empty() {
            return Err(Decline::invalid("kernel_shape is missing"));
        }
        if kernel.len() > 3 {
            return Err(Decline::form("more than three spatial axes"));
        }
        if node.input_rank(0).is_some_and(|rank| rank != kernel.len() + 2) {
            return Err(Decline::invalid("kernel_shape does not have one entry a spatial axis"));
        }
        let (low, high) = windows.pads();
        if [low, high].iter().any(|pads| pads.iter().zip(&kernel).any(|(pad, kernel)| pad >= kernel)) {
            return Err(Decline::invalid("padding as large as the window"));
        }
        Ok(Self { windows, kernel, device: node.device() })
    }

    /// The windows over an input of `shape`.
    pub(super) fn axes(&self, shape: &[i32]) -> Result<Vec<Axis>, LowerError> {
        let input = spatial(shape)?;
        if input.len() != self.kernel.len() {
            return Err(LowerError::invalid(format!(
                "kernel_shape {:?} for an input {shape:?}",
                self.kernel
            )));
        }
        self.windows.axes(input, &self.kernel, true)
    }

    /// Whether the result has no elements.
    pub(super) fn is_empty(&self, shape: &[i32], axes: &[Axis]) -> Result<bool, LowerError> {
        Ok(is_batch_empty(shape)? || axes.iter().any(|a| a.output == 0))
    }

    /// The result without elements.
    pub(super) fn empty(&self, shape: &[i32], axes: &[Axis], dtype: Dtype) -> Result<Array, LowerError> {
        let shape: Vec<i32> = shape[..2].iter().copied().chain(axes.iter().map(|a| a.output)).collect();
        Ok(zeros(&shape, dtype)?)
    }

    /// The windows of `x` folded: (N, C, windows...).
    pub(super) fn fold(&self, x: &Array, axes: &[Axis], fold: Fold) -> Result<Array, LowerError> {
        let fill = match fold {
            Fold::Max => f64::NEG_INFINITY,
            Fold::Sum => 0.0,
        };
        let x = fit(x, axes, &Array::scalar_of(fill, x.dtype())?)?;
        // A step for each element of the window along each axis; a GPU would rather do many at once.
        let steps: i32 = axes.iter().map(|axis| axis.kernel).sum();
        if self.device == DeviceType::Gpu && steps > MOST_STEPS {
            fold_at_once(&x, axes, fold)
        } else {
            fold_by_axis(&x, axes, fold)
        }
    }
}

/// The most steps that a GPU takes to fold windows axis by axis. The reduction of a view of windows takes as long as twenty of
/// them for windows of nine elements.
const MOST_STEPS: i32 = 16;

/// Whether there is nothing to pool.
///
/// # Errors
/// If another size than the batch's is 0: ONNX Runtime refuses it.
pub(super) fn is_batch_empty(shape: &[i32]) -> Result<bool, LowerError> {
    if shape.first() != Some(&0) && shape.contains(&0) {
        return Err(LowerError::invalid(format!("windows over an empty input {shape:?}")));
    }
    Ok(shape.contains(&0))
}

/// `x` as ONNX Runtime's comparisons with the lowest float32 see it: they skip NaN, and nothing is below the lowest.
pub(super) fn numbers(x: &Array) -> Result<Array, LowerError> {
    if !x.dtype().is_float() {
        return Ok(x.clone());
    }
    let lowest = Array::scalar_of(f64::from(f32::MIN), x.dtype())?;
    Ok(where_(&x.greater(&lowest)?, x, &lowest)?)
}

/// One reduction of a view of all windows.
fn fold_at_once(x: &Array, axes: &[Axis], fold: Fold) -> Result<Array, LowerError> {
    let views = windows(x, axes, Order::ElementsLast)?;
    let last: Vec<i32> = (1..=axes.len() as i32).map(|i| -i).collect();
    Ok(match fold {
        Fold::Max => views.max(&last, false)?,
        Fold::Sum => views.sum(&last, false)?,
    })
}

/// One axis after the other, element by element of the window: MLX reduces strided views slowly.
fn fold_by_axis(x: &Array, axes: &[Axis], fold: Fold) -> Result<Array, LowerError> {
    let mut x = x.clone();
    for (i, axis) in axes.iter().enumerate() {
        let (mut start, mut stop, mut steps) = (vec![0; x.ndim()], x.shape().to_vec(), vec![1; x.ndim()]);
        steps[2 + i] = axis.stride;
        let mut folded: Option<Array> = None;
        for element in 0..axis.kernel {
            start[2 + i] = element * axis.dilation;
            stop[2 + i] = start[2 + i] + (axis.output - 1) * axis.stride + 1;
            let part = x.slice(&start, &stop, &steps)?;
            folded = Some(match (folded, fold) {
                (None, _) => part,
                (Some(folded), Fold::Max) => folded.maximum(&part)?,
                (Some(folded), Fold::Sum) => folded.add(&part)?,
            });
        }
        x = folded.ok_or_else(|| LowerError::Bug("a window without elements".into()))?;
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way of GPUs against that of CPUs, whose answers the operators' rows compare with ONNX Runtime's.
    #[test]
    fn both_ways_fold_alike() {
        let axis = |kernel, stride, dilation, output| Axis {
            size: 9,
            spread: 1,
            kernel,
            stride,
            dilation,
            low: 1,
            high: 0,
            output,
        };
        let axes = [axis(3, 2, 1, 4), axis(2, 1, 3, 7)];
        let values: Vec<f32> = (0..2 * 3 * 81).map(|i| ((i * 37) % 101) as f32).collect();
        let x = Array::from_slice(&values, &[2, 3, 9, 9]).unwrap();
        let x = fit(&x, &axes, &Array::scalar(0f32)).unwrap();
        for fold in [Fold::Max, Fold::Sum] {
            let (a, b) = (fold_at_once(&x, &axes, fold).unwrap(), fold_by_axis(&x, &axes, fold).unwrap());
            assert_eq!(a.shape(), [2, 3, 4, 7]);
            assert_eq!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
        }
    }
}
