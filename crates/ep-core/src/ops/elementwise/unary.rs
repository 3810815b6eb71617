//! Unary mathematics and logic: one MLX operation each, at every opset (only accepted types changed).

use kernels_metal::elementwise::Function;
use mlx_safe::{Array, where_};
use onnx_graph::ElementType;

use crate::host::{HostTensor, HostValues};
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
    Integer,
    Bool,
}

const fn row(name: &'static str, types: Types, apply: fn(&Array) -> mlx_safe::Result<Array>) -> Row {
    Row { name, types, apply, fold: None }
}

const fn float(name: &'static str, apply: fn(&Array) -> mlx_safe::Result<Array>) -> Row {
    row(name, Types::Float, apply)
}

static TABLE: &[Row] = &[
    Row { name: "Abs", types: Types::Numeric, apply: Array::abs, fold: Some(f64::abs) },
    float("Acos", Array::arccos),
    float("Acosh", Array::arccosh),
    float("Asin", Array::arcsin),
    float("Asinh", Array::arcsinh),
    float("Atan", Array::arctan),
    float("Atanh", Array::arctanh),
    row("BitwiseNot", Types::Integer, Array::bitwise_invert),
    Row { name: "Ceil", types: Types::Float, apply: Array::ceil, fold: Some(f64::ceil) },
    float("Cos", Array::cos),
    float("Cosh", Array::cosh),
    float("Erf", |x| Function::Erf.apply(x)),
    float("Exp", |x| Function::Exp.apply(x)),
    Row { name: "Floor", types: Types::Float, apply: Array::floor, fold: Some(f64::floor) },
    float("IsNaN", Array::isnan),
    float("Log", Array::log),
    Row { name: "Neg", types: Types::Signed, apply: Array::negative, fold: Some(std::ops::Neg::neg) },
    row("Not", Types::Bool, Array::logical_not),
    Row { name: "Reciprocal", types: Types::Float, apply: Array::reciprocal, fold: Some(f64::recip) },
    Row { name: "Round", types: Types::Float, apply: |x| x.round(0), fold: Some(f64::round_ties_even) },
    row("Sign", Types::Numeric, sign),
    float("Sin", Array::sin),
    float("Sinh", Array::sinh),
    Row { name: "Sqrt", types: Types::Float, apply: Array::sqrt, fold: Some(f64::sqrt) },
    float("Tan", Array::tan),
    float("Tanh", |x| Function::Tanh.apply(x)),
];

/// MLX makes 0 of NaN, ONNX Runtime keeps it.
fn sign(x: &Array) -> mlx_safe::Result<Array> {
    let sign = x.sign()?;
    if x.dtype().is_float() { where_(&x.isnan()?, x, &sign) } else { Ok(sign) }
}

