//! ConstantOfShape: one value, as often as a shape asks for.

use mlx_safe::{Array, Dtype};
use ndarray::{ArrayD, IxDyn};
use onnx_graph::{ElementType, Tensor};

use crate::host::{HostTensor, HostValues, given_ints, is_small, shape_i32};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The value, a tensor of one element.
pub(crate) struct ConstantOfShape {
    dtype: Dtype,
    value: Tensor<'static>,
}

impl Op for ConstantOfShape {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("ConstantOfShape")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let value = node.tensor("value")?.map_or_else(|| Tensor::scalar(0.0), |v| v.clone().into_owned());
        if value.len() != 1 {
            return Err(Decline::invalid("the value is not a tensor of one element"));
        }
        Ok(Self { dtype: node.output_dtype(0)?, value })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the input's values are the output's shape")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let shape = shape_i32(&checked(cx.ints(0)?)?)?;
        let value = Array::from_bytes(self.dtype, &[], self.value.data())?;
        cx.emit(0, mlx_safe::full(&shape, &value)?)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let Some(shape) = given_ints(inputs, 0) else { return Ok(None) };
        let shape: Vec<usize> = checked(shape)?.into_iter().map(|d| d as usize).collect();
        let element: ElementType = self.value.element();
        let value = HostTensor::from_bytes(element, &[], self.value.data());
        let Some(value) = value.filter(|_| is_small(&shape)) else {
            return Ok(None);
        };
        let shape = IxDyn(&shape);
        Ok(match value.values() {
            HostValues::Ints(v) => {
                v.first().map(|&v| vec![HostTensor::ints(element, ArrayD::from_elem(shape, v))])
            }
            HostValues::Floats(v) => {
                v.first().map(|&v| vec![HostTensor::floats(element, ArrayD::from_elem(shape, v))])
            }
        })
    }
}

fn checked(shape: Vec<i64>) -> Result<Vec<i64>, LowerError> {
    match shape.iter().find(|&&d| d < 0) {
        Some(_) => Err(LowerError::invalid(format!("shape {shape:?} has a negative size"))),
        None => Ok(shape),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        default_value: case("ConstantOfShape", 9).x(i64s(&[2, 3])) => exact();
        int64: case("ConstantOfShape", 20).c(i64s(&[2, 3])).attr("value", i64s(&[-7])) => exact();
        large: case("ConstantOfShape", 9).x(i64s(&[64, 64])).attr("value", tensor(E::Float, [1], &[1.5])) => exact();
        large_uint64: case("ConstantOfShape", 9).x(i64s(&[64, 64])).attr("value", tensor(E::Uint64, [1], &[5.0])) => exact();
        bool: case("ConstantOfShape", 9).x(i64s(&[3])).attr("value", tensor(E::Bool, [1], &[1.0])) => exact();
        scalar: case("ConstantOfShape", 9).x(i64s(&[])) => exact();
        empty: case("ConstantOfShape", 9).x(i64s(&[2, 0])) => exact();
        empty_uint64: case("ConstantOfShape", 9).x(i64s(&[2, 0])).attr("value", tensor(E::Uint64, [1], &[5.0])) => exact();
        negative: case("ConstantOfShape", 9).x(i64s(&[-1])) => fails("negative size");
    }
}
