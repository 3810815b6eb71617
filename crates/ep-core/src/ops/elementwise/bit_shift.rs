//! `BitShift` of unsigned integers; shifting by the width or more gives 0.

use mlx_safe::{Array, where_};

use crate::convert::like;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// `BitShift`.
pub(crate) struct BitShift {
    shift: fn(&Array, &Array) -> mlx_safe::Result<Array>,
}

impl Op for BitShift {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("BitShift")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_type(0, |e| e.is_integer() && !e.is_signed_integer())?;
        let shift = match node.string_or("direction", "")? {
            "LEFT" => Array::left_shift,
            "RIGHT" => Array::right_shift,
            other => return Err(Decline::attribute("direction", other)),
        };
        Ok(Self { shift })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (x, by) = (cx.array(0)?, cx.array(1)?);
        let bits = like((x.dtype().size() * 8) as f64, &by)?;
        let zero = like(0.0, &x)?;
        let inside = by.less(&bits)?;
        let shifted = (self.shift)(&x, &where_(&inside, &by, &zero)?)?;
        cx.emit(0, where_(&inside, &shifted, &zero)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn uints(element: E, values: &[f64]) -> onnx_graph::Tensor<'static> {
        tensor(element, [values.len()], values)
    }

    op_cases! {
        left_u8: case("BitShift", 11).x(uints(E::Uint8, &[16.0, 255.0, 1.0])).x(uints(E::Uint8, &[1.0, 3.0, 8.0])).attr("direction", "LEFT") => exact();
        right_u16: case("BitShift", 11).x(uints(E::Uint16, &[16.0, 65535.0])).x(uints(E::Uint16, &[1.0, 3.0])).attr("direction", "RIGHT") => exact();
        left_u32: case("BitShift", 11).x(uints(E::Uint32, &[16.0, 7.0])).x(uints(E::Uint32, &[31.0, 64.0])).attr("direction", "LEFT") => exact();
        right_u64: case("BitShift", 11).x(uints(E::Uint64, &[1e19, 7.0])).x(uints(E::Uint64, &[60.0])).attr("direction", "RIGHT") => exact();
        signed: case("BitShift", 11).x(uints(E::Int32, &[16.0])).x(uints(E::Int32, &[1.0])).attr("direction", "LEFT") => declines();
        no_direction: case("BitShift", 11).x(uints(E::Uint8, &[16.0])).x(uints(E::Uint8, &[1.0])) => declines();
    }
}
