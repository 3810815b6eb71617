//! The ten `Reduce*` operators at every opset: axes as attribute or input, one MLX reduction each.
//!
//! Integers stay exact (they wrap); 16-bit floats are summed in float32.

use mlx_safe::{Array, Dtype, full, where_, zeros};

use super::extreme::{Extreme, extreme};
use super::reduction_fold;
use crate::axes::axis;
use crate::host::HostTensor;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::sums::{mean, sum};
use crate::{Decline, DeclineCode, LowerError, NodeRef};

/// What is computed over the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    L1,
    L2,
    LogSum,
    LogSumExp,
    Extreme(Extreme),
    Mean,
    Prod,
    Sum,
    SumSquare,
}

/// Where the axes come from.
enum Axes {
    /// The attribute or nothing; nothing and an empty list mean all.
    Fixed(Vec<i64>),
    /// Input 1.
    Input,
}

/// One of the `Reduce*` operators.
pub(crate) struct Reduction {
    kind: Kind,
    axes: Axes,
    keepdims: bool,
    /// No axes mean none rather than all.
    noop: bool,
}

impl Op for Reduction {
    const KEYS: &'static [OpKey] = &[
        OpKey::onnx("ReduceL1"),
        OpKey::onnx("ReduceL2"),
        OpKey::onnx("ReduceLogSum"),
        OpKey::onnx("ReduceLogSumExp"),
        OpKey::onnx("ReduceMax"),
        OpKey::onnx("ReduceMean"),
        OpKey::onnx("ReduceMin"),
        OpKey::onnx("ReduceProd"),
        OpKey::onnx("ReduceSum"),
        OpKey::onnx("ReduceSumSquare"),
    ];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let kind = match node.op_type() {
            "ReduceL1" => Kind::L1,
            "ReduceL2" => Kind::L2,
            "ReduceLogSum" => Kind::LogSum,
            "ReduceLogSumExp" => Kind::LogSumExp,
            "ReduceMax" => Kind::Extreme(Extreme::Max),
            "ReduceMean" => Kind::Mean,
            "ReduceMin" => Kind::Extreme(Extreme::Min),
            "ReduceProd" => Kind::Prod,
            "ReduceSum" => Kind::Sum,
            "ReduceSumSquare" => Kind::SumSquare,
            other => return Err(Decline::new(DeclineCode::Unknown, format!("{other} is not a reduction"))),
        };
        node.expect_type(0, |e| {
            e.is_float() || e.is_integer() || (matches!(kind, Kind::Extreme(_)) && node.version() >= 20)
        })?;
        let takes_input = node.version() >= if kind == Kind::Sum { 13 } else { 18 };
        let axes = match node.has_input(1) {
            true if takes_input => Axes::Input,
            true => return Err(Decline::invalid("axes are an attribute at this opset")),
            false if takes_input => Axes::Fixed(Vec::new()),
            false => Axes::Fixed(node.ints("axes")?.unwrap_or_default()),
        };
        let noop = takes_input && node.flag_or("noop_with_empty_axes", false)?;
        Ok(Self { kind, axes, keepdims: node.flag_or("keepdims", true)?, noop })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("a reduction of nothing gives its identity")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let given = cx.has_input(1).then(|| cx.host(1)).transpose()?;
        let axes = self.resolve(given, x.ndim())?;
        let dtype = x.dtype();
        let mut shape = x.shape().to_vec();
        let count: i64 = axes.iter().map(|&a| i64::from(shape[a as usize])).product();
        for &a in axes.iter().rev() {
            if self.keepdims { shape[a as usize] = 1 } else { _ = shape.remove(a as usize) }
        }
        let y = if shape.contains(&0) {
            zeros(&shape, dtype)?
        } else if count == 0 {
            full(&shape, &self.kind.identity(dtype)?)?
        } else {
            self.kind.apply(&x, &axes, self.keepdims, count)?.astype(dtype)?
        };
        cx.emit(0, y)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let Some(Some(x)) = inputs.first() else { return Ok(None) };
        let axes = self.resolve(inputs.get(1).copied().flatten(), x.dims().len())?;
        Ok(reduction_fold::fold(self.kind, x, &axes, self.keepdims).map(|y| vec![y]))
    }
}

