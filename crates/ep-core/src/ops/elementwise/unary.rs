//! Unary mathematics: one MLX operation each, at every opset (only accepted types changed).

use mlx_safe::Array;

use crate::host::HostTensor;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// One of [`TABLE`].
pub(crate) struct Unary(&'static Row);

struct Row {
    name: &'static str,
    types: Types,
    apply: fn(&Array) -> mlx_safe::Result<Array>,
    fold: Option<fn(f64) -> f64>,
}

/// The types that a row takes.
#[derive(Clone, Copy)]
enum Types {
    Float,
    Signed,
    Numeric,
}

const fn float(name: &'static str, apply: fn(&Array) -> mlx_safe::Result<Array>) -> Row {
    Row { name, types: Types::Float, apply, fold: None }
}

static TABLE: &[Row] = &[
    Row { name: "Abs", types: Types::Numeric, apply: Array::abs, fold: Some(f64::abs) },
    float("Acos", Array::arccos),
    float("Acosh", Array::arccosh),
    float("Asin", Array::arcsin),
    float("Asinh", Array::arcsinh),
    float("Atan", Array::arctan),
    float("Atanh", Array::arctanh),
    Row { name: "Ceil", types: Types::Float, apply: Array::ceil, fold: Some(f64::ceil) },
    float("Cos", Array::cos),
    float("Cosh", Array::cosh),
    float("Erf", Array::erf),
    float("Exp", Array::exp),
    Row { name: "Floor", types: Types::Float, apply: Array::floor, fold: Some(f64::floor) },
    float("Log", Array::log),
    Row { name: "Neg", types: Types::Signed, apply: Array::negative, fold: Some(std::ops::Neg::neg) },
    Row { name: "Reciprocal", types: Types::Float, apply: Array::reciprocal, fold: Some(f64::recip) },
    Row { name: "Round", types: Types::Float, apply: |x| x.round(0), fold: Some(f64::round_ties_even) },
    Row { name: "Sign", types: Types::Numeric, apply: Array::sign, fold: None },
    float("Sin", Array::sin),
    float("Sinh", Array::sinh),
    Row { name: "Sqrt", types: Types::Float, apply: Array::sqrt, fold: Some(f64::sqrt) },
    float("Tan", Array::tan),
    float("Tanh", Array::tanh),
];

impl Op for Unary {
    const KEYS: &'static [OpKey] = &[
        OpKey::onnx("Abs"),
        OpKey::onnx("Acos"),
        OpKey::onnx("Acosh"),
        OpKey::onnx("Asin"),
        OpKey::onnx("Asinh"),
        OpKey::onnx("Atan"),
        OpKey::onnx("Atanh"),
        OpKey::onnx("Ceil"),
        OpKey::onnx("Cos"),
        OpKey::onnx("Cosh"),
        OpKey::onnx("Erf"),
        OpKey::onnx("Exp"),
        OpKey::onnx("Floor"),
        OpKey::onnx("Log"),
        OpKey::onnx("Neg"),
        OpKey::onnx("Reciprocal"),
        OpKey::onnx("Round"),
        OpKey::onnx("Sign"),
        OpKey::onnx("Sin"),
        OpKey::onnx("Sinh"),
        OpKey::onnx("Sqrt"),
        OpKey::onnx("Tan"),
        OpKey::onnx("Tanh"),
    ];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let row = TABLE.iter().find(|row| row.name == node.op_type());
        let row = row.ok_or_else(|| Decline::invalid("not in the table of unary operators"))?;
        node.expect_type(0, |e| match row.types {
            Types::Float => e.is_float(),
            Types::Signed => e.is_float() || e.is_signed_integer(),
            Types::Numeric => e.is_float() || e.is_integer(),
        })?;
        Ok(Self(row))
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let y = (self.0.apply)(&cx.array(0)?)?;
        cx.emit(0, y)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let (Some(Some(x)), Some(f)) = (inputs.first(), self.0.fold) else { return Ok(None) };
        let element = x.element();
        Ok(match (x.as_floats(), x.as_ints()) {
            (Some(x), _) if x.len() <= 64 => Some(vec![HostTensor::floats(element, x.mapv(f))]),
            (_, Some(v)) if matches!(self.0.name, "Abs" | "Neg") => {
                let f = if self.0.name == "Abs" { i64::wrapping_abs } else { i64::wrapping_neg };
                Some(vec![HostTensor::ints(element, v.mapv(f))])
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        abs: case("Abs", 13).x(f32s([2, 3])) => exact();
        abs_of_the_smallest_int: case("Abs", 13).x(tensor(E::Int32, [2], &[-2147483648.0, -5.0])) => exact();
        neg_int64: case("Neg", 13).x(i64s(&[3, -4, 0])) => exact();
        sqrt: case("Sqrt", 6).x(uniform(E::Float, [3, 5], 0.0, 9.0)) => close(tol::F32);
        erf: case("Erf", 13).x(f32s([64])) => close(tol::F32);
        tanh_f16: case("Tanh", 13).x(random(E::Float16, [33])) => close(tol::F16);
        exp_bf16: case("Exp", 13).x(random(E::Bfloat16, [33])) => close(tol::BF16);
        round_to_even: case("Round", 11).x(tensor(E::Float, [4], &[0.5, 1.5, -0.5, 2.5])) => exact();
        sign_nan_is_kept_or_zero: case("Sign", 13).x(tensor(E::Float, [3], &[-2.0, 0.0, 4.0])) => exact();
        empty: case("Exp", 13).x(f32s([0, 3])) => exact();
        scalar: case("Floor", 13).x(f32s([])) => exact();
        double: case("Exp", 13).x(random(E::Double, [2])) => declines();
    }
}
