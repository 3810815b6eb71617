//! Comparisons and the logic of two inputs: booleans from two arrays.

use mlx_safe::Array;
use onnx_graph::ElementType;

use crate::host::{HostTensor, HostValues};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, broadcast};

/// One of [`TABLE`].
pub(crate) struct Compare(&'static Row);

struct Row {
    name: &'static str,
    types: Types,
    apply: fn(&Array, &Array) -> mlx_safe::Result<Array>,
    ints: fn(&i64, &i64) -> bool,
    floats: fn(&f64, &f64) -> bool,
}

#[derive(Clone, Copy)]
enum Types {
    Bool,
    Numeric,
    All,
}

const fn logic(
    name: &'static str,
    apply: fn(&Array, &Array) -> mlx_safe::Result<Array>,
    ints: fn(&i64, &i64) -> bool,
) -> Row {
    Row { name, types: Types::Bool, apply, ints, floats: |_, _| false }
}

static TABLE: &[Row] = &[
    Row { name: "Equal", types: Types::All, apply: Array::equal, ints: i64::eq, floats: f64::eq },
    Row { name: "Greater", types: Types::Numeric, apply: Array::greater, ints: i64::gt, floats: f64::gt },
    Row {
        name: "GreaterOrEqual",
        types: Types::Numeric,
        apply: Array::greater_equal,
        ints: i64::ge,
        floats: f64::ge,
    },
    Row { name: "Less", types: Types::Numeric, apply: Array::less, ints: i64::lt, floats: f64::lt },
    Row {
        name: "LessOrEqual",
        types: Types::Numeric,
        apply: Array::less_equal,
        ints: i64::le,
        floats: f64::le,
    },
    logic("And", Array::logical_and, |a, b| a & b != 0),
    logic("Or", Array::logical_or, |a, b| a | b != 0),
    logic("Xor", Array::not_equal, i64::ne),
];

impl Op for Compare {
    const KEYS: &'static [OpKey] = &[
        OpKey::onnx("Equal"),
        OpKey::onnx("Greater"),
        OpKey::onnx("GreaterOrEqual"),
        OpKey::onnx("Less"),
        OpKey::onnx("LessOrEqual"),
        OpKey::onnx("And"),
        OpKey::onnx("Or"),
        OpKey::onnx("Xor"),
    ];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let row = TABLE.iter().find(|row| row.name == node.op_type());
        let row = row.ok_or_else(|| Decline::invalid("not in the table of comparisons"))?;
        broadcast::by_numpy_rules(node)?;
        node.expect_type(0, |e| match row.types {
            Types::Bool => e == ElementType::Bool,
            Types::Numeric => e != ElementType::Bool,
            Types::All => true,
        })?;
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
        let truth = match (a.values(), b.values()) {
            (HostValues::Ints(a), HostValues::Ints(b)) => {
                broadcast::zip(a, b, |a, b| i64::from((self.0.ints)(&a, &b)))?
            }
            (HostValues::Floats(a), HostValues::Floats(b)) => {
                broadcast::zip(a, b, |a, b| i64::from((self.0.floats)(&a, &b)))?
            }
            _ => None,
        };
        Ok(truth.map(|v| vec![HostTensor::ints(ElementType::Bool, v)]))
    }
}

#[cfg(test)]
mod tests {
    use onnx_graph::Tensor;

    use crate::testing::*;

    fn strange(values: &[f64]) -> Tensor<'static> {
        tensor(E::Float, [values.len()], values)
    }

    fn a() -> Tensor<'static> {
        strange(&[f64::NAN, 1.0, f64::INFINITY, -0.0, 2.0])
    }

    fn b() -> Tensor<'static> {
        strange(&[f64::NAN, f64::NAN, f64::INFINITY, 0.0, 1.0])
    }

    fn small(element: E, dims: &[usize]) -> Tensor<'static> {
        uniform(element, dims.to_vec(), 0.0, 2.0)
    }

    op_cases! {
        equal: case("Equal", 13).x(a()).x(b()) => exact();
        equal_folded: case("Equal", 13).c(a()).c(b()) => exact();
        equal_bool: case("Equal", 7).x(random(E::Bool, [90, 2])).x(random(E::Bool, [2])) => exact();
        equal_int64: case("Equal", 11).x(i64s(&[(1 << 53) + 1, 3])).x(i64s(&[1 << 53, 3])) => exact();
        equal_int64_large: case("Equal", 11).x(small(E::Int64, &[30, 4])).x(small(E::Int64, &[4])) => exact();
        equal_f16: case("Equal", 19).x(random(E::Float16, [9])).x(random(E::Float16, [9])) => exact();
        greater: case("Greater", 13).x(a()).x(b()) => exact();
        greater_opset_7: case("Greater", 7).x(f32s([2, 3])).x(f32s([3])) => exact();
        greater_uint64: case("Greater", 13).x(tensor(E::Uint64, [2], &[1.8e19, 1.0])).x(tensor(E::Uint64, [1], &[1e19])) => exact();
        greater_or_equal: case("GreaterOrEqual", 16).x(a()).x(b()) => exact();
        greater_or_equal_uint8: case("GreaterOrEqual", 12).x(small(E::Uint8, &[99])).x(small(E::Uint8, &[1])) => exact();
        less: case("Less", 9).x(a()).x(b()) => exact();
        less_folded: case("Less", 13).c(a()).c(b()) => exact();
        less_int32: case("Less", 9).x(small(E::Int32, &[70])).x(small(E::Int32, &[70])) => exact();
        less_or_equal: case("LessOrEqual", 12).x(a()).x(b()) => exact();
        less_or_equal_int64_folded: case("LessOrEqual", 16).x(i64s(&[1, 2, 3])).c(i64s(&[2])) => exact();
        less_scalars: case("Less", 13).x(f32s([])).x(f32s([])) => exact();
        less_empty: case("Less", 13).x(f32s([0])).x(f32s([3, 1])) => exact();
        and: case("And", 7).x(random(E::Bool, [3, 1, 40])).x(random(E::Bool, [2, 1])) => exact();
        or: case("Or", 7).x(random(E::Bool, [90])).x(random(E::Bool, [90])) => exact();
        xor: case("Xor", 7).x(random(E::Bool, [90])).x(random(E::Bool, [1])) => exact();
        and_folded: case("And", 7).c(random(E::Bool, [5])).c(random(E::Bool, [5, 1])) => exact();
        or_folded: case("Or", 7).c(random(E::Bool, [5])).c(random(E::Bool, [5, 1])) => exact();
        xor_folded: case("Xor", 7).c(random(E::Bool, [5])).c(random(E::Bool, [5, 1])) => exact();
        old_broadcasting: case("Equal", 6).x(i64s(&[1])).x(i64s(&[1])) => declines();
    }
}
