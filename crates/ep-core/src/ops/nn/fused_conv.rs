//! `FusedConv` (com.microsoft): a convolution, plus another input, then an activation. ONNX Runtime's optimizer writes it.

use kernels_metal::elementwise::Function;
use mlx_safe::Array;

use super::conv::Conv;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The convolution and what follows it.
pub(crate) struct FusedConv {
    conv: Conv,
    activation: Activation,
}

enum Activation {
    None,
    Relu,
    Tanh,
    Sigmoid,
    /// Slope below zero.
    LeakyRelu(f32),
    /// Bounds.
    Clip(f32, f32),
    /// Slope and offset.
    HardSigmoid(f32, f32),
}

impl Op for FusedConv {
    const KEYS: &'static [OpKey] = &[OpKey::microsoft("FusedConv")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let given = node.floats("activation_params")?.unwrap_or_default();
        let name = node.string_or("activation", "")?;
        let activation = match (name, given.as_slice()) {
            ("", _) => Activation::None,
            ("Relu", _) => Activation::Relu,
            ("Tanh", _) => Activation::Tanh,
            ("Sigmoid", _) => Activation::Sigmoid,
            ("LeakyRelu", &[slope]) => Activation::LeakyRelu(slope),
            ("Clip", &[low, high]) => Activation::Clip(low, high),
            ("HardSigmoid", &[slope, offset]) => Activation::HardSigmoid(slope, offset),
            _ => return Err(Decline::attribute("activation", format!("{name} {given:?}"))),
        };
        Ok(Self { conv: Conv::claim(node)?, activation })
    }

    fn shape_mode(&self) -> ShapeMode {
        self.conv.shape_mode()
    }

    fn stored(&self, i: usize, constant: &Array) -> mlx_safe::Result<Option<Array>> {
        Op::stored(&self.conv, i, constant)
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let mut y = self.conv.convolve(cx)?;
        if let Some(other) = cx.optional_array(3)? {
            if other.shape() != y.shape() {
                return Err(LowerError::invalid(format!("adding {:?} to {:?}", other.shape(), y.shape())));
            }
            y = y.add(&other)?;
        }
        let scalar = |v: f32| Array::scalar_of(v.into(), y.dtype());
        let y = match self.activation {
            Activation::None => y,
            Activation::Relu => y.maximum(&scalar(0.0)?)?,
            Activation::Tanh => Function::Tanh.apply(&y)?,
            Activation::Sigmoid => Function::Sigmoid.apply(&y)?,
            Activation::LeakyRelu(slope) => {
                let below = y.minimum(&scalar(0.0)?)?.multiply(&scalar(slope)?)?;
                y.maximum(&scalar(0.0)?)?.add(&below)?
            }
            Activation::Clip(low, high) => y.maximum(&scalar(low)?)?.minimum(&scalar(high)?)?,
            Activation::HardSigmoid(slope, offset) => {
                let line = y.multiply(&scalar(slope)?)?.add(&scalar(offset)?)?;
                line.maximum(&scalar(0.0)?)?.minimum(&scalar(1.0)?)?
            }
        };
        cx.emit(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn fused(activation: &'static str, params: Vec<f32>) -> Case {
        case("FusedConv", 13)
            .microsoft()
            .x(f32s([1, 2, 5, 6]))
            .x(f32s([3, 2, 3, 3]))
            .x(f32s([3]))
            .attr("activation", activation)
            .attr("activation_params", params)
    }

    op_cases! {
        relu: fused("Relu", vec![]) => close(tol::F32_SUM);
        tanh: fused("Tanh", vec![]).attr("pads", vec![1i64, 1, 1, 1]) => close(tol::F32_SUM);
        sigmoid: fused("Sigmoid", vec![]) => close(tol::F32_SUM);
        leaky: fused("LeakyRelu", vec![0.1]) => close(tol::F32_SUM);
        clip: fused("Clip", vec![-1.0, 2.0]) => close(tol::F32_SUM);
        hard_sigmoid: fused("HardSigmoid", vec![0.2, 0.5]) => close(tol::F32_SUM);
        sum: fused("Relu", vec![]).x(f32s([1, 3, 3, 4])) => close(tol::F32_SUM);
        plain: case("FusedConv", 13).microsoft().x(f32s([1, 2, 5])).c(f32s([3, 2, 3])) => close(tol::F32_SUM);
        unknown: fused("Softplus", vec![]) => declines();
    }
}
