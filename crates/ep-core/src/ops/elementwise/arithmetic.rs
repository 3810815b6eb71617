//! `Add`, `Sub`, `Mul` and the bitwise operators: one MLX operation of two arrays each; integers wrap.

use mlx_safe::Array;

use crate::host::{HostTensor, HostValues};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, broadcast};

/// One of [`TABLE`].
pub(crate) struct Arithmetic(&'static Row);

struct Row {
    name: &'static str,
    apply: fn(&Array, &Array) -> mlx_safe::Result<Array>,
    ints: fn(i64, i64) -> i64,
    /// `None` if only integers are taken.
    floats: Option<fn(f64, f64) -> f64>,
}

static TABLE: &[Row] = &[
    Row { name: "Add", apply: Array::add, ints: i64::wrapping_add, floats: Some(|a, b| a + b) },
    Row { name: "Sub", apply: Array::subtract, ints: i64::wrapping_sub, floats: Some(|a, b| a - b) },
    Row { name: "Mul", apply: Array::multiply, ints: i64::wrapping_mul, floats: Some(|a, b| a * b) },
    Row { name: "BitwiseAnd", apply: Array::bitwise_and, ints: |a, b| a & b, floats: None },
    Row { name: "BitwiseOr", apply: Array::bitwise_or, ints: |a, b| a | b, floats: None },
    Row { name: "BitwiseXor", apply: Array::bitwise_xor, ints: |a, b| a ^ b, floats: None },
];

impl Op for Arithmetic {
    const KEYS: &'static [OpKey] = &[
        OpKey::onnx("Add"),
        OpKey::onnx("Sub"),
        OpKey::onnx("Mul"),
        OpKey::onnx("BitwiseAnd"),
        OpKey::onnx("BitwiseOr"),
        OpKey::onnx("BitwiseXor"),
    ];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let row = TABLE.iter().find(|row| row.name == node.op_type());
        let row = row.ok_or_else(|| Decline::invalid("not in the table of arithmetic operators"))?;
        broadcast::by_numpy_rules(node)?;
        node.expect_type(0, |e| e.is_integer() || (e.is_float() && row.floats.is_some()))?;
        Ok(Self(row))
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let y = (self.0.apply)(&cx.array(0)?, &cx.array(1)?)?;
        cx.emit(0, y)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let &[Some(a), Some(b)] = inputs else { return Ok(None) };
        let element = a.element();
        Ok(match (a.values(), b.values(), self.0.floats) {
            (HostValues::Ints(a), HostValues::Ints(b), _) => {
                broadcast::zip(a, b, self.0.ints)?.map(|v| vec![HostTensor::ints(element, v)])
            }
            (HostValues::Floats(a), HostValues::Floats(b), Some(f)) => {
                broadcast::zip(a, b, f)?.map(|v| vec![HostTensor::floats(element, v)])
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    const BIG: i64 = (1 << 53) + 1;

    op_cases! {
        add: case("Add", 14).x(f32s([2, 3])).x(f32s([2, 3])) => exact();
        add_opset_7: case("Add", 7).x(f32s([2, 3])).x(f32s([3])) => exact();
        add_both_broadcast: case("Add", 13).x(f32s([2, 1, 3])).x(f32s([4, 1])) => exact();
        add_scalars: case("Add", 14).x(f32s([])).c(f32s([])) => exact();
        add_empty: case("Add", 14).x(f32s([0, 3])).x(f32s([1, 3])) => exact();
        add_int64_beyond_doubles: case("Add", 14).x(i64s(&[BIG, -BIG, i64::MAX])).x(i64s(&[1, -2, 1])) => exact();
        add_int64_folded: case("Add", 14).c(i64s(&[BIG, i64::MAX])).c(i64s(&[1, 1])) => exact();
        add_f16: case("Add", 14).x(random(E::Float16, [5])).x(random(E::Float16, [5])) => close(tol::F16);
        add_bf16: case("Add", 14).x(random(E::Bfloat16, [5])).x(random(E::Bfloat16, [5])) => close(tol::BF16);
        add_uint8_wraps: case("Add", 14).x(tensor(E::Uint8, [2], &[250.0, 3.0])).x(tensor(E::Uint8, [1], &[9.0])) => exact();
        add_uint64: case("Add", 14).x(tensor(E::Uint64, [2], &[1.8e19, 3.0])).x(tensor(E::Uint64, [1], &[9.0])) => exact();
        sub_int8_wraps: case("Sub", 14).x(tensor(E::Int8, [2], &[-100.0, 3.0])).x(tensor(E::Int8, [2], &[100.0, 4.0])) => exact();
        sub_uint16_large: case("Sub", 14).x(uniform(E::Uint16, [70, 40], 0.0, 9.0)).x(uniform(E::Uint16, [40], 0.0, 9.0)) => exact();
        sub_floats_folded: case("Sub", 14).c(f32s([4, 1])).c(f32s([3])) => exact();
        mul: case("Mul", 14).x(f32s([2, 3])).c(f32s([1])) => exact();
        mul_int32_wraps: case("Mul", 14).x(tensor(E::Int32, [100, 2], &[123456.0; 200])).x(tensor(E::Int32, [2], &[65537.0, -9.0])) => exact();
        mul_int32_wraps_folded: case("Mul", 14).x(tensor(E::Int32, [1], &[123456.0])).x(tensor(E::Int32, [1], &[65537.0])) => exact();
        mul_floats_folded: case("Mul", 13).c(f32s([])).c(f32s([4])) => exact();
        mul_special: case("Mul", 14).x(tensor(E::Float, [3], &[f64::NAN, f64::INFINITY, 0.0])).x(tensor(E::Float, [3], &[0.0, 0.0, -1.0])) => exact();
        bitwise_and: case("BitwiseAnd", 18).x(random(E::Int32, [3, 40])).x(uniform(E::Int32, [3, 1], 0.0, 99.0)) => exact();
        bitwise_or: case("BitwiseOr", 18).x(uniform(E::Uint8, [100], 0.0, 255.0)).x(uniform(E::Uint8, [1], 0.0, 255.0)) => exact();
        bitwise_xor: case("BitwiseXor", 18).x(i64s(&[-1, 5])).x(i64s(&[6, 7])) => exact();
        does_not_broadcast: case("Add", 14).x(f32s([2])).x(f32s([3])) => fails("broadcast");
        double: case("Add", 14).x(random(E::Double, [2])).x(random(E::Double, [2])) => declines();
        old_broadcasting: case("Add", 6).x(f32s([2])).x(f32s([2])) => declines();
        bitwise_bool: case("BitwiseAnd", 18).x(random(E::Bool, [2])).x(random(E::Bool, [2])) => declines();
    }
}