impl Reduction {
    /// The axes for rank `rank`, ascending and each once.
    fn resolve(&self, given: Option<&HostTensor>, rank: usize) -> Result<Vec<i32>, LowerError> {
        let list = match (&self.axes, given) {
            (Axes::Fixed(list), _) => list.clone(),
            (Axes::Input, Some(t)) if t.dims().len() == 1 => {
                t.to_ints().ok_or_else(|| LowerError::invalid("the axes are not integers"))?
            }
            (Axes::Input, _) => return Err(LowerError::invalid("the axes must be a vector")),
        };
        if list.is_empty() {
            return Ok(if self.noop { Vec::new() } else { (0..rank as i32).collect() });
        }
        // A scalar may be reduced over axis 0, as if it were a vector of one element.
        let mut axes =
            list.iter().map(|&a| Ok(axis(a, rank.max(1))? as i32)).collect::<Result<Vec<_>, LowerError>>()?;
        axes.sort_unstable();
        axes.dedup();
        axes.retain(|&a| (a as usize) < rank);
        Ok(axes)
    }
}

impl Kind {
    /// The result of reducing no elements.
    fn identity(self, dtype: Dtype) -> Result<Array, LowerError> {
        match self {
            Self::Extreme(_) if dtype == Dtype::Bool => {
                Err(LowerError::invalid("the largest or smallest of no booleans is not defined"))
            }
            Self::Extreme(which) => which.identity(dtype),
            // ln 0 = -inf, and its conversion to an integer
            Self::LogSum | Self::LogSumExp => Extreme::Max.identity(dtype),
            Self::Prod => Ok(Array::scalar_of(1.0, dtype)?),
            Self::L1 | Self::L2 | Self::Mean | Self::Sum | Self::SumSquare => {
                Ok(Array::scalar_of(0.0, dtype)?)
            }
        }
    }

    /// Reduces `count` elements over each cell of `axes`; the result's type may be wider than the input's.
    fn apply(self, x: &Array, axes: &[i32], keepdims: bool, count: i64) -> Result<Array, LowerError> {
        let float = x.dtype().is_float();
        let wide = || if float { x.astype(Dtype::Float32) } else { Ok(x.clone()) };
        // int64 holds every sum that its users may ask for; uint64 alone does not fit.
        let exact = || match x.dtype() {
            dtype if dtype.is_integer() && dtype != Dtype::Uint64 => x.astype(Dtype::Int64),
            _ => wide(),
        };
        Ok(match self {
            Self::L1 => sum(&wide()?.abs()?, axes, keepdims)?,
            Self::L2 => sum(&exact()?.square()?, axes, keepdims)?.astype(Dtype::Float32)?.sqrt()?,
            Self::LogSum => sum(&wide()?, axes, keepdims)?.astype(Dtype::Float32)?.log()?,
            Self::LogSumExp => log_sum_exp(&x.astype(Dtype::Float32)?, axes, keepdims)?,
            Self::Extreme(which) => extreme(x, axes, keepdims, which)?,
            Self::Mean if float => mean(&wide()?, axes, keepdims)?,
            Self::Mean => {
                let sum = sum(&exact()?, axes, keepdims)?;
                // MLX divides integers as C does.
                sum.floor_divide(&Array::scalar(count).astype(sum.dtype())?)?
            }
            Self::Prod => wide()?.prod(axes, keepdims)?,
            Self::Sum => sum(&wide()?, axes, keepdims)?,
            Self::SumSquare => sum(&wide()?.square()?, axes, keepdims)?,
        })
    }
}

