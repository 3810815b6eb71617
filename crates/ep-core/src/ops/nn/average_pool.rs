//! `AveragePool` (ai.onnx 1+) and `LpPool` (2+): sums over windows. 16-bit floats are summed in float32.

use mlx_safe::{Array, Dtype};

use super::pool::{Fold, Pool};
use super::window::Axis;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The attributes.
pub(crate) struct SumPool {
    pool: Pool,
    kind: Kind,
}

enum Kind {
    /// The mean of the elements that this counts.
    Average(Count),
    /// The p-norm.
    Norm(f32),
}

/// Which elements of a window count.
#[derive(Clone, Copy)]
enum Count {
    /// Those of the input.
    Inside,
    /// Those of the input and its padding.
    Padded,
    /// All, even beyond the padding.
    Whole,
}

impl Op for SumPool {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("AveragePool"), OpKey::onnx("LpPool")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        let kind = if node.op_type() == "LpPool" {
            Kind::Norm(norm_order(node)?)
        } else {
            Kind::Average(match node.flag_or("count_include_pad", false)? {
                false => Count::Inside,
                true if node.version() >= 19 || node.flag_or("ceil_mode", false)? => Count::Padded,
                true => Count::Whole,
            })
        };
        Ok(Self { pool: Pool::claim(node)?, kind })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("windows are laid out for the sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let axes = self.pool.axes(x.shape())?;
        if self.pool.is_empty(x.shape(), &axes)? {
            return cx.emit(0, self.pool.empty(x.shape(), &axes, x.dtype())?);
        }
        let dtype = x.dtype();
        let x = x.astype(Dtype::Float32)?;
        let sum = |x: &Array| self.pool.fold(x, &axes, Fold::Sum);
        let y = match self.kind {
            Kind::Average(count) => sum(&x)?.divide(&counts(&axes, count)?)?,
            Kind::Norm(p) => root(&sum(&power(&x, p)?)?, p)?,
        };
        cx.emit(0, y.astype(dtype)?)
    }
}

/// How many elements each window has, in the shape (windows...).
fn counts(axes: &[Axis], which: Count) -> Result<Array, LowerError> {
    let mut counts = Array::scalar(1f32);
    for axis in axes {
        let [size, kernel, stride, dilation] =
            [axis.size, axis.kernel, axis.stride, axis.dilation].map(i64::from);
        let count = |window: i64| {
            let start = window * stride - i64::from(axis.low);
            match which {
                Count::Inside => {
                    (0..kernel).filter(|k| (0..size).contains(&(start + k * dilation))).count() as i64
                }
                Count::Padded => {
                    let stop = (start + kernel * dilation).min(size + i64::from(axis.high));
                    1 + (stop - start - 1) / dilation
                }
                Count::Whole => kernel,
            }
        };
        // A window beside the input sums to zero, whatever divides it.
        let along: Vec<f32> = (0..axis.output).map(|window| count(window.into()).max(1) as f32).collect();
        counts = counts.expand_dims(&[-1])?.multiply(&Array::from_slice(&along, &[axis.output])?)?;
    }
    Ok(counts)
}

/// The attribute `p` of norms.
pub(super) fn norm_order(node: &NodeRef<'_>) -> Result<f32, Decline> {
    match node.int_or("p", 2)? {
        p if p >= 1 => Ok(p as f32),
        p => Err(Decline::attribute("p", p)),
    }
}

/// |x|^p
pub(super) fn power(x: &Array, p: f32) -> Result<Array, LowerError> {
    Ok(match p {
        1.0 => x.abs()?,
        2.0 => x.square()?,
        p => x.abs()?.power(&Array::scalar(p))?,
    })
}

