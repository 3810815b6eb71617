//! `MaxPool` (ai.onnx 1+), with the indices of the maxima (8+). Padding never wins.
//!
//! ONNX Runtime has two ways: plain windows start from the lowest finite value and skip NaN; with dilations, indices or columns, they
//! start from their first element, so that NaN wins where it comes first.

use mlx_safe::{Array, Dtype, where_};

use super::pool::{Fold, Pool, numbers};
use super::window::{Axis, Order, fit, windows};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The attributes.
pub(crate) struct MaxPool {
    pool: Pool,
    /// Whether indices count down columns instead of along rows.
    column_major: bool,
}

impl Op for MaxPool {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("MaxPool")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_type(0, |e| e.is_float() || (e.is_integer() && e.bits() == 8))?;
        Ok(Self { pool: Pool::claim(node)?, column_major: node.flag_or("storage_order", false)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("windows are laid out for the sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let axes = self.pool.axes(x.shape())?;
        if self.pool.is_empty(x.shape(), &axes)? {
            for i in 0..2 {
                if cx.wants(i) {
                    let empty = self.pool.empty(x.shape(), &axes, cx.output_dtype(i)?)?;
                    cx.emit(i, empty)?;
                }
            }
            return Ok(());
        }
        if !x.dtype().is_float() && !cx.wants(1) {
            return cx.emit(0, self.pool.fold(&x, &axes, Fold::Max)?);
        }
        if !cx.wants(1) && !self.column_major && axes.iter().all(|a| a.dilation == 1) {
            return cx.emit(0, self.pool.fold(&numbers(&x)?, &axes, Fold::Max)?);
        }
        let lowest = Array::scalar_of(f64::NEG_INFINITY, x.dtype())?;
        let numbers = where_(&x.isnan()?, &lowest, &x)?;
        let largest = self.pool.fold(&numbers, &axes, Fold::Max)?;
        let first = first_elements(&x, &axes)?;
        cx.emit(0, where_(&first.isnan()?, &first, &largest)?)?;
        if cx.wants(1) {
            let views = windows(&fit(&numbers, &axes, &lowest)?, &axes, Order::ElementsLast)?;
            let mut shape = views.shape()[..2 + axes.len()].to_vec();
            shape.push(-1);
            let winners = views.reshape(&shape)?.argmax(-1, false)?.astype(Dtype::Int64)?;
            let winners = where_(&first.isnan()?, &Array::scalar(0i64), &winners)?;
            let indices = self.indices(&winners, &axes)?;
            cx.emit(1, indices)?;
        }
        Ok(())
    }
}

impl MaxPool {
    /// Indices into the whole input from `winners` (N, C, windows...): positions inside each window, row-major.
    fn indices(&self, winners: &Array, axes: &[Axis]) -> Result<Array, LowerError> {
        let rank = winners.ndim();
        // Along one axis, `values` for each entry of `axis`.
        let along = |axis: usize, values: &[i64]| -> Result<Array, LowerError> {
            let mut shape = vec![1; rank];
            shape[axis] = values.len() as i32;
            Ok(Array::from_slice(values, &shape)?)
        };
        let plane: i64 = axes.iter().map(|a| i64::from(a.size)).product();
        let channels = winners.dim(1)?;
        let channel: Vec<i64> = (0..i64::from(channels)).map(|c| c * plane).collect();
        let batch: Vec<i64> =
            (0..i64::from(winners.dim(0)?)).map(|n| n * i64::from(channels) * plane).collect();
        let mut indices = along(0, &batch)?.add(&along(1, &channel)?)?;
        let mut inner = axes.iter().map(|a| i64::from(a.kernel)).product::<i64>();
        for (i, axis) in axes.iter().enumerate() {
            let [size, kernel, dilation] = [axis.size, axis.kernel, axis.dilation].map(i64::from);
            inner /= kernel;
            let sizes = if self.column_major { &axes[..i] } else { &axes[i + 1..] };
            let weight: i64 = sizes.iter().map(|a| i64::from(a.size)).product();
            let starts: Vec<i64> = (0..axis.output)
                .map(|o| i64::from(o) * i64::from(axis.stride) - i64::from(axis.low))
                .collect();
            // Where all of a window is as low as the padding, its first element inside the input wins.
            let first = first_inside(axis);
            let scalar = |v: i64| Array::scalar(v);
            let step = winners.floor_divide(&scalar(inner))?.remainder(&scalar(kernel))?;
            let position = along(2 + i, &starts)?
                .add(&step.multiply(&scalar(dilation))?)?
                .maximum(&along(2 + i, &first)?)?
                .minimum(&scalar(size - 1))?;
            indices = indices.add(&position.multiply(&scalar(weight))?)?;
        }
        Ok(indices)
    }
}

/// For each window along one axis, where its first element inside the input lies.
fn first_inside(axis: &Axis) -> Vec<i64> {
    let [stride, dilation, low] = [axis.stride, axis.dilation, axis.low].map(i64::from);
    let steps = |start: i64| ((-start).max(0) + dilation - 1) / dilation * dilation;
    (0..i64::from(axis.output)).map(|o| o * stride - low).map(|start| start + steps(start)).collect()
}

/// The first element inside the input of every window.
fn first_elements(x: &Array, axes: &[Axis]) -> Result<Array, LowerError> {
    let mut x = x.clone();
    for (i, axis) in axes.iter().enumerate() {
        // A window beside the input takes any element: it has none to be NaN, and its result is the padding's.
        let at: Vec<i64> =
            first_inside(axis).into_iter().map(|at| at.clamp(0, i64::from(axis.size) - 1)).collect();
        x = x.take(&Array::from_slice(&at, &[axis.output])?, 2 + i as i32)?;
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn pool(x: impl Into<Vec<usize>>, kernel: Vec<i64>) -> Case {
        case("MaxPool", 12).x(f32s(x)).attr("kernel_shape", kernel)
    }

    /// Four elements a channel.
    fn nans() -> Case {
        let (nan, low) = (f64::NAN, f64::NEG_INFINITY);
        let rows = [
            [nan, 1.0, 2.0, 5.0],
            [1.0, nan, 2.0, nan],
            [nan; 4],
            [low; 4],
            [low, nan, low, 1.0],
            [nan, low, low, low],
        ];
        case("MaxPool", 12).x(tensor(E::Float, [1, 6, 4], rows.as_flattened()))
    }

    op_cases! {
        plain: pool([2, 3, 7, 8], vec![2, 3]) => exact();
        strides_and_pads: pool([1, 3, 7, 8], vec![3, 3]).attr("strides", vec![2i64, 2]).attr("pads", vec![1i64, 0, 1, 2]) => exact();
        one_axis: pool([2, 3, 9], vec![3]).attr("strides", vec![2i64]) => exact();
        three_axes: pool([1, 2, 4, 5, 6], vec![2, 2, 3]).attr("strides", vec![2i64, 1, 1]) => exact();
        opset1: case("MaxPool", 1).x(f32s([1, 2, 6, 6])).attr("kernel_shape", vec![2i64, 2]).attr("strides", vec![2i64, 2]) => exact();
        dilations: pool([1, 2, 9, 8], vec![3, 2]).attr("dilations", vec![2i64, 3]) => exact();
        ceil: pool([1, 2, 8, 9], vec![3, 2]).attr("strides", vec![2i64, 3]).attr("ceil_mode", 1) => exact();
        ceil_drops_a_window_in_the_padding: pool([1, 1, 5], vec![2]).attr("strides", vec![3i64]).attr("pads", vec![1i64, 1]).attr("ceil_mode", 1) => exact();
        same_upper: pool([1, 2, 7, 8], vec![3, 2]).attr("strides", vec![2i64, 2]).attr("auto_pad", "SAME_UPPER") => exact();
        same_lower: pool([1, 2, 7, 8], vec![3, 2]).attr("strides", vec![2i64, 2]).attr("auto_pad", "SAME_LOWER") => exact();
        same_dilated: pool([1, 1, 7], vec![3]).attr("strides", vec![2i64]).attr("dilations", vec![2i64]).attr("auto_pad", "SAME_UPPER") => exact();
        valid: pool([1, 2, 7, 8], vec![3, 2]).attr("strides", vec![2i64, 2]).attr("auto_pad", "VALID") => exact();
        indices: pool([2, 3, 6, 7], vec![2, 3]).outputs(2) => exact();
        indices_pads: pool([2, 3, 6, 7], vec![3, 3]).attr("pads", vec![1i64, 2, 1, 0]).attr("strides", vec![2i64, 1]).outputs(2) => exact();
        indices_dilated: pool([2, 3, 9], vec![3]).attr("dilations", vec![2i64]).attr("pads", vec![1i64, 2]).outputs(2) => exact();
        indices_columns: pool([2, 3, 6, 7], vec![2, 3]).attr("storage_order", 1).outputs(2) => exact();
        indices_columns_three_axes: pool([1, 2, 4, 5, 6], vec![2, 2, 3]).attr("storage_order", 1).outputs(2) => exact();
        indices_of_ties: case("MaxPool", 12).x(tensor(E::Float, [1, 1, 6], &[1.0; 6])).attr("kernel_shape", vec![3i64]).attr("pads", vec![1i64, 1]).outputs(2) => exact();
        indices_of_lowest: case("MaxPool", 12).x(tensor(E::Uint8, [1, 1, 3, 3], &[0.0; 9])).attr("kernel_shape", vec![2i64, 2]).attr("dilations", vec![2i64, 2]).attr("pads", vec![1i64, 1, 1, 1]).outputs(2) => exact();
        int8: case("MaxPool", 12).x(uniform(E::Int8, [1, 2, 6, 6], -128.0, 127.0)).attr("kernel_shape", vec![3i64, 3]).attr("pads", vec![1i64, 1, 1, 1]) => exact();
        uint8: case("MaxPool", 12).x(uniform(E::Uint8, [1, 2, 6, 6], 0.0, 255.0)).attr("kernel_shape", vec![2i64, 2]).attr("pads", vec![1i64, 1, 1, 1]) => exact();
        half: case("MaxPool", 12).x(random(E::Float16, [1, 2, 6, 6])).attr("kernel_shape", vec![2i64, 2]) => close(tol::F16);
        bfloat: case("MaxPool", 22).x(random(E::Bfloat16, [1, 2, 6, 6])).attr("kernel_shape", vec![2i64, 2]) => close(tol::BF16);
        exceeds_the_input: pool([1, 1, 2], vec![3]).attr("strides", vec![2i64]) => exact();
        exceeds_the_input_dilated: pool([1, 2, 2], vec![4]).attr("strides", vec![3i64]).attr("dilations", vec![2i64]) => exact();
        exceeds_the_input_indices: pool([1, 1, 2], vec![3]).attr("strides", vec![2i64]).outputs(2) => exact();
        exceeds_the_input_ceil: pool([1, 1, 2], vec![5]).attr("strides", vec![2i64]).attr("ceil_mode", 1) => exact();
        exceeds_the_input_twice: pool([1, 1, 1], vec![3]) => fails("no window");
        nan: nans().attr("kernel_shape", vec![2i64]) => exact();
        nan_pads: nans().attr("kernel_shape", vec![3i64]).attr("pads", vec![1i64, 1]) => exact();
        nan_dilated: nans().attr("kernel_shape", vec![2i64]).attr("dilations", vec![2i64]).attr("pads", vec![1i64, 0]) => exact();
        nan_columns: nans().attr("kernel_shape", vec![2i64]).attr("storage_order", 1) => exact();
        same_with_gaps: pool([1, 1, 8], vec![1]).attr("strides", vec![3i64]).attr("auto_pad", "SAME_UPPER") => fails("SAME");
        nan_indices: nans().attr("kernel_shape", vec![2i64]).attr("pads", vec![1i64, 1]).outputs(2) => exact();
        ceil_mode_2: pool([1, 1, 4], vec![3]).attr("ceil_mode", 2) => declines();
        no_channels: pool([1, 0, 4], vec![3]) => fails("empty");
        four_axes: pool([1, 1, 2, 2, 2, 2], vec![2, 2, 2, 2]) => declines();
        no_batch: pool([0, 2, 6], vec![2]).outputs(2) => exact();
        no_window: pool([1, 1, 2], vec![3]) => exact();
        no_pixels: pool([1, 1, 0], vec![2]).attr("pads", vec![1i64, 1]) => fails("empty");
        pads_as_large_as_the_window: pool([1, 1, 6], vec![2]).attr("pads", vec![2i64, 0]) => declines();
        no_kernel_shape: case("MaxPool", 12).x(f32s([1, 1, 6])) => declines();
    }
}
