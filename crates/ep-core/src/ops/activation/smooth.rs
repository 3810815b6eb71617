//! Activations made of exponentials, in forms that neither overflow nor cancel: `Sigmoid`, `Softplus`, `Softsign`, `Elu`,
//! `Selu`, `Celu`, `Mish`, `Swish`, and com.microsoft's `QuickGelu`. 16-bit floats are computed in float32.

use kernels_metal::elementwise::Function;
use mlx_safe::{Array, where_};

use crate::convert::{in_float32, like};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The function and its parameters.
pub(crate) enum Smooth {
    Sigmoid,
    Softplus,
    Softsign,
    Elu {
        alpha: f32,
    },
    Selu {
        alpha: f32,
        gamma: f32,
    },
    Celu {
        alpha: f32,
    },
    Mish,
    /// x * sigmoid(alpha * x); `QuickGelu` too.
    Swish {
        alpha: f32,
    },
}

impl Op for Smooth {
    const KEYS: &'static [OpKey] = &[
        OpKey::onnx("Sigmoid"),
        OpKey::onnx("Softplus"),
        OpKey::onnx("Softsign"),
        OpKey::onnx("Elu"),
        OpKey::onnx("Selu"),
        OpKey::onnx("Celu"),
        OpKey::onnx("Mish"),
        OpKey::onnx("Swish"),
        OpKey::microsoft("QuickGelu"),
    ];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        Ok(match node.op_type() {
            "Sigmoid" => Self::Sigmoid,
            "Softplus" => Self::Softplus,
            "Softsign" => Self::Softsign,
            "Elu" => Self::Elu { alpha: node.float_or("alpha", 1.0)? },
            "Selu" => {
                let (alpha, gamma) =
                    (node.float_or("alpha", 1.673_263_2)?, node.float_or("gamma", 1.050_701)?);
                Self::Selu { alpha, gamma }
            }
            "Celu" => match node.float_or("alpha", 1.0)? {
                0.0 => return Err(Decline::attribute("alpha", 0)),
                alpha => Self::Celu { alpha },
            },
            "Mish" => Self::Mish,
            "QuickGelu" => Self::Swish { alpha: node.float_or("alpha", 1.702)? },
            _ => Self::Swish { alpha: node.float_or("alpha", 1.0)? },
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let y = in_float32(&cx.array(0)?, |x| match *self {
            Self::Sigmoid => Function::Sigmoid.apply(x),
            Self::Softplus => softplus(x),
            Self::Softsign => x.divide(&x.abs()?.add(&like(1.0, x)?)?),
            Self::Elu { alpha } => elu(x, alpha),
            Self::Selu { alpha, gamma } => elu(x, alpha)?.multiply(&like(gamma.into(), x)?),
            Self::Celu { alpha } => celu(x, alpha),
            Self::Mish => x.multiply(&Function::Tanh.apply(&softplus(x)?)?),
            Self::Swish { alpha } => Function::Swish { alpha }.apply(x),
        })?;
        cx.emit(0, y)
    }
}

fn softplus(x: &Array) -> mlx_safe::Result<Array> {
    x.logaddexp(&like(0.0, x)?)
}

fn elu(x: &Array, alpha: f32) -> mlx_safe::Result<Array> {
    where_(&x.less(&like(0.0, x)?)?, &x.expm1()?.multiply(&like(alpha.into(), x)?)?, x)
}

/// max(0, x) + min(0, alpha * (e^(x / alpha) - 1)), which is no `elu` where alpha is negative.
fn celu(x: &Array, alpha: f32) -> mlx_safe::Result<Array> {
    let (zero, alpha) = (like(0.0, x)?, like(alpha.into(), x)?);
    let curve = x.divide(&alpha)?.expm1()?.multiply(&alpha)?;
    x.maximum(&zero)?.add(&curve.minimum(&zero)?)
}

#[cfg(test)]
mod tests {
    use onnx_graph::Tensor;

    use crate::testing::*;

    const ALL: [f64; 10] =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5, 0.5, -100.0, 100.0, -1e30, 1e-6, 20.0];

    fn strange() -> Tensor<'static> {
        tensor(E::Float, [80], &ALL.repeat(8))
    }

    op_cases! {
        sigmoid: case("Sigmoid", 13).x(strange()) => close(tol::F32);
        sigmoid_large: case("Sigmoid", 13).x(uniform(E::Float, [3, 700], -120.0, 120.0)) => close(tol::F32);
        sigmoid_large_odd: case("Sigmoid", 13).x(tensor(E::Float, [1500], &ALL.repeat(150))) => close(tol::F32);
        swish_large: case("Swish", 24).x(uniform(E::Float, [3, 700], -9.0, 9.0)).attr("alpha", 1.7f32) => close(tol::F32);
        sigmoid_opset_6: case("Sigmoid", 6).x(f32s([2, 3])) => close(tol::F32);
        sigmoid_f16: case("Sigmoid", 13).x(uniform(E::Float16, [40], -20.0, 20.0)) => close(tol::F16);
        sigmoid_bf16: case("Sigmoid", 13).x(random(E::Bfloat16, [40])) => close(tol::BF16);
        sigmoid_scalar: case("Sigmoid", 13).x(f32s([])) => close(tol::F32);
        sigmoid_empty: case("Sigmoid", 13).x(f32s([0])) => exact();
        softplus: case("Softplus", 1).x(strange()) => close(tol::F32);
        softplus_f16: case("Softplus", 22).x(uniform(E::Float16, [40], -20.0, 20.0)) => close(tol::F16);
        softsign: case("Softsign", 1).x(strange()) => close(tol::F32);
        elu: case("Elu", 6).x(strange()) => close(tol::F32);
        elu_alpha: case("Elu", 22).x(strange()).attr("alpha", -2.0f32) => close(tol::F32);
        elu_f16: case("Elu", 22).x(random(E::Float16, [40])) => close(tol::F16);
        selu: case("Selu", 6).x(strange()) => close(tol::F32);
        selu_parameters: case("Selu", 22).x(f32s([40])).attr("alpha", 2.0f32).attr("gamma", 3.0f32) => close(tol::F32);
        celu: case("Celu", 12).x(strange()) => close(tol::F32);
        celu_alpha: case("Celu", 12).x(f32s([40])).attr("alpha", 2.0f32) => close(tol::F32);
        celu_negative_alpha: case("Celu", 12).x(strange()).attr("alpha", -2.0f32) => close(tol::F32);
        mish: case("Mish", 18).x(strange()) => close(tol::F32);
        mish_f16: case("Mish", 22).x(random(E::Float16, [40])) => close(tol::F16);
        swish: case("Swish", 24).x(strange()) => close(tol::F32);
        swish_alpha: case("Swish", 24).x(f32s([40])).attr("alpha", 1.7f32) => close(tol::F32);
        quick_gelu: case("QuickGelu", 21).microsoft().x(strange()) => close(tol::F32);
        quick_gelu_alpha: case("QuickGelu", 21).microsoft().x(f32s([40])).attr("alpha", 1.0f32) => close(tol::F32);
        celu_zero_alpha: case("Celu", 12).x(f32s([2])).attr("alpha", 0.0f32) => declines();
        double: case("Sigmoid", 13).x(random(E::Double, [2])) => declines();
    }
}
