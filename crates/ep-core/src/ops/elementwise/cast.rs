//! `Cast` and `CastLike` between all types that MLX has; what is out of range goes as on ONNX Runtime's CPU provider.

use mlx_safe::Dtype;

use crate::host::HostTensor;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, convert, dtype};

/// `Cast`, `CastLike`.
pub(crate) struct Cast {
    to: Dtype,
}

impl Op for Cast {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Cast"), OpKey::onnx("CastLike")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        // ONNX Runtime has put `to`, or the second input's type, on the output; the other two are of 8-bit floats.
        node.ignore(&["to", "saturate", "round_mode"]);
        Ok(Self { to: node.output_dtype(0)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        match self.to {
            Dtype::Uint64 => ShapeMode::Keyed("MLX does not infer the shape of a view, which floats become"),
            _ => ShapeMode::Shapeless,
        }
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        cx.emit(0, convert::cast(&cx.array(0)?, self.to)?)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let folded = inputs.first().copied().flatten();
        Ok(folded.and_then(|x| convert::cast_host(x, dtype::to_onnx(self.to))).map(|y| vec![y]))
    }

    /// Of `CastLike`'s second input only the type counts.
    fn fold_inputs(&self) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use onnx_graph::Tensor;

    use crate::testing::*;

    /// Every fate: NaN, infinities, beyond int8 to uint64, fractions.
    fn strange() -> Tensor<'static> {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        tensor(
            E::Float,
            [14],
            &[nan, inf, -inf, 300.7, -300.7, 7e4, -7e4, 3e9, -3e9, 1e19, -1.5, 1.9, -0.5, 255.9],
        )
    }

    fn plain(element: E) -> Tensor<'static> {
        tensor(element, [5], &[0.0, 1.9, -1.9, 126.5, 100.0])
    }

    fn to(x: Tensor<'static>, element: E) -> Case {
        case("Cast", 19).x(x).attr("to", i64::from(element.onnx()))
    }

    fn folded(x: Tensor<'static>, element: E) -> Case {
        case("Cast", 19).c(x).attr("to", i64::from(element.onnx()))
    }

    op_cases! {
        float_to_bool: to(strange(), E::Bool) => exact();
        float_to_int8: to(strange(), E::Int8) => exact();
        float_to_uint8: to(strange(), E::Uint8) => exact();
        float_to_int16: to(strange(), E::Int16) => exact();
        float_to_uint16: to(strange(), E::Uint16) => exact();
        float_to_int32: to(strange(), E::Int32) => exact();
        float_to_uint32: to(plain(E::Float), E::Uint32) => exact();
        float_to_int64: to(strange(), E::Int64) => exact();
        float_to_uint64: to(strange(), E::Uint64) => exact();
        float_to_int8_folded: folded(strange(), E::Int8) => exact();
        float_to_int32_folded: folded(strange(), E::Int32) => exact();
        float_to_int64_folded: folded(strange(), E::Int64) => exact();
        float_to_bool_folded: folded(strange(), E::Bool) => exact();
        half_to_int8: to(plain(E::Float16), E::Int8) => exact();
        half_to_int64: to(tensor(E::Float16, [3], &[f64::NAN, f64::INFINITY, -7.9]), E::Int64) => exact();
        half_to_float: to(random(E::Float16, [2, 9]), E::Float) => exact();
        bfloat_to_int32: to(tensor(E::Bfloat16, [3], &[3e9, -2.5, 7.0]), E::Int32) => exact();
        bfloat_to_bool: to(tensor(E::Bfloat16, [3], &[0.0, -0.0, 0.25]), E::Bool) => exact();
        int64_to_int32: to(i64s(&[-1, 300, (1 << 40) + 5, i64::MAX, i64::MIN]), E::Int32) => exact();
        int64_to_uint8: to(i64s(&[-1, 300, (1 << 40) + 5]), E::Uint8) => exact();
        int64_to_uint64: to(i64s(&[-1, 300, i64::MIN]), E::Uint64) => exact();
        int64_to_bool: to(i64s(&[-1, 0, 1 << 40]), E::Bool) => exact();
        int64_to_float: to(i64s(&[i64::MAX, (1 << 53) + 1, (1 << 24) + 1, -7]), E::Float) => exact();
        int64_to_float_large: to(uniform(E::Int64, [40, 50], -1e18, 1e18), E::Float) => exact();
        int32_to_float: to(tensor(E::Int32, [100], &[16777217.0; 100]), E::Float) => exact();
        uint64_to_float: to(tensor(E::Uint64, [2], &[1.8e19, 3.0]), E::Float) => exact();
        uint64_to_int64: to(tensor(E::Uint64, [2], &[1.8e19, 3.0]), E::Int64) => exact();
        uint64_to_int8: to(tensor(E::Uint64, [2], &[1.8e19, 130.0]), E::Int8) => exact();
        int8_to_uint32: to(tensor(E::Int8, [2], &[-3.0, 3.0]), E::Uint32) => exact();
        bool_to_float: to(random(E::Bool, [7]), E::Float) => exact();
        bool_to_int64: to(random(E::Bool, [200]), E::Int64) => exact();
        same_type: to(f32s([3]), E::Float) => exact();
        opset_9: case("Cast", 9).x(f32s([2, 3])).attr("to", 7i64) => exact();
        scalar: to(f32s([]), E::Int64) => exact();
        empty: to(f32s([0, 3]), E::Int64) => exact();
        like_half: case("CastLike", 15).x(f32s([40])).x(random(E::Float16, [1])) => close(tol::F16);
        like_half_overflow: case("CastLike", 19).x(tensor(E::Float, [2], &[f64::INFINITY, 60000.0])).x(random(E::Float16, [1])) => close(tol::F16);
        like_bfloat_from_int: case("CastLike", 19).x(tensor(E::Int32, [2], &[2049.0, -3.0])).x(random(E::Bfloat16, [1])) => close(tol::BF16);
        like_int: case("CastLike", 19).x(plain(E::Float)).x(i64s(&[])) => exact();
        double: to(f32s([2]), E::Double) => declines();
    }
}
