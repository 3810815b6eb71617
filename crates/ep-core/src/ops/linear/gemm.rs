//! `Gemm` (ai.onnx 7+): alpha A' B' + beta C for matrices, C broadcast to the result or left out.

use mlx_safe::{Array, Dtype, zeros};

use super::product::matmul;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::sums::on_gpu;
use crate::{Decline, LowerError, NodeRef};

/// The attributes.
pub(crate) struct Gemm {
    transpose: [bool; 2],
    alpha: f32,
    beta: f32,
}

impl Op for Gemm {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Gemm")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        if node.version() < 7 {
            return Err(Decline::form("Gemm before opset 7 broadcasts by an attribute"));
        }
        let element = node.expect_type(0, |e| e.is_float() || (e.is_integer() && e.bits() >= 32))?;
        let (alpha, beta) = (node.float_or("alpha", 1.0)?, node.float_or("beta", 1.0)?);
        if element.is_integer() && (alpha, beta) != (1.0, 1.0) {
            return Err(Decline::form("integers with alpha or beta other than 1"));
        }
        for i in 0..2 {
            if node.input_rank(i).is_some_and(|rank| rank != 2) {
                return Err(Decline::form(format!("input {i} is not a matrix")));
            }
        }
        if node.input_rank(2).is_some_and(|rank| rank > 2) {
            return Err(Decline::invalid("C has more than two axes"));
        }
        Ok(Self { transpose: [node.flag_or("transA", false)?, node.flag_or("transB", false)?], alpha, beta })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("C is checked against the size of the result")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let operand = |i: usize| -> Result<Array, LowerError> {
            let x = cx.array(i)?;
            if x.ndim() != 2 {
                return Err(LowerError::invalid(format!(
                    "input {i} has shape {:?}, not a matrix's",
                    x.shape()
                )));
            }
            Ok(if self.transpose[i] { x.transpose(&[1, 0])? } else { x })
        };
        let dtype = cx.array(0)?.dtype();
        // 16-bit floats are scaled and summed in float32, and rounded once. GPUs are fast in 16 bits alone: there they stay
        // for a layer's plain sum.
        let plain = self.alpha == 1.0 && (!cx.has_input(2) || (self.beta == 1.0 && on_gpu()?));
        let work = if plain || !dtype.is_float() { dtype } else { Dtype::Float32 };
        let (a, b) = (operand(0)?.astype(work)?, operand(1)?.astype(work)?);
        let mut y = scale(matmul(&a, &b)?, self.alpha)?;
        if let Some(c) = cx.optional_array(2)? {
            let shape = y.shape().to_vec();
            let fits = c.ndim() <= 2
                && c.shape().iter().rev().zip(shape.iter().rev()).all(|(&from, &to)| from == to || from == 1);
            if !fits {
                return Err(LowerError::invalid(format!(
                    "C has shape {:?}, the result {shape:?}",
                    c.shape()
                )));
            }
            if y.size() == 0 {
                y = zeros(&shape, y.dtype())?;
            } else if self.beta != 0.0 {
                // What is multiplied by zero is not read: it may hold NaN.
                y = y.add(&scale(c.astype(work)?, self.beta)?)?;
            }
        }
        cx.emit(0, y.astype(dtype)?)
    }
}

fn scale(x: Array, factor: f32) -> Result<Array, LowerError> {
    Ok(if factor == 1.0 { x } else { x.multiply(&Array::scalar_of(factor.into(), x.dtype())?)? })
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn gemm(opset: i64, a: [usize; 2], b: [usize; 2]) -> Case {
        case("Gemm", opset).x(f32s(a)).x(f32s(b))
    }

    op_cases! {
        row_bias: gemm(13, [3, 5], [5, 4]).x(f32s([4])) => close(tol::F32_SUM);
        linear: gemm(7, [3, 5], [4, 5]).c(f32s([4])).attr("transB", 1) => close(tol::F32_SUM);
        all_attributes: gemm(9, [5, 3], [4, 5]).x(f32s([3, 4])).attr("transA", 1).attr("transB", 1).attr("alpha", 0.25f32).attr("beta", 1.5f32) => close(tol::F32_SUM);
        column_bias: gemm(11, [3, 5], [5, 4]).x(f32s([3, 1])) => close(tol::F32_SUM);
        scalar_bias: gemm(11, [3, 5], [5, 4]).x(f32s([])) => close(tol::F32_SUM);
        one_bias: gemm(11, [3, 5], [5, 4]).x(f32s([1])) => close(tol::F32_SUM);
        no_bias: gemm(11, [3, 5], [5, 4]) => close(tol::F32_SUM);
        left_out_bias: gemm(13, [3, 5], [5, 4]).none().attr("alpha", 2f32) => close(tol::F32_SUM);
        beta_zero_ignores_nan: gemm(13, [1, 2], [2, 2]).x(tensor(E::Float, [2], &[f64::NAN, 1.0])).attr("beta", 0f32) => close(tol::F32_SUM);
        half_beyond_its_range: case("Gemm", 13).x(tensor(E::Float16, [1, 4], &[300.0; 4])).x(tensor(E::Float16, [4, 1], &[300.0; 4])).x(tensor(E::Float16, [1], &[60000.0])).attr("alpha", 0.001f32).attr("beta", 0.5f32) => close(tol::F16);
        half_alpha: case("Gemm", 13).x(tensor(E::Float16, [1, 4], &[300.0; 4])).x(tensor(E::Float16, [4, 1], &[300.0; 4])).attr("alpha", 0.001f32) => close(tol::F16);
        half_beta_zero: case("Gemm", 13).x(random(E::Float16, [2, 4])).x(random(E::Float16, [4, 2])).x(tensor(E::Float16, [2], &[f64::NAN, f64::INFINITY])).attr("beta", 0f32) => close(tol::F16);
        beta_zero_bias_misfit: gemm(13, [3, 5], [5, 4]).x(f32s([3])).attr("beta", 0f32) => fails("C has shape");
        half: case("Gemm", 13).x(random(E::Float16, [3, 40])).c(random(E::Float16, [40, 6])).c(random(E::Float16, [6])) => close(tol::F16);
        bfloat: case("Gemm", 13).x(random(E::Bfloat16, [3, 40])).c(random(E::Bfloat16, [40, 6])).c(random(E::Bfloat16, [6])) => close(tol::BF16);
        no_rows: gemm(13, [0, 5], [5, 4]).x(f32s([4])) => exact();
        no_depth: gemm(13, [2, 0], [0, 4]).x(f32s([4])) => exact();
        bias_misfit: gemm(13, [3, 5], [5, 4]).x(f32s([3])) => fails("C has shape");
        misfit: gemm(13, [3, 5], [4, 5]).x(f32s([4])) => fails("matmul");
        opset6: gemm(6, [3, 5], [5, 4]).x(f32s([3, 4])) => declines();
    }
}
