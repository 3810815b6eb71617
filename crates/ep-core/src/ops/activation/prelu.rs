//! `PRelu`: the slope broadcasts to the input.

use mlx_safe::where_;

use crate::convert::like;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, broadcast};

/// `PRelu`.
pub(crate) struct PRelu;

impl Op for PRelu {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("PRelu")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        broadcast::by_numpy_rules(node)?;
        node.expect_type(0, |e| e.is_float() || e.is_integer())?;
        Ok(Self)
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (x, slope) = (cx.array(0)?, cx.array(1)?);
        let y = where_(&x.less(&like(0.0, &x)?)?, &x.multiply(&slope)?, &x)?;
        cx.emit(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        channels: case("PRelu", 16).x(f32s([2, 3, 4])).c(f32s([3, 1])) => exact();
        opset_7: case("PRelu", 7).x(f32s([2, 3])).x(f32s([1])) => exact();
        opset_9_full: case("PRelu", 9).x(f32s([2, 3])).x(f32s([2, 3])) => exact();
        special: case("PRelu", 16).x(tensor(E::Float, [4], &[f64::NAN, -1.0, f64::NEG_INFINITY, 2.0])).x(tensor(E::Float, [1], &[0.5])) => exact();
        f16: case("PRelu", 16).x(random(E::Float16, [40])).x(random(E::Float16, [1])) => close(tol::F16);
        bf16: case("PRelu", 16).x(random(E::Bfloat16, [40])).x(random(E::Bfloat16, [1])) => close(tol::BF16);
        scalar: case("PRelu", 16).x(f32s([])).x(f32s([])) => exact();
        empty: case("PRelu", 16).x(f32s([0, 3])).x(f32s([3])) => exact();
        opset_6: case("PRelu", 6).x(f32s([2, 3])).x(f32s([3])) => declines();
    }
}
