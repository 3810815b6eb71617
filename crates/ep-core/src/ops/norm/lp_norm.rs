//! `LpNormalization`: vectors along an axis over their 1- or 2-norm; those of norm 0 stay 0.

use mlx_safe::{Array, Dtype, where_};

use crate::axes::axis;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::sums::sum;
use crate::{Decline, LowerError, NodeRef};

pub(crate) struct LpNorm {
    axis: i64,
    squares: bool,
}

impl Op for LpNorm {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("LpNormalization")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        let squares = match node.int_or("p", 2)? {
            1 => false,
            2 => true,
            other => return Err(Decline::attribute("p", other)),
        };
        Ok(Self { axis: node.int_or("axis", -1)?, squares })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let at = axis(self.axis, x.ndim())? as i32;
        let wide = x.astype(Dtype::Float32)?;
        let norm = match self.squares {
            true => sum(&wide.square()?, &[at], true)?.sqrt()?,
            false => sum(&wide.abs()?, &[at], true)?,
        };
        let zero = Array::scalar(0.0f32);
        let y = where_(&norm.equal(&zero)?, &zero, &wide.divide(&norm)?)?;
        cx.emit(0, y.astype(x.dtype())?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        l2: case("LpNormalization", 1).x(f32s([2, 3, 40])) => close(tol::F32);
        l2_axis_0: case("LpNormalization", 22).x(f32s([5, 3])).attr("axis", 0).attr("p", 2) => close(tol::F32);
        l1: case("LpNormalization", 1).x(f32s([2, 3, 4])).attr("axis", -2).attr("p", 1) => close(tol::F32);
        zeros: case("LpNormalization", 22).x(tensor(E::Float, [2, 2], &[0.0, 0.0, 3.0, -4.0])) => close(tol::F32);
        f16: case("LpNormalization", 22).x(random(E::Float16, [3, 40])) => close(tol::F16);
        nothing: case("LpNormalization", 22).x(f32s([2, 0])) => exact();
        no_rows: case("LpNormalization", 22).x(f32s([0, 2])) => exact();
        p_3: case("LpNormalization", 1).x(f32s([2, 3])).attr("p", 3) => declines();
    }
}
