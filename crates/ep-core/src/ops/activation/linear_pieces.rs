//! Activations made of straight pieces: `Relu`, `LeakyRelu`, `ThresholdedRelu`, `HardSigmoid`, `HardSwish`, `Shrink`.

use mlx_safe::{Array, Dtype, where_};

use crate::convert::{cast, in_float32, like};
use crate::host::HostTensor;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The function and its parameters.
pub(crate) enum LinearPieces {
    Relu,
    LeakyRelu { alpha: f32 },
    ThresholdedRelu { alpha: f32 },
    HardSigmoid { alpha: f32, beta: f32 },
    HardSwish,
    Shrink { bias: f32, lambda: f32 },
}

impl Op for LinearPieces {
    const KEYS: &'static [OpKey] = &[
        OpKey::onnx("Relu"),
        OpKey::onnx("LeakyRelu"),
        OpKey::onnx("ThresholdedRelu"),
        OpKey::onnx("HardSigmoid"),
        OpKey::onnx("HardSwish"),
        OpKey::onnx("Shrink"),
    ];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let (op, integers) = match node.op_type() {
            "Relu" => (Self::Relu, true),
            "LeakyRelu" => (Self::LeakyRelu { alpha: node.float_or("alpha", 0.01)? }, false),
            "ThresholdedRelu" => (Self::ThresholdedRelu { alpha: node.float_or("alpha", 1.0)? }, false),
            "HardSigmoid" => {
                let (alpha, beta) = (node.float_or("alpha", 0.2)?, node.float_or("beta", 0.5)?);
                (Self::HardSigmoid { alpha, beta }, false)
            }
            "HardSwish" => (Self::HardSwish, false),
            _ => {
                let (bias, lambda) = (node.float_or("bias", 0.0)?, node.float_or("lambd", 0.5)?);
                (Self::Shrink { bias, lambda }, true)
            }
        };
        node.expect_type(0, |e| e.is_float() || (integers && e.is_integer()))?;
        Ok(op)
    }

    fn shape_mode(&self) -> ShapeMode {
        match self {
            Self::Shrink { .. } => {
                ShapeMode::Keyed("MLX does not infer the shape of a view, as uint64 is made")
            }
            _ => ShapeMode::Shapeless,
        }
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let y = match *self {
            Self::Relu => x.maximum(&like(0.0, &x)?)?,
            Self::LeakyRelu { alpha } => in_float32(&x, |x| {
                where_(&x.less(&like(0.0, x)?)?, &x.multiply(&like(alpha.into(), x)?)?, x)
            })?,
            Self::ThresholdedRelu { alpha } => {
                in_float32(&x, |x| where_(&x.greater(&like(alpha.into(), x)?)?, x, &like(0.0, x)?))?
            }
            Self::HardSigmoid { alpha, beta } => in_float32(&x, |x| hard_sigmoid(x, alpha, beta))?,
            Self::HardSwish => in_float32(&x, |x| x.multiply(&hard_sigmoid(x, 1.0 / 6.0, 0.5)?))?,
            // Integers too, with fractional bias and lambda.
            Self::Shrink { bias, lambda } => {
                cast(&shrink(&x.astype(Dtype::Float32)?, bias.into(), lambda.into())?, x.dtype())?
            }
        };
        cx.emit(0, y)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let (Self::Relu, Some(Some(x))) = (self, inputs.first()) else { return Ok(None) };
        Ok(x.as_ints().map(|v| vec![HostTensor::ints(x.element(), v.mapv(|v| v.max(0)))]))
    }
}

fn hard_sigmoid(x: &Array, alpha: f32, beta: f32) -> mlx_safe::Result<Array> {
    let line = x.multiply(&like(alpha.into(), x)?)?.add(&like(beta.into(), x)?)?;
    line.minimum(&like(1.0, x)?)?.maximum(&like(0.0, x)?)
}

fn shrink(x: &Array, bias: f64, lambda: f64) -> mlx_safe::Result<Array> {
    let bias = like(bias, x)?;
    let above = where_(&x.greater(&like(lambda, x)?)?, &x.subtract(&bias)?, &like(0.0, x)?)?;
    where_(&x.less(&like(-lambda, x)?)?, &x.add(&bias)?, &above)
}

#[cfg(test)]
mod tests {
    use onnx_graph::Tensor;

    use crate::testing::*;

    fn strange() -> Tensor<'static> {
        tensor(E::Float, [6], &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5, 0.5, -100.0])
    }

    op_cases! {
        relu: case("Relu", 14).x(f32s([2, 3])) => exact();
        relu_opset_6: case("Relu", 6).x(strange()) => exact();
        relu_f16: case("Relu", 13).x(random(E::Float16, [40])) => exact();
        relu_bf16: case("Relu", 13).x(random(E::Bfloat16, [40])) => exact();
        relu_int32: case("Relu", 14).x(random(E::Int32, [90])) => exact();
        relu_int8_folded: case("Relu", 14).x(random(E::Int8, [9])) => exact();
        relu_scalar: case("Relu", 14).x(f32s([])) => exact();
        relu_empty: case("Relu", 14).x(f32s([0, 3])) => exact();
        leaky: case("LeakyRelu", 16).x(strange()) => exact();
        leaky_alpha: case("LeakyRelu", 6).x(f32s([40])).attr("alpha", 2.0f32) => exact();
        leaky_f16: case("LeakyRelu", 16).x(random(E::Float16, [40])).attr("alpha", 0.1f32) => close(tol::F16);
        thresholded: case("ThresholdedRelu", 10).x(strange()) => exact();
        thresholded_alpha: case("ThresholdedRelu", 22).x(f32s([40])).attr("alpha", 0.3f32) => exact();
        hard_sigmoid: case("HardSigmoid", 6).x(strange()) => close(tol::F32);
        hard_sigmoid_parameters: case("HardSigmoid", 22).x(f32s([40])).attr("alpha", -1.0f32).attr("beta", 0.3f32) => close(tol::F32);
        hard_sigmoid_bf16: case("HardSigmoid", 22).x(random(E::Bfloat16, [40])) => close(tol::BF16);
        hard_swish: case("HardSwish", 14).x(uniform(E::Float, [40], -5.0, 5.0)) => close(tol::F32);
        hard_swish_special: case("HardSwish", 22).x(strange()) => close(tol::F32);
        hard_swish_f16: case("HardSwish", 22).x(uniform(E::Float16, [40], -5.0, 5.0)) => close(tol::F16);
        shrink: case("Shrink", 9).x(f32s([40])) => exact();
        shrink_parameters: case("Shrink", 9).x(strange()).attr("bias", 1.5f32).attr("lambd", 0.2f32) => exact();
        shrink_int32: case("Shrink", 9).x(tensor(E::Int32, [5], &[-9.0, -3.0, 100.0, 2147483647.0, -2147483648.0])).attr("bias", 1.5f32).attr("lambd", 5.5f32) => exact();
        shrink_int8: case("Shrink", 9).x(tensor(E::Int8, [3], &[-128.0, 127.0, 5.0])).attr("bias", -100.0f32).attr("lambd", 5.5f32) => exact();
        shrink_uint64: case("Shrink", 9).x(tensor(E::Uint64, [3], &[1.0, 9.0, 100.0])).attr("bias", 1.5f32).attr("lambd", 5.5f32) => exact();
        shrink_f16: case("Shrink", 9).x(random(E::Float16, [40])).attr("bias", 0.25f32) => close(tol::F16);
        leaky_double: case("LeakyRelu", 16).x(random(E::Double, [2])) => declines();
    }
}
