//! `MatMul` (ai.onnx 1+) and `FusedMatMul` (com.microsoft): products of matrices with broadcast leading axes.

use mlx_safe::Array;

use super::product::matmul;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// `alpha` times the product of the inputs, either of them transposed first if asked.
pub(crate) struct MatMul {
    transpose: [bool; 2],
    alpha: f32,
    integer: bool,
}

impl Op for MatMul {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("MatMul"), OpKey::microsoft("FusedMatMul")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        for i in 0..2 {
            if node.input_rank(i) == Some(0) {
                return Err(Decline::invalid("a scalar is not a matrix"));
            }
        }
        if node.domain().is_empty() {
            let element = node.expect_type(0, |e| e.is_float() || (e.is_integer() && e.bits() >= 32))?;
            return Ok(Self { transpose: [false; 2], alpha: 1.0, integer: element.is_integer() });
        }
        node.expect_float(0)?;
        for name in ["transBatchA", "transBatchB"] {
            if node.flag_or(name, false)? {
                return Err(Decline::attribute(name, 1));
            }
        }
        Ok(Self {
            transpose: [node.flag_or("transA", false)?, node.flag_or("transB", false)?],
            alpha: node.float_or("alpha", 1.0)?,
            integer: false,
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        if self.integer {
            ShapeMode::Keyed("integers are multiplied in blocks")
        } else {
            ShapeMode::Shapeless
        }
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let operand = |i: usize| -> Result<Array, LowerError> {
            let x = cx.array(i)?;
            Ok(if self.transpose[i] && x.ndim() > 1 { x.swapaxes(-1, -2)? } else { x })
        };
        let y = matmul(&operand(0)?, &operand(1)?)?;
        let scaled =
            if self.alpha == 1.0 { y } else { y.multiply(&Array::scalar_of(self.alpha.into(), y.dtype())?)? };
        cx.emit(0, scaled)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        matrices: case("MatMul", 13).x(f32s([3, 5])).x(f32s([5, 4])) => close(tol::F32_SUM);
        constant_weight: case("MatMul", 1).x(f32s([2, 3, 5])).c(f32s([5, 4])) => close(tol::F32_SUM);
        broadcast: case("MatMul", 9).x(f32s([2, 1, 3, 4])).x(f32s([5, 4, 2])) => close(tol::F32_SUM);
        row_by_matrix: case("MatMul", 13).x(f32s([4])).x(f32s([3, 4, 2])) => close(tol::F32_SUM);
        matrix_by_column: case("MatMul", 13).x(f32s([2, 3, 4])).x(f32s([4])) => close(tol::F32_SUM);
        dot: case("MatMul", 13).x(f32s([4])).x(f32s([4])) => close(tol::F32_SUM);
        long_sum: case("MatMul", 13).x(f32s([2, 3000])).x(f32s([3000, 3])) => close(tol::F32_SUM);
        half: case("MatMul", 13).x(random(E::Float16, [3, 40])).x(random(E::Float16, [40, 6])) => close(tol::F16);
        bfloat: case("MatMul", 13).x(random(E::Bfloat16, [3, 40])).x(random(E::Bfloat16, [40, 6])) => close(tol::BF16);
        no_rows: case("MatMul", 13).x(f32s([0, 5])).x(f32s([5, 4])) => exact();
        no_batch: case("MatMul", 13).x(f32s([0, 2, 5])).c(f32s([5, 4])) => exact();
        no_batch_of_both: case("MatMul", 13).x(f32s([0, 2, 5])).x(f32s([1, 5, 4])) => exact();
        no_columns: case("MatMul", 13).x(f32s([2, 5])).x(f32s([5, 0])) => exact();
        no_depth: case("MatMul", 13).x(f32s([2, 0])).x(f32s([0, 3])) => exact();
        int32_wraps: case("MatMul", 9).x(uniform(E::Int32, [3, 5], -2e9, 2e9)).x(uniform(E::Int32, [5, 4], -2e9, 2e9)) => exact();
        int64: case("MatMul", 13).x(uniform(E::Int64, [2, 3, 5], -9e15, 9e15)).x(random(E::Int64, [5, 4])) => exact();
        uint32: case("MatMul", 13).x(uniform(E::Uint32, [3, 5], 0.0, 4e9)).x(uniform(E::Uint32, [5], 0.0, 4e9)) => exact();
        uint64: case("MatMul", 13).x(uniform(E::Uint64, [5], 0.0, 4e9)).x(uniform(E::Uint64, [5], 0.0, 4e9)) => exact();
        int32_no_depth: case("MatMul", 13).x(random(E::Int32, [2, 0])).x(random(E::Int32, [0, 3])) => exact();
        int32_blocks: case("MatMul", 13).x(random(E::Int32, [300, 60])).x(random(E::Int32, [60, 300])) => exact();
        misfit: case("MatMul", 13).x(f32s([2, 3])).x(f32s([4, 3])) => fails("matmul");
        double: case("MatMul", 13).x(random(E::Double, [2, 2])).x(random(E::Double, [2, 2])) => declines();
        fused: case("FusedMatMul", 13).microsoft().x(f32s([2, 5, 3])).x(f32s([4, 5])).attr("transA", 1).attr("transB", 1).attr("alpha", 0.5f32) => close(tol::F32_SUM);
        fused_plain: case("FusedMatMul", 13).microsoft().x(f32s([2, 3])).x(f32s([3, 5])) => close(tol::F32_SUM);
        fused_batch: case("FusedMatMul", 13).microsoft().x(f32s([3, 2, 4])).x(f32s([3, 4, 5])).attr("transBatchA", 1) => declines();
    }
}
