//! `Pow`: the result has the base's type, whatever the exponent's. Integers are raised exactly and wrap; ONNX Runtime's CPU
//! provider goes by way of doubles, so that beyond 2^53 it differs.

use mlx_safe::{Array, Dtype, where_};
use onnx_graph::{ElementType, Tensor};

use crate::convert::{cast, in_float32, like};
use crate::host::{HostTensor, HostValues};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, broadcast};

/// `Pow`.
pub(crate) struct Pow {
    exponent: Exponent,
}

enum Exponent {
    /// The scalar constant 2.
    Two,
    /// The scalar constant 3.
    Three,
    /// A float, or an integer that float32 holds exactly.
    Float,
    /// An integer; for a float base, one that float32 may round.
    Int,
}

/// float32 holds every integer up to here.
const EXACT_IN_FLOAT: f64 = 16_777_216.0;

impl Op for Pow {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Pow")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        broadcast::by_numpy_rules(node)?;
        let base =
            node.expect_type(0, |e| e.is_float() || matches!(e, ElementType::Int32 | ElementType::Int64))?;
        let exponent =
            node.expect_type(1, |e| e.is_float() || (e.is_integer() && e != ElementType::Uint64))?;
        let constant: Option<Vec<f64>> = node.constant(1).map(values);
        let integral = |limit: f64| {
            constant.as_ref().is_some_and(|v| v.iter().all(|v| v.fract() == 0.0 && v.abs() <= limit))
        };
        let scalar = node.constant(1).is_some_and(|t| t.dims().is_empty());
        let exponent = match constant.as_deref() {
            Some([2.0]) if scalar => Exponent::Two,
            Some([3.0]) if scalar => Exponent::Three,
            _ if base.is_float() && (exponent.is_float() || integral(EXACT_IN_FLOAT)) => Exponent::Float,
            _ if exponent.is_float() && !integral(EXACT_IN_FLOAT) => {
                return Err(Decline::form("an integer to the power of floats that are not whole constants"));
            }
            _ => Exponent::Int,
        };
        Ok(Self { exponent })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let y = match self.exponent {
            Exponent::Two => x.square()?,
            Exponent::Three => in_wide(&x, |x| x.square()?.multiply(x))?,
            Exponent::Float => {
                let e = cx.array(1)?.astype(Dtype::Float32)?;
                in_float32(&x, |x| x.power(&e))?
            }
            Exponent::Int => {
                let e = cast(&cx.array(1)?, Dtype::Int64)?;
                if x.dtype().is_float() {
                    in_float32(&x, |x| float_to_int(x, &e))?
                } else {
                    int_to_int(&x, &e)?
                }
            }
        };
        cx.emit(0, y)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let &[Some(x), Some(e)] = inputs else { return Ok(None) };
        let element = x.element();
        Ok(match (x.values(), e.values()) {
            (HostValues::Ints(x), HostValues::Ints(e)) => {
                broadcast::zip(x, e, |x, e| host_int_to_int(x, e, element))?
                    .map(|v| vec![HostTensor::ints(element, v)])
            }
            (HostValues::Ints(x), HostValues::Floats(e)) => {
                broadcast::zip(x, e, |x, e| host_int_to_int(x, e as i64, element))?
                    .map(|v| vec![HostTensor::ints(element, v)])
            }
            (HostValues::Floats(x), HostValues::Floats(e)) => {
                broadcast::zip(x, e, f64::powf)?.map(|v| vec![HostTensor::floats(element, v)])
            }
            (HostValues::Floats(x), HostValues::Ints(e)) => {
                broadcast::zip(x, e, |x, e| x.powf(e as f64))?.map(|v| vec![HostTensor::floats(element, v)])
            }
        })
    }
}

fn values(tensor: &Tensor<'_>) -> Vec<f64> {
    let ints = || tensor.ints().map(|v| v.into_iter().map(|v| v as f64).collect());
    tensor.floats().or_else(ints).unwrap_or_default()
}

/// Applies `f` in float32 for floats, else as is.
fn in_wide(x: &Array, f: impl FnOnce(&Array) -> mlx_safe::Result<Array>) -> mlx_safe::Result<Array> {
    if x.dtype().is_float() { in_float32(x, f) } else { f(x) }
}

/// float32 to int64: the exponent loses its lowest bits, but not whether it is odd.
fn float_to_int(x: &Array, e: &Array) -> mlx_safe::Result<Array> {
    let power = x.abs()?.power(&e.astype(Dtype::Float32)?)?;
    let negative = x.less(&like(0.0, x)?)?.logical_and(&odd(e)?)?;
    where_(&negative, &power.negative()?, &power)
}

/// int32 or int64 to int64. To a negative power, only 1 and -1 have an integer; 0 becomes the smallest integer, the others 0.
fn int_to_int(x: &Array, e: &Array) -> mlx_safe::Result<Array> {
    let dtype = x.dtype();
    let x = x.astype(Dtype::Int64)?;
    let (zero, one) = (like(0.0, &x)?, like(1.0, &x)?);
    let power = x.power(&e.maximum(&zero)?)?;
    let unit = where_(&odd(e)?, &x, &one)?;
    let inverse = where_(&x.abs()?.equal(&one)?, &unit, &zero)?;
    let inverse = where_(&x.equal(&zero)?, &like(smallest(dtype == Dtype::Int32) as f64, &x)?, &inverse)?;
    where_(&e.less(&zero)?, &inverse, &power)?.astype(dtype)
}

fn odd(e: &Array) -> mlx_safe::Result<Array> {
    let one = like(1.0, e)?;
    e.bitwise_and(&one)?.equal(&one)
}

