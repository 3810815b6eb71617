//! `MatMulInteger` (ai.onnx 10): 8-bit integers less their zero points, multiplied into int32. Zero points are scalars,
//! one a row of A, one a column of B, or of a shape that says so itself.

use mlx_safe::{Array, Dtype};

use super::product::matmul_of_bytes;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// Nothing to configure.
pub(crate) struct MatMulInteger;

impl Op for MatMulInteger {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("MatMulInteger")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        for i in 0..2 {
            node.expect_type(i, |e| e.is_integer() && e.bits() == 8)?;
            if node.input_rank(i) == Some(0) {
                return Err(Decline::invalid("a scalar is not a matrix"));
            }
        }
        Ok(Self)
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the sum is split into blocks")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (a, b) = (centred(cx, 0, 2)?, centred(cx, 1, 3)?);
        let (row, column) = (a.ndim() == 1, b.ndim() == 1);
        let a = if row { a.expand_dims(&[0])? } else { a };
        let b = if column { b.expand_dims(&[1])? } else { b };
        let mut y = matmul_of_bytes(&a, &b)?;
        if column {
            y = y.squeeze(&[-1])?;
        }
        if row {
            y = y.squeeze(&[if column { -1 } else { -2 }])?;
        }
        cx.emit(0, y)
    }
}

/// Input `i` less its zero point, as float32.
fn centred(cx: &Lowering<'_>, i: usize, zero_point: usize) -> Result<Array, LowerError> {
    let x = cx.array(i)?;
    if x.ndim() == 0 {
        return Err(LowerError::invalid("a scalar is not a matrix"));
    }
    let x = x.astype(Dtype::Float32)?;
    let Some(zero) = cx.optional_array(zero_point)? else { return Ok(x) };
    let zero = zero.astype(Dtype::Float32)?;
    let zero = match zero.size() {
        1 => zero.reshape(&[])?,
        // A vector has one entry a row of A; a column's entry broadcasts as it stands.
        _ if i == 0 && zero.ndim() == 1 && x.ndim() > 1 => zero.expand_dims(&[-1])?,
        _ => zero,
    };
    let shape = x.shape();
    let fits = zero.ndim() <= x.ndim()
        && zero.shape().iter().rev().zip(shape.iter().rev()).all(|(&from, &to)| from == to || from == 1);
    if !fits {
        return Err(LowerError::invalid(format!(
            "the zero point of input {i} has shape {:?}, the input {shape:?}",
            zero.shape()
        )));
    }
    Ok(x.subtract(&zero)?)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn bytes(element: E, dims: impl Into<Vec<usize>>) -> onnx_graph::Tensor<'static> {
        let (low, high) = if element == E::Int8 { (-128.0, 127.0) } else { (0.0, 255.0) };
        uniform(element, dims, low, high)
    }

    fn product(a: onnx_graph::Tensor<'static>, b: onnx_graph::Tensor<'static>) -> Case {
        case("MatMulInteger", 10).x(a).x(b)
    }

    op_cases! {
        unsigned: product(bytes(E::Uint8, [4, 3]), bytes(E::Uint8, [3, 2])) => exact();
        mixed: product(bytes(E::Uint8, [4, 3]), bytes(E::Int8, [3, 2])).c(bytes(E::Uint8, [])).c(bytes(E::Int8, [])) => exact();
        signed: product(bytes(E::Int8, [4, 3]), bytes(E::Int8, [3, 2])).x(bytes(E::Int8, [1])).x(bytes(E::Int8, [1])) => exact();
        per_column: product(bytes(E::Uint8, [2, 4, 3]), bytes(E::Uint8, [3, 2])).none().x(bytes(E::Uint8, [2])) => exact();
        long: product(tensor(E::Uint8, [1, 1000], &[255.0; 1000]), tensor(E::Uint8, [1000, 1], &[255.0; 1000])) => exact();
        batches: product(bytes(E::Uint8, [2, 3, 300]), bytes(E::Int8, [2, 300, 5])).c(bytes(E::Uint8, [])) => exact();
        dot: product(bytes(E::Uint8, [7]), bytes(E::Uint8, [7])) => exact();
        empty: product(bytes(E::Uint8, [0, 3]), bytes(E::Uint8, [3, 2])) => exact();
        misfit: product(bytes(E::Uint8, [2, 3]), bytes(E::Uint8, [4, 2])) => fails("multiplied");
    }
}
