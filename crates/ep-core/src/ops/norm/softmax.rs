//! `Softmax`, `LogSoftmax` and `Hardmax`: over one axis from opset 13 on, before that over all axes from `axis` on.

use kernels_metal::rows::Row;
use mlx_safe::{Array, Dtype, arange, where_};

use crate::axes::axis;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::ops::reduce::{Extreme, first_extreme};
use crate::sums::{softmax, sum};
use crate::{Decline, LowerError, NodeRef};

pub(crate) struct Softmax {
    kind: Kind,
    axis: i64,
    /// Opset 12 and earlier: the tensor counts as a matrix, cut before `axis`.
    matrix: bool,
}

enum Kind {
    Soft,
    Log,
    Hard,
}

impl Op for Softmax {
    const KEYS: &'static [OpKey] =
        &[OpKey::onnx("Hardmax"), OpKey::onnx("LogSoftmax"), OpKey::onnx("Softmax")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        let kind = match node.op_type() {
            "Softmax" => Kind::Soft,
            "LogSoftmax" => Kind::Log,
            _ => Kind::Hard,
        };
        let matrix = node.version() < 13;
        Ok(Self { kind, axis: node.int_or("axis", if matrix { 1 } else { -1 })?, matrix })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the matrix and the positions depend on the shape")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        // As in ONNX Runtime, nothing has no axis to be wrong about.
        if x.size() == 0 {
            return cx.forward(0, 0);
        }
        let at = axis(self.axis, x.ndim())?;
        let y = if self.matrix {
            let rows: i32 = x.shape()[..at].iter().product();
            self.kind.apply(&x.reshape(&[rows, -1])?, 1)?.reshape(x.shape())?
        } else {
            self.kind.apply(&x, at)?
        };
        cx.emit(0, y)
    }
}