fn smallest(int32: bool) -> i64 {
    if int32 { i64::from(i32::MIN) } else { i64::MIN }
}

fn host_int_to_int(x: i64, e: i64, element: ElementType) -> i64 {
    match (x, e) {
        (0, ..0) => smallest(element == ElementType::Int32),
        (1, ..0) => 1,
        (-1, ..0) => {
            if e % 2 == 0 {
                1
            } else {
                -1
            }
        }
        (_, ..0) => 0,
        _ => {
            let (mut power, mut x, mut e) = (1i64, x, e);
            while e > 0 {
                if e % 2 == 1 {
                    power = power.wrapping_mul(x);
                }
                x = x.wrapping_mul(x);
                e /= 2;
            }
            power
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn row(element: E, values: &[f64]) -> Tensor<'static> {
        tensor(element, [values.len()], values)
    }

    fn at(element: E, value: f64) -> Tensor<'static> {
        tensor(element, [], &[value])
    }

    /// More than is followed on the host.
    fn many(element: E) -> Tensor<'static> {
        uniform(element, [30, 6], -3.0, 3.0)
    }

    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;

    op_cases! {
        square: case("Pow", 13).x(f32s([2, 40])).c(at(E::Float, 2.0)) => exact();
        cube: case("Pow", 15).x(f32s([2, 40])).c(at(E::Float, 3.0)) => exact();
        cube_f16: case("Pow", 15).x(random(E::Float16, [40])).c(at(E::Float16, 3.0)) => close(tol::F16);
        square_root: case("Pow", 7).x(uniform(E::Float, [40], 0.0, 9.0)).c(at(E::Float, 0.5)) => close(tol::F32);
        reciprocal: case("Pow", 12).x(uniform(E::Float, [40], 0.5, 9.0)).c(at(E::Float, -1.0)) => close(tol::F32);
        two_raises_the_rank: case("Pow", 13).x(f32s([])).c(row(E::Float, &[2.0])) => exact();
        broadcast: case("Pow", 13).x(uniform(E::Float, [4, 1], 0.5, 9.0)).x(f32s([3])) => close(tol::F32);
        special: case("Pow", 13).x(row(E::Float, &[-2.0, -2.0, 0.0, 0.0, NAN, 1.0, INF, -INF, -8.0])).x(row(E::Float, &[2.0, 0.5, 0.0, -1.0, 0.0, NAN, -1.0, 3.0, 0.25])) => exact();
        f16: case("Pow", 13).x(uniform(E::Float16, [40], 0.0, 4.0)).x(random(E::Float16, [40])) => close(tol::F16);
        f16_to_float: case("Pow", 12).x(uniform(E::Float16, [40], 0.0, 4.0)).x(f32s([1])) => close(tol::F16);
        bf16: case("Pow", 15).x(uniform(E::Bfloat16, [40], 0.0, 4.0)).x(random(E::Bfloat16, [40])) => close(tol::BF16);
        float_to_int64: case("Pow", 12).x(row(E::Float, &[2.5, -2.0, 0.0, 1e10, -1.0])).x(i64s(&[2, -3, -1, 40, (1 << 24) + 1])) => close(tol::F32);
        float_to_int32_constant: case("Pow", 12).x(many(E::Float)).c(row(E::Int32, &[0.0, 1.0, 2.0, 3.0, 4.0, -2.0])) => close(tol::F32);
        float_to_int32: case("Pow", 12).x(many(E::Float)).x(at(E::Int32, 2.0)) => close(tol::F32);
        int32: case("Pow", 13).x(many(E::Int32)).x(row(E::Int32, &[0.0, 1.0, 2.0, 3.0, 4.0, 9.0])) => exact();
        int32_to_negative: case("Pow", 13).x(many(E::Int32)).x(row(E::Int32, &[-1.0, -2.0, -3.0, -4.0, 0.0, 1.0])) => exact();
        int64_to_negative_folded: case("Pow", 13).c(i64s(&[0, 1, -1, -1, 3, -2])).c(i64s(&[-1, -1, -3, -2, -1, 31])) => exact();
        int32_to_int64: case("Pow", 13).x(many(E::Int32)).x(i64s(&[3])) => exact();
        int64_to_two: case("Pow", 13).x(many(E::Int64)).c(at(E::Float, 2.0)) => exact();
        int64_to_whole_floats: case("Pow", 13).x(many(E::Int64)).c(row(E::Float, &[0.0, 1.0, 2.0, 3.0, 4.0, 9.0])) => exact();
        int64_beyond_int32: case("Pow", 13).x(i64s(&[3, 10, -3, 2])).x(i64s(&[33, 15, 31, 62])) => exact();
        floats_folded: case("Pow", 13).c(uniform(E::Float, [5], 0.5, 3.0)).c(f32s([])) => close(tol::F32);
        float_to_int_folded: case("Pow", 13).c(f32s([5])).c(i64s(&[3])) => close(tol::F32);
        empty: case("Pow", 13).x(f32s([0])).x(f32s([1])) => exact();
        int_to_fraction: case("Pow", 13).x(many(E::Int32)).c(at(E::Float, 0.5)) => declines();
        int_to_computed_float: case("Pow", 13).x(many(E::Int32)).x(at(E::Float, 2.0)) => declines();
    }

    /// ONNX Runtime's CPU provider answers 4052555153018976256.
    #[test]
    fn int64_is_exact_beyond_doubles() {
        let (x, e) = (Array::scalar(3i64), Array::scalar(39i64));
        assert_eq!(int_to_int(&x, &e).unwrap().item::<i64>().unwrap(), 3i64.pow(39));
        assert_eq!(host_int_to_int(3, 39, E::Int64), 3i64.pow(39));
    }
}
