//! Constant: a tensor in an attribute.

use mlx_safe::{Array, Dtype};
use onnx_graph::{ElementType, Tensor};

use crate::host::{HostTensor, shape_i32};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The tensor, and its values where they are few enough to be followed on the host.
pub(crate) struct Constant {
    dtype: Dtype,
    tensor: Tensor<'static>,
    host: Option<HostTensor>,
}

impl Op for Constant {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Constant")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let float = ElementType::Float;
        let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let tensor = if let Some(value) = node.tensor("value")? {
            Ok(value.clone().into_owned())
        } else if let Some(value) = node.float("value_float")? {
            Ok(Tensor::scalar(value))
        } else if let Some(values) = node.floats("value_floats")? {
            Tensor::new(float, [values.len()], bytes(&values))
        } else if let Some(value) = node.int("value_int")? {
            Tensor::new(ElementType::Int64, [], value.to_le_bytes().to_vec())
        } else if let Some(values) = node.ints("value_ints")? {
            Ok(Tensor::from_ints(&values))
        } else {
            return Err(Decline::form("strings and sparse tensors are not supported"));
        };
        let tensor = tensor.map_err(|e| Decline::invalid(e.to_string()))?;
        let host = HostTensor::from_bytes(tensor.element(), tensor.dims(), tensor.data());
        Ok(Self { dtype: node.output_dtype(0)?, tensor, host })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        if let Some(host) = &self.host {
            cx.emit_host(0, host.clone());
            return Ok(());
        }
        cx.emit(0, Array::from_bytes(self.dtype, &shape_i32(self.tensor.dims())?, self.tensor.data())?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        tensor_value: case("Constant", 13).attr("value", f32s([2, 3])) => exact();
        tensor_value_old: case("Constant", 1).attr("value", i64s(&[4, 5])) => exact();
        large: case("Constant", 9).attr("value", f32s([40, 40])) => exact();
        uint64: case("Constant", 13).attr("value", random(E::Uint64, [3])) => exact();
        bool: case("Constant", 13).attr("value", random(E::Bool, [3])) => exact();
        empty: case("Constant", 13).attr("value", f32s([0])) => exact();
        int: case("Constant", 12).attr("value_int", 7) => exact();
        ints: case("Constant", 13).attr("value_ints", vec![7, -8]) => exact();
        float: case("Constant", 13).attr("value_float", 0.5f32) => exact();
        floats: case("Constant", 19).attr("value_floats", vec![0.5f32, -1.5]) => exact();
    }
}
