//! `IsInf`.

use mlx_safe::Array;

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// `IsInf`.
pub(crate) struct IsInf {
    test: fn(&Array) -> mlx_safe::Result<Array>,
}

impl Op for IsInf {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("IsInf")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        let test = match (node.flag_or("detect_negative", true)?, node.flag_or("detect_positive", true)?) {
            (true, true) => Array::isinf,
            (true, false) => Array::isneginf,
            (false, true) => Array::isposinf,
            (false, false) => |x: &Array| x.less(x),
        };
        Ok(Self { test })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let y = (self.test)(&cx.array(0)?)?;
        cx.emit(0, y)
    }
}

#[cfg(test)]
mod tests {
    use onnx_graph::Tensor;

    use crate::testing::*;

    fn x(element: E) -> Tensor<'static> {
        tensor(element, [4], &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0])
    }

    op_cases! {
        both: case("IsInf", 10).x(x(E::Float)) => exact();
        negative: case("IsInf", 20).x(x(E::Float)).attr("detect_positive", 0i64) => exact();
        positive: case("IsInf", 20).x(x(E::Float16)).attr("detect_negative", 0i64) => exact();
        neither: case("IsInf", 20).x(x(E::Bfloat16)).attr("detect_negative", 0i64).attr("detect_positive", 0i64) => exact();
        empty: case("IsInf", 10).x(f32s([0])) => exact();
    }
}