impl Kind {
    fn apply(&self, x: &Array, axis: usize) -> Result<Array, LowerError> {
        let at = axis as i32;
        match self {
            Self::Soft => softmax(x, at),
            Self::Log => {
                if axis + 1 == x.ndim()
                    && let Some(y) = Row::LogSoftmax.apply(x, None, None)?
                {
                    return Ok(y.astype(x.dtype())?);
                }
                // The largest goes before the sum, not after it: the result is exact for large logits, and NaN in every
                // place where it is in one.
                let wide = x.astype(Dtype::Float32)?;
                let below = wide.subtract(&wide.max(&[at], true)?)?;
                let y = below.subtract(&sum(&below.exp()?, &[at], true)?.log()?)?;
                Ok(y.astype(x.dtype())?)
            }
            Self::Hard => {
                let mut shape = vec![1; x.ndim()];
                shape[axis] = x.shape()[axis];
                let positions = arange(0.0, f64::from(shape[axis]), 1.0, Dtype::Uint32)?.reshape(&shape)?;
                let hit = positions.equal(&first_extreme(x, at, Extreme::Max)?)?;
                let (one, zero) = (Array::scalar_of(1.0, x.dtype())?, Array::scalar_of(0.0, x.dtype())?);
                // NaN equals nothing, not even itself.
                Ok(where_(&hit.logical_and(&x.equal(x)?)?, &one, &zero)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;

    fn odd() -> onnx_graph::Tensor<'static> {
        tensor(E::Float, [5, 2], &[-INF, -INF, -INF, 1.0, INF, 1.0, NAN, 1.0, 1.0, NAN])
    }

    fn ties() -> onnx_graph::Tensor<'static> {
        tensor(E::Float, [2, 3], &[1.0, 1.0, 0.0, 0.0, 2.0, 2.0])
    }

    op_cases! {
        soft: case("Softmax", 13).x(f32s([2, 3, 40])) => close(tol::F32);
        soft_large: case("Softmax", 13).x(f32s([5, 7, 40])) => close(tol::F32);
        soft_large_narrow: case("Softmax", 13).x(f32s([700, 3])) => close(tol::F32);
        soft_large_odd: case("Softmax", 13).x(tensor(E::Float, [800, 2], &[-INF, -INF, -INF, 1.0, INF, 1.0, NAN, 1.0, 1.0, NAN].repeat(160))) => exact();
        soft_large_f16: case("Softmax", 13).x(random(E::Float16, [30, 300])) => close(tol::F16);
        log_many: case("LogSoftmax", 13).x(f32s([5, 7, 40])) => close(tol::F32);
        log_many_odd: case("LogSoftmax", 13).x(tensor(E::Float, [800, 2], &[-INF, -INF, -INF, 1.0, INF, 1.0, NAN, 1.0, 1.0, NAN].repeat(160))) => close(tol::F32);
        soft_axis_1: case("Softmax", 13).x(f32s([2, 3, 4])).attr("axis", 1) => close(tol::F32);
        soft_opset_11: case("Softmax", 11).x(f32s([2, 3, 4])) => close(tol::F32);
        soft_opset_11_axis_0: case("Softmax", 11).x(f32s([2, 3, 4])).attr("axis", 0) => close(tol::F32);
        soft_opset_12_last: case("Softmax", 12).x(f32s([2, 3, 4])).attr("axis", -1) => close(tol::F32);
        soft_opset_7: case("Softmax", 7).x(f32s([2, 3, 4])).attr("axis", 2) => close(tol::F32);
        soft_f16: case("Softmax", 13).x(random(E::Float16, [3, 300])) => close(tol::F16);
        soft_f16_axis_0: case("Softmax", 13).x(random(E::Float16, [300, 3])).attr("axis", 0) => close(tol::F16);
        soft_bf16: case("Softmax", 13).x(random(E::Bfloat16, [3, 30])) => close(tol::BF16);
        soft_extremes: case("Softmax", 13).x(tensor(E::Float, [2, 3], &[1e30, -1e30, 1e30, -1e30, -1e30, -1e30])) => close(tol::F32);
        soft_odd: case("Softmax", 13).x(odd()) => exact();
        soft_odd_axis_0: case("Softmax", 13).x(odd()).attr("axis", 0) => close(tol::F32);
        soft_long: case("Softmax", 13).x(f32s([2, 300000])) => close(tol::F32);
        soft_long_axis_0: case("Softmax", 13).x(f32s([5000, 3])).attr("axis", 0) => close(tol::F32);
        soft_long_f16: case("Softmax", 13).x(random(E::Float16, [2, 5000])) => close(tol::F16);
        log_long: case("LogSoftmax", 13).x(f32s([2, 300000])) => close(tol::F32);
        soft_none_wrong_axis: case("Softmax", 13).x(f32s([0, 3])).unranked().attr("axis", 5) => exact();
        hard_none_wrong_axis: case("Hardmax", 13).x(f32s([0, 3])).unranked().attr("axis", -5) => exact();
        wrong_axis: case("LogSoftmax", 13).x(f32s([2, 3])).attr("axis", 5) => fails("axis 5");
        soft_none: case("Softmax", 13).x(f32s([0, 3])) => exact();
        soft_none_along_axis: case("Softmax", 11).x(f32s([3, 0])) => exact();
        log: case("LogSoftmax", 13).x(f32s([2, 3, 40])) => close(tol::F32);
        log_opset_11: case("LogSoftmax", 11).x(f32s([2, 3, 4])) => close(tol::F32);
        log_large: case("LogSoftmax", 13).x(uniform(E::Float, [3, 40], 9990.0, 10000.0)).attr("axis", 0) => close(tol::F32);
        log_odd: case("LogSoftmax", 13).x(odd()) => exact();
        log_f16: case("LogSoftmax", 13).x(random(E::Float16, [3, 300])) => close(tol::F16);
        log_none: case("LogSoftmax", 13).x(f32s([3, 0])) => exact();
        hard: case("Hardmax", 13).x(f32s([2, 3, 40])).attr("axis", 1) => exact();
        hard_opset_11: case("Hardmax", 11).x(f32s([2, 3, 4])) => exact();
        hard_ties: case("Hardmax", 13).x(ties()) => exact();
        hard_odd: case("Hardmax", 13).x(odd()) => exact();
        hard_f16: case("Hardmax", 13).x(random(E::Float16, [3, 30])) => exact();
        hard_none: case("Hardmax", 13).x(f32s([0, 3])) => exact();
        double: case("Softmax", 13).x(random(E::Double, [2])) => declines();
    }
}