/// x^(1/p)
pub(super) fn root(x: &Array, p: f32) -> Result<Array, LowerError> {
    Ok(match p {
        1.0 => x.clone(),
        2.0 => x.sqrt()?,
        p => x.power(&Array::scalar(1.0 / p))?,
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn pool(opset: i64, x: impl Into<Vec<usize>>, kernel: Vec<i64>) -> Case {
        case("AveragePool", opset).x(f32s(x)).attr("kernel_shape", kernel)
    }

    fn norm(opset: i64, x: impl Into<Vec<usize>>, kernel: Vec<i64>) -> Case {
        case("LpPool", opset).x(f32s(x)).attr("kernel_shape", kernel)
    }

    op_cases! {
        plain: pool(7, [2, 3, 7, 8], vec![2, 3]) => close(tol::F32);
        pads: pool(11, [1, 3, 7, 8], vec![3, 3]).attr("strides", vec![2i64, 2]).attr("pads", vec![1i64, 0, 1, 2]) => close(tol::F32);
        pads_counted: pool(11, [1, 3, 7, 8], vec![3, 3]).attr("strides", vec![2i64, 2]).attr("pads", vec![1i64, 0, 1, 2]).attr("count_include_pad", 1) => close(tol::F32);
        ceil: pool(10, [1, 2, 8, 9], vec![3, 2]).attr("strides", vec![2i64, 3]).attr("ceil_mode", 1) => close(tol::F32);
        ceil_counted: pool(10, [1, 1, 7], vec![4]).attr("strides", vec![3i64]).attr("pads", vec![0i64, 1]).attr("ceil_mode", 1).attr("count_include_pad", 1) => close(tol::F32);
        ceil_counted_new: pool(19, [1, 1, 6, 7], vec![3, 4]).attr("strides", vec![2i64, 3]).attr("pads", vec![1i64, 0, 1, 1]).attr("ceil_mode", 1).attr("count_include_pad", 1) => close(tol::F32);
        dilations: pool(19, [1, 2, 9, 8], vec![3, 2]).attr("dilations", vec![2i64, 3]) => close(tol::F32);
        dilations_pads: pool(19, [1, 2, 9, 8], vec![3, 2]).attr("dilations", vec![2i64, 3]).attr("pads", vec![1i64, 1, 2, 0]) => close(tol::F32);
        dilations_counted: pool(22, [1, 2, 9, 8], vec![3, 2]).attr("dilations", vec![2i64, 3]).attr("pads", vec![1i64, 1, 2, 0]).attr("strides", vec![2i64, 2]).attr("count_include_pad", 1).attr("ceil_mode", 1) => close(tol::F32);
        same_upper: pool(11, [1, 2, 7, 8], vec![3, 2]).attr("strides", vec![2i64, 2]).attr("auto_pad", "SAME_UPPER") => close(tol::F32);
        same_lower_counted: pool(11, [1, 2, 7, 8], vec![4, 2]).attr("strides", vec![2i64, 2]).attr("auto_pad", "SAME_LOWER").attr("count_include_pad", 1) => close(tol::F32);
        same_dilated: pool(19, [1, 1, 7], vec![3]).attr("strides", vec![2i64]).attr("dilations", vec![2i64]).attr("auto_pad", "SAME_LOWER").attr("count_include_pad", 1) => close(tol::F32);
        one_axis: pool(11, [2, 3, 9], vec![3]) => close(tol::F32);
        three_axes: pool(11, [1, 2, 4, 5, 6], vec![2, 2, 3]).attr("pads", vec![1i64, 0, 1, 0, 1, 1]) => close(tol::F32);
        half: case("AveragePool", 11).x(random(E::Float16, [1, 2, 20, 20])).attr("kernel_shape", vec![20i64, 20]) => close(tol::F16);
        bfloat: case("AveragePool", 22).x(random(E::Bfloat16, [1, 2, 6, 6])).attr("kernel_shape", vec![2i64, 2]) => close(tol::BF16);
        exceeds_the_input: pool(19, [1, 1, 2], vec![3]).attr("strides", vec![2i64]) => close(tol::F32);
        exceeds_the_input_counted: pool(19, [1, 1, 2], vec![3]).attr("strides", vec![2i64]).attr("count_include_pad", 1) => close(tol::F32);
        exceeds_the_input_counted_old: pool(11, [1, 1, 2], vec![3]).attr("strides", vec![2i64]).attr("count_include_pad", 1) => close(tol::F32);
        exceeds_one_axis: pool(11, [1, 1, 2, 2], vec![3, 1]).attr("strides", vec![2i64, 1]) => close(tol::F32);
        exceeds_the_input_norm: norm(18, [1, 1, 2], vec![3]).attr("strides", vec![2i64]) => close(tol::F32);
        no_channels: pool(11, [1, 0, 4], vec![2]) => fails("empty");
        no_batch: pool(11, [0, 2, 6], vec![2]) => exact();
        no_pixels: pool(11, [1, 1, 0], vec![2]).attr("pads", vec![1i64, 1]) => fails("empty");
        norm_two: norm(11, [2, 3, 7, 8], vec![2, 3]) => close(tol::F32);
        norm_three: norm(2, [1, 3, 7, 8], vec![3, 3]).attr("p", 3).attr("pads", vec![1i64, 0, 1, 2]).attr("strides", vec![2i64, 1]) => close(tol::F32);
        norm_one: norm(18, [1, 1, 5], vec![2]).attr("p", 1).attr("strides", vec![2i64]).attr("ceil_mode", 1) => close(tol::F32);
        norm_dilated: norm(18, [1, 2, 9, 8], vec![2, 2]).attr("dilations", vec![2i64, 3]).attr("auto_pad", "VALID") => close(tol::F32);
        norm_same: norm(22, [1, 2, 9, 8], vec![2, 2]).attr("strides", vec![2i64, 3]).attr("auto_pad", "SAME_UPPER") => close(tol::F32);
        norm_zero: norm(18, [1, 1, 5], vec![2]).attr("p", 0) => declines();
    }
}