fn log_sum_exp(x: &Array, axes: &[i32], keepdims: bool) -> Result<Array, LowerError> {
    let largest = x.max(axes, true)?;
    let shift = where_(&largest.isfinite()?, &largest, &Array::scalar(0.0f32))?;
    let y = sum(&x.subtract(&shift)?.exp()?, axes, true)?.log()?.add(&shift)?;
    Ok(if keepdims { y } else { y.squeeze(axes)? })
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn nans() -> onnx_graph::Tensor<'static> {
        tensor(E::Float, [2, 4], &[f64::NAN, 1.0, 2.0, 5.0, 1.0, f64::NAN, 7.0, 2.0])
    }

    fn no_axes() -> onnx_graph::Tensor<'static> {
        i64s(&[])
    }

    op_cases! {
        sum: case("ReduceSum", 13).x(f32s([2, 3, 4])).c(i64s(&[1])) => close(tol::F32);
        sum_axes_at_run_time: case("ReduceSum", 13).x(f32s([2, 3, 4])).x(i64s(&[-1, 0])) => close(tol::F32);
        sum_keepdims_0: case("ReduceSum", 13).x(f32s([2, 3, 4])).c(i64s(&[0, 2])).attr("keepdims", 0) => close(tol::F32);
        sum_axes_twice: case("ReduceSum", 13).x(f32s([2, 3])).c(i64s(&[0, -2])) => close(tol::F32);
        sum_all: case("ReduceSum", 13).x(f32s([2, 3, 4])) => close(tol::F32);
        sum_all_to_scalar: case("ReduceSum", 13).x(f32s([2, 3, 4])).attr("keepdims", 0) => close(tol::F32);
        sum_empty_axes: case("ReduceSum", 13).x(f32s([2, 3])).x(no_axes()) => close(tol::F32);
        sum_opset_11: case("ReduceSum", 11).x(f32s([2, 3, 4])).attr("axes", vec![-2_i64, 0]) => close(tol::F32);
        sum_opset_7: case("ReduceSum", 7).x(f32s([2, 3])).attr("axes", vec![1_i64]).attr("keepdims", 0) => close(tol::F32);
        sum_scalar: case("ReduceSum", 13).x(f32s([])) => exact();
        sum_scalar_axis_0: case("ReduceSum", 13).x(f32s([])).x(i64s(&[0])) => exact();
        sum_f16: case("ReduceSum", 13).x(random(E::Float16, [3, 400])).c(i64s(&[1])) => close(tol::F16);
        sum_bf16: case("ReduceSum", 13).x(random(E::Bfloat16, [3, 40])).c(i64s(&[1])) => close(tol::BF16);
        sum_i32: case("ReduceSum", 13).x(random(E::Int32, [80, 3])).c(i64s(&[0])) => exact();
        sum_i64_wide: case("ReduceSum", 13).x(tensor(E::Int64, [2], &[4503599627370496.0, 3.0])).c(i64s(&[0])) => exact();
        sum_of_none: case("ReduceSum", 13).x(f32s([2, 0, 3])).c(i64s(&[1])) => exact();
        sum_of_none_to_none: case("ReduceSum", 13).x(f32s([2, 0, 3])).c(i64s(&[0])) => exact();
        sum_bad_axis: case("ReduceSum", 13).x(f32s([2, 3])).x(i64s(&[2])) => fails("axis 2");
        sum_axes_of_rank_2: case("ReduceSum", 13).x(f32s([2, 3])).x(tensor(E::Int64, [1, 1], &[0.0])) => fails("vector");
        sum_of_a_million: case("ReduceSum", 13).x(uniform(E::Float, [1000003], 1.0, 30.0)).c(i64s(&[0])) => close(tol::F32);
        sum_of_a_million_in_two_axes: case("ReduceSum", 13).x(uniform(E::Float, [1001, 3, 700], 1.0, 30.0)).c(i64s(&[0, 2])) => close(tol::F32);
        mean_of_a_million: case("ReduceMean", 18).x(uniform(E::Float, [3, 400000], 1.0, 30.0)).c(i64s(&[1])) => close(tol::F32);
        l1_of_many: case("ReduceL1", 18).x(uniform(E::Float, [2, 300000], -30.0, 30.0)).c(i64s(&[1])).attr("keepdims", 0) => close(tol::F32);
        l2_of_many: case("ReduceL2", 18).x(uniform(E::Float, [2, 20000], -30.0, 30.0)).c(i64s(&[1])) => close(tol::F32);
        log_sum_exp_of_many: case("ReduceLogSumExp", 18).x(f32s([300000])) => close(tol::F32);
        keepdims_2: case("ReduceSum", 13).x(f32s([3])).attr("keepdims", 2) => declines();
        sum_large: case("ReduceSum", 13).x(f32s([70000])).c(i64s(&[0])) => close(tol::F32_SUM);
        mean: case("ReduceMean", 18).x(f32s([2, 3, 4])).c(i64s(&[1, 2])) => close(tol::F32);
        mean_opset_13: case("ReduceMean", 13).x(f32s([2, 3, 4])).attr("axes", vec![-1_i64]) => close(tol::F32);
        mean_i32_truncates: case("ReduceMean", 18).x(tensor(E::Int32, [4], &[1.0, 2.0, -6.0, -4.0])).c(i64s(&[0])) => exact();
        mean_i64: case("ReduceMean", 18).x(i64s(&[70, 7, 9])).x(i64s(&[0])).attr("keepdims", 0) => exact();
        mean_i64_long: case("ReduceMean", 18).x(random(E::Int64, [50, 30])).c(i64s(&[0])) => exact();
        mean_f16: case("ReduceMean", 18).x(random(E::Float16, [3, 400])).c(i64s(&[1])) => close(tol::F16);
        mean_of_none: case("ReduceMean", 18).x(f32s([2, 0])).c(i64s(&[1])) => exact();
        mean_i64_of_none: case("ReduceMean", 18).x(random(E::Int64, [2, 0])).c(i64s(&[1])) => exact();
        max: case("ReduceMax", 18).x(f32s([2, 3, 4])).c(i64s(&[0, 2])) => exact();
        max_i8: case("ReduceMax", 18).x(random(E::Int8, [7, 3])).c(i64s(&[0])) => exact();
        max_u8: case("ReduceMax", 12).x(uniform(E::Uint8, [9, 2], 0.0, 255.0)).attr("axes", vec![0_i64]) => exact();
        max_i64: case("ReduceMax", 18).x(random(E::Int64, [90, 3])).c(i64s(&[0])) => exact();
        max_bool: case("ReduceMax", 20).x(tensor(E::Bool, [2, 2], &[0.0, 1.0, 0.0, 0.0])).c(i64s(&[1])) => exact();
        min_bool: case("ReduceMin", 20).x(tensor(E::Bool, [2, 2], &[1.0, 1.0, 0.0, 1.0])).c(i64s(&[1])).attr("keepdims", 0) => exact();
        max_bool_early: case("ReduceMax", 18).x(tensor(E::Bool, [2], &[0.0, 1.0])) => declines();
        max_bool_of_none: case("ReduceMax", 20).x(tensor(E::Bool, [2, 0], &[])).c(i64s(&[1])) => fails("not defined");
        max_nan: case("ReduceMax", 18).x(nans()).c(i64s(&[1])) => exact();
        min_nan: case("ReduceMin", 18).x(nans()).c(i64s(&[1])).attr("keepdims", 0) => exact();
        max_f16: case("ReduceMax", 18).x(random(E::Float16, [3, 40])).c(i64s(&[1])) => exact();
        max_of_none: case("ReduceMax", 20).x(f32s([2, 0])).c(i64s(&[1])) => exact();
        min_of_none: case("ReduceMin", 20).x(f32s([2, 0])).c(i64s(&[1])) => exact();
        max_i8_of_none: case("ReduceMax", 20).x(random(E::Int8, [2, 0])).c(i64s(&[1])) => exact();
        min_i64_of_none: case("ReduceMin", 20).x(random(E::Int64, [2, 0])).c(i64s(&[1])) => exact();
        min_i32: case("ReduceMin", 11).x(random(E::Int32, [5, 20])).attr("axes", vec![1_i64]) => exact();
        prod: case("ReduceProd", 18).x(f32s([2, 3, 4])).c(i64s(&[1])) => close(tol::F32);
        prod_i64: case("ReduceProd", 18).x(i64s(&[3, 5, -7])).attr("keepdims", 0) => exact();
        prod_of_none: case("ReduceProd", 18).x(f32s([2, 0])).c(i64s(&[1])) => exact();
        l1: case("ReduceL1", 18).x(f32s([2, 3, 4])).c(i64s(&[2])) => close(tol::F32);
        l1_i32: case("ReduceL1", 18).x(random(E::Int32, [9, 30])).c(i64s(&[0])) => exact();
        l2: case("ReduceL2", 18).x(f32s([2, 3, 4])).c(i64s(&[0, 1])) => close(tol::F32);
        l2_i32: case("ReduceL2", 13).x(tensor(E::Int32, [2], &[3.0, 5.0])).attr("axes", vec![0_i64]) => exact();
        l2_f16_beyond_its_range: case("ReduceL2", 18).x(tensor(E::Float16, [2], &[300.0, 400.0])).c(i64s(&[0])) => close(tol::F16);
        log_sum: case("ReduceLogSum", 18).x(uniform(E::Float, [2, 30], 0.1, 2.0)).c(i64s(&[1])) => close(tol::F32);
        log_sum_i32: case("ReduceLogSum", 18).x(tensor(E::Int32, [2], &[3.0, 5.0])).c(i64s(&[0])) => exact();
        log_sum_of_none: case("ReduceLogSum", 18).x(f32s([2, 0])).c(i64s(&[1])) => exact();
        log_sum_exp: case("ReduceLogSumExp", 18).x(f32s([2, 30])).c(i64s(&[1])) => close(tol::F32);
        log_sum_exp_large: case("ReduceLogSumExp", 18).x(uniform(E::Float, [40], 900.0, 1000.0)).attr("keepdims", 0) => close(tol::F32);
        log_sum_exp_inf: case("ReduceLogSumExp", 18).x(tensor(E::Float, [2, 2], &[f64::INFINITY, 1.0, f64::NEG_INFINITY, f64::NEG_INFINITY])).c(i64s(&[1])) => exact();
        log_sum_exp_nan: case("ReduceLogSumExp", 18).x(nans()).c(i64s(&[1])) => close(tol::F32);
        log_sum_exp_i32: case("ReduceLogSumExp", 18).x(tensor(E::Int32, [2], &[3.0, 5.0])).c(i64s(&[0])) => exact();
        sum_square: case("ReduceSumSquare", 18).x(f32s([2, 3, 4])).c(i64s(&[0])) => close(tol::F32);
        sum_square_i32: case("ReduceSumSquare", 11).x(random(E::Int32, [9, 30])).attr("axes", vec![0_i64]) => exact();
        noop_sum: case("ReduceSum", 13).x(f32s([2, 3])).attr("noop_with_empty_axes", 1) => exact();
        noop_max: case("ReduceMax", 18).x(nans()).x(no_axes()).attr("noop_with_empty_axes", 1) => exact();
        noop_mean: case("ReduceMean", 18).x(f32s([2, 3])).attr("noop_with_empty_axes", 1).attr("keepdims", 0) => exact();
        noop_l1: case("ReduceL1", 18).x(f32s([2, 3])).c(no_axes()).attr("noop_with_empty_axes", 1) => exact();
        noop_l2: case("ReduceL2", 18).x(f32s([2, 3])).attr("noop_with_empty_axes", 1) => close(tol::F32);
        noop_log_sum: case("ReduceLogSum", 18).x(f32s([2, 3])).attr("noop_with_empty_axes", 1) => close(tol::F32);
        noop_log_sum_exp: case("ReduceLogSumExp", 18).x(f32s([2, 3])).attr("noop_with_empty_axes", 1) => close(tol::F32);
        noop_sum_square: case("ReduceSumSquare", 18).x(f32s([2, 3])).attr("noop_with_empty_axes", 1) => close(tol::F32);
    }
}