impl Op for Unary {
    const KEYS: &'static [OpKey] = &[
        OpKey::onnx("Abs"),
        OpKey::onnx("Acos"),
        OpKey::onnx("Acosh"),
        OpKey::onnx("Asin"),
        OpKey::onnx("Asinh"),
        OpKey::onnx("Atan"),
        OpKey::onnx("Atanh"),
        OpKey::onnx("BitwiseNot"),
        OpKey::onnx("Ceil"),
        OpKey::onnx("Cos"),
        OpKey::onnx("Cosh"),
        OpKey::onnx("Erf"),
        OpKey::onnx("Exp"),
        OpKey::onnx("Floor"),
        OpKey::onnx("IsNaN"),
        OpKey::onnx("Log"),
        OpKey::onnx("Neg"),
        OpKey::onnx("Not"),
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
            Types::Integer => e.is_integer(),
            Types::Bool => e == ElementType::Bool,
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
        let Some(Some(x)) = inputs.first() else { return Ok(None) };
        let element = x.element();
        Ok(match x.values() {
            HostValues::Ints(v) => {
                let f: fn(i64) -> i64 = match self.0.name {
                    "Abs" => i64::wrapping_abs,
                    "BitwiseNot" => |v| !v,
                    "Neg" => i64::wrapping_neg,
                    "Not" => |v| i64::from(v == 0),
                    "Sign" => i64::signum,
                    _ => return Ok(None),
                };
                Some(vec![HostTensor::ints(element, v.mapv(f))])
            }
            HostValues::Floats(v) => self.0.fold.map(|f| vec![HostTensor::floats(element, v.mapv(f))]),
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
        exp_large: case("Exp", 13).x(uniform(E::Float, [3, 700], -104.0, 89.0)) => close(tol::F32);
        exp_large_f16: case("Exp", 13).x(uniform(E::Float16, [3, 700], -9.0, 9.0)) => close(tol::F16);
        erf_large: case("Erf", 13).x(uniform(E::Float, [3, 700], -5.0, 5.0)) => close(tol::F32);
        tanh_large: case("Tanh", 13).x(uniform(E::Float, [3, 700], -9.0, 9.0)) => close(tol::F32);
        tanh_large_f16: case("Tanh", 13).x(uniform(E::Float16, [3, 700], -9.0, 9.0)) => close(tol::F16);
        exp_bf16: case("Exp", 13).x(random(E::Bfloat16, [33])) => close(tol::BF16);
        round_to_even: case("Round", 11).x(tensor(E::Float, [4], &[0.5, 1.5, -0.5, 2.5])) => exact();
        round_special: case("Round", 11).x(tensor(E::Float, [80], &[f64::NAN, f64::INFINITY, -2.5, 1e9].repeat(20))) => exact();
        sign: case("Sign", 13).x(tensor(E::Float, [6], &[-2.0, 0.0, 4.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY])) => exact();
        sign_int64: case("Sign", 13).x(i64s(&[-9, 0, i64::MAX])) => exact();
        sign_uint8: case("Sign", 9).x(tensor(E::Uint8, [90], &[0.0, 3.0, 200.0].repeat(30))) => exact();
        sign_f16: case("Sign", 13).x(tensor(E::Float16, [3], &[-2.0, f64::NAN, 4.0])) => exact();
        not: case("Not", 1).x(random(E::Bool, [3, 40])) => exact();
        not_folded: case("Not", 1).x(random(E::Bool, [3])) => exact();
        bitwise_not: case("BitwiseNot", 18).x(uniform(E::Uint16, [90], 0.0, 65535.0)) => exact();
        bitwise_not_folded: case("BitwiseNot", 18).x(i64s(&[-1, 0, 5])) => exact();
        bitwise_not_uint8_folded: case("BitwiseNot", 18).x(tensor(E::Uint8, [2], &[0.0, 200.0])) => exact();
        is_nan: case("IsNaN", 9).x(tensor(E::Float, [3], &[f64::NAN, f64::INFINITY, 0.0])) => exact();
        is_nan_f16: case("IsNaN", 13).x(tensor(E::Float16, [3], &[f64::NAN, f64::INFINITY, 0.0])) => exact();
        ceil_f16: case("Ceil", 13).x(random(E::Float16, [33])) => exact();
        reciprocal: case("Reciprocal", 13).x(tensor(E::Float, [80], &[0.0, -0.0, 3.0, f64::INFINITY].repeat(20))) => exact();
        sqrt_special: case("Sqrt", 13).x(tensor(E::Float, [80], &[-1.0, -0.0, 3.0, f64::INFINITY].repeat(20))) => exact();
        sin_of_large: case("Sin", 7).x(tensor(E::Float, [6], &[1e4, -1e6, 1e10, 3e38, 0.5, f64::INFINITY])) => close(tol::F32);
        cos_of_large: case("Cos", 7).x(tensor(E::Float, [6], &[1e4, -1e6, 1e10, 3e38, 0.5, f64::NAN])) => close(tol::F32);
        tan_of_large: case("Tan", 7).x(tensor(E::Float, [5], &[1e4, -1e6, 1e10, 3e38, 0.5])) => close(tol::F32);
        exp_extremes: case("Exp", 13).x(tensor(E::Float, [6], &[88.0, 89.0, -87.0, -104.0, f64::INFINITY, f64::NEG_INFINITY])) => close(tol::F32);
        log_extremes: case("Log", 13).x(tensor(E::Float, [5], &[0.0, -1.0, 1e-38, 3e38, f64::INFINITY])) => close(tol::F32);
        tanh_extremes: case("Tanh", 13).x(tensor(E::Float, [6], &[-1e30, 9.0, 30.0, 1e-6, f64::NAN, f64::INFINITY])) => close(tol::F32);
        erf_extremes: case("Erf", 13).x(tensor(E::Float, [6], &[-1e30, 3.0, 30.0, 1e-6, f64::NAN, f64::INFINITY])) => close(tol::F32);
        hyperbolic_extremes: case("Sinh", 9).x(tensor(E::Float, [5], &[-100.0, 1e-6, 3.0, f64::NAN, f64::INFINITY])) => close(tol::F32);
        acosh_extremes: case("Acosh", 9).x(tensor(E::Float, [4], &[1.0, 0.5, 1e20, f64::INFINITY])) => close(tol::F32);
        asinh_extremes: case("Asinh", 9).x(tensor(E::Float, [5], &[-1e20, 1e-6, 3.0, -0.5, f64::INFINITY])) => close(tol::F32);
        atanh_extremes: case("Atanh", 9).x(tensor(E::Float, [4], &[1.0, -1.0, 2.0, 1e-6])) => close(tol::F32);
        asin: case("Asin", 7).x(tensor(E::Float, [4], &[1.0, -1.0, 2.0, 1e-6])) => close(tol::F32);
        acos: case("Acos", 7).x(tensor(E::Float, [4], &[1.0, -1.0, 2.0, 1e-6])) => close(tol::F32);
        atan: case("Atan", 7).x(tensor(E::Float, [4], &[1e30, -1.0, f64::INFINITY, 1e-6])) => close(tol::F32);
        cosh: case("Cosh", 9).x(f32s([40])) => close(tol::F32);
        empty: case("Exp", 13).x(f32s([0, 3])) => exact();
        scalar: case("Floor", 13).x(f32s([])) => exact();
        double: case("Exp", 13).x(random(E::Double, [2])) => declines();
    }
}
