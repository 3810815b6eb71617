//! `Gelu` (ai.onnx 20), and com.microsoft's `Gelu`, `FastGelu` and `BiasGelu`. 16-bit floats are computed in float32.

use kernels_metal::elementwise::Function;
use mlx_safe::Dtype;

use crate::convert::in_float32;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// Any GELU, of the sum with an optional second input.
pub(crate) struct Gelu {
    approximate: bool,
}

impl Op for Gelu {
    const KEYS: &'static [OpKey] = &[
        OpKey::onnx("Gelu"),
        OpKey::microsoft("Gelu"),
        OpKey::microsoft("FastGelu"),
        OpKey::microsoft("BiasGelu"),
    ];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        let approximate = match (node.domain(), node.op_type()) {
            ("", _) => match node.string_or("approximate", "none")? {
                "none" => false,
                "tanh" => true,
                other => return Err(Decline::attribute("approximate", other)),
            },
            (_, name) => name == "FastGelu",
        };
        Ok(Self { approximate })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let bias = cx.optional_array(1)?.map(|bias| bias.astype(Dtype::Float32)).transpose()?;
        let y = in_float32(&cx.array(0)?, |x| {
            let x = bias.map_or_else(|| Ok(x.clone()), |bias| x.add(&bias))?;
            if self.approximate { Function::GeluTanh } else { Function::Gelu }.apply(&x)
        })?;
        cx.emit(0, y)
    }
}

#[cfg(test)]
mod tests {
    use onnx_graph::Tensor;

    use crate::testing::*;

    fn strange() -> Tensor<'static> {
        tensor(E::Float, [8], &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5, 0.5, -100.0, 100.0, -3.0])
    }

    op_cases! {
        erf: case("Gelu", 20).x(f32s([2, 40])) => close(tol::F32);
        erf_large: case("Gelu", 20).x(uniform(E::Float, [7, 333], -9.0, 9.0)) => close(tol::F32);
        erf_large_f16: case("Gelu", 20).x(uniform(E::Float16, [7, 333], -9.0, 9.0)) => close(tol::F16);
        tanh_large: case("Gelu", 20).x(uniform(E::Float, [7, 333], -9.0, 9.0)).attr("approximate", "tanh") => close(tol::F32);
        erf_special: case("Gelu", 20).x(strange()).attr("approximate", "none") => close(tol::F32);
        erf_f16: case("Gelu", 20).x(uniform(E::Float16, [80], -9.0, 9.0)) => close(tol::F16);
        erf_bf16: case("Gelu", 20).x(random(E::Bfloat16, [80])) => close(tol::BF16);
        tanh: case("Gelu", 20).x(f32s([2, 40])).attr("approximate", "tanh") => close(tol::F32);
        tanh_special: case("Gelu", 20).x(strange()).attr("approximate", "tanh") => close(tol::F32);
        tanh_f16_does_not_overflow: case("Gelu", 20).x(uniform(E::Float16, [80], -90.0, 90.0)).attr("approximate", "tanh") => close(tol::F16);
        scalar: case("Gelu", 20).x(f32s([])) => close(tol::F32);
        empty: case("Gelu", 20).x(f32s([0, 2])) => exact();
        microsoft: case("Gelu", 17).microsoft().x(f32s([2, 40])) => close(tol::F32);
        fast: case("FastGelu", 17).microsoft().x(f32s([2, 40])) => close(tol::F32);
        fast_bias: case("FastGelu", 17).microsoft().x(f32s([2, 3, 40])).c(f32s([40])) => close(tol::F32);
        fast_f16: case("FastGelu", 17).microsoft().x(random(E::Float16, [2, 40])).x(random(E::Float16, [40])) => close(tol::F16);
        bias: case("BiasGelu", 17).microsoft().x(f32s([2, 3, 40])).c(f32s([40])) => close(tol::F32);
        bias_empty: case("BiasGelu", 17).microsoft().x(f32s([0, 40])).c(f32s([40])) => exact();
        unknown: case("Gelu", 20).x(f32s([2])).attr("approximate", "sigmoid") => declines();
    }
}
