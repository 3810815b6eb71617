//! `Div` and `Mod`. Integers divide as in C, by way of their magnitudes: MLX's own rounding differs by version and device.
//! A divisor of 0 makes the run fail, as on ONNX Runtime's CPU provider; the smallest integer by -1 wraps.

use mlx_safe::{Array, Dtype, where_};

use crate::convert::{in_float32, like};
use crate::host::{HostTensor, HostValues};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, broadcast};

/// `Div`, `Mod`.
pub(crate) struct Division {
    wanted: Wanted,
    integers: bool,
    /// The divisor is a constant without zeros.
    checked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Quotient,
    /// With the dividend's sign.
    Remainder,
    /// With the divisor's sign.
    Modulus,
}

const BY_ZERO: &str = "integer division by zero";

impl Op for Division {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Div"), OpKey::onnx("Mod")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        broadcast::by_numpy_rules(node)?;
        let element = node.expect_type(0, |e| e.is_float() || e.is_integer())?;
        let wanted = match (node.op_type(), node.flag_or("fmod", false)?) {
            ("Div", _) => Wanted::Quotient,
            (_, true) => Wanted::Remainder,
            (_, false) if element.is_float() => return Err(Decline::invalid("floats need fmod = 1")),
            (_, false) => Wanted::Modulus,
        };
        let constant = node.constant_ints(1);
        if constant.as_ref().is_some_and(|divisors| divisors.contains(&0)) {
            return Err(Decline::invalid(BY_ZERO));
        }
        Ok(Self { wanted, integers: element.is_integer(), checked: constant.is_some() })
    }

    fn shape_mode(&self) -> ShapeMode {
        match self.integers {
            true => {
                ShapeMode::Keyed("MLX does not infer the shape of magnitudes, which are views of integers")
            }
            false => ShapeMode::Shapeless,
        }
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (a, b) = (cx.array(0)?, cx.array(1)?);
        let y = match (self.wanted, a.dtype().is_float()) {
            (Wanted::Quotient, true) => a.divide(&b)?,
            (_, true) => in_float32(&a, |a| remainder(a, &b.astype(Dtype::Float32)?))?,
            (_, false) => self.integers(&a, &self.divisor(cx, b)?)?,
        };
        cx.emit(0, y)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let &[Some(a), Some(b)] = inputs else { return Ok(None) };
        let element = a.element();
        Ok(match (a.values(), b.values()) {
            (HostValues::Ints(a), HostValues::Ints(b)) => {
                if b.iter().any(|&b| b == 0) {
                    return Err(LowerError::invalid(BY_ZERO));
                }
                let y = broadcast::zip(a, b, |a, b| match self.wanted {
                    Wanted::Quotient => a.wrapping_div(b),
                    Wanted::Remainder => a.wrapping_rem(b),
                    Wanted::Modulus => {
                        let r = a.wrapping_rem(b);
                        if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
                    }
                })?;
                y.map(|y| vec![HostTensor::ints(element, y)])
            }
            (HostValues::Floats(a), HostValues::Floats(b)) => {
                let quotient = self.wanted == Wanted::Quotient;
                let y = broadcast::zip(a, b, |a, b| if quotient { a / b } else { a % b })?;
                y.map(|y| vec![HostTensor::floats(element, y)])
            }
            _ => None,
        })
    }
}

impl Division {
    /// `b`, and a check that it has no zeros, of which mlx-safe makes zeros.
    fn divisor(&self, cx: &mut Lowering<'_>, b: Array) -> Result<Array, LowerError> {
        if self.checked {
            return Ok(b);
        }
        let fine = b.not_equal(&like(0.0, &b)?)?;
        let axes: Vec<i32> = (0..fine.ndim() as i32).collect();
        cx.require(fine.all(&axes, false)?, BY_ZERO);
        Ok(b)
    }

    fn integers(&self, a: &Array, b: &Array) -> mlx_safe::Result<Array> {
        if self.wanted == Wanted::Quotient {
            return quotient(a, b);
        }
        let r = remainder(a, b)?;
        if self.wanted == Wanted::Remainder || a.dtype().is_unsigned_integer() {
            return Ok(r);
        }
        let zero = like(0.0, &r)?;
        let fix = r.not_equal(&zero)?.logical_and(&r.less(&zero)?.not_equal(&b.less(&zero)?)?)?;
        where_(&fix, &r.add(b)?, &r)
    }
}

/// Truncated a / b of integers, b not zero.
fn quotient(a: &Array, b: &Array) -> mlx_safe::Result<Array> {
    let q = magnitude(a)?.floor_divide(&magnitude(b)?)?.view(a.dtype())?;
    if a.dtype().is_unsigned_integer() {
        return Ok(q);
    }
    let zero = like(0.0, a)?;
    let negative = a.less(&zero)?.not_equal(&b.less(&zero)?)?;
    where_(&negative, &q.negative()?, &q)
}

/// The remainder with the dividend's sign; integers need b not zero.
fn remainder(a: &Array, b: &Array) -> mlx_safe::Result<Array> {
    let r = magnitude(a)?.remainder(&magnitude(b)?)?.view(a.dtype())?;
    if a.dtype().is_unsigned_integer() {
        return Ok(r);
    }
    where_(&a.less(&like(0.0, a)?)?, &r.negative()?, &r)
}

/// |x|, of the unsigned type for integers so that the smallest one has a magnitude too.
fn magnitude(x: &Array) -> mlx_safe::Result<Array> {
    let unsigned = match x.dtype() {
        Dtype::Int8 => Dtype::Uint8,
        Dtype::Int16 => Dtype::Uint16,
        Dtype::Int32 => Dtype::Uint32,
        Dtype::Int64 => Dtype::Uint64,
        dtype if dtype.is_float() => dtype,
        _ => return Ok(x.clone()),
    };
    x.abs()?.view(unsigned)
}

#[cfg(test)]
mod tests {
    use onnx_graph::Tensor;

    use super::*;
    use crate::testing::*;

    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;

    fn row(element: E, values: &[f64]) -> Tensor<'static> {
        tensor(element, [values.len()], values)
    }

    /// More elements than are followed on the host, of every sign.
    fn many(element: E) -> Tensor<'static> {
        uniform(element, [20, 8], if element.is_signed_integer() { -99.0 } else { 0.0 }, 99.0)
    }

    fn signs(element: E) -> Tensor<'static> {
        row(element, &[-7.0, 7.0, -3.0, 2.0, 1.0, -1.0, 100.0, -100.0])
    }

    op_cases! {
        div: case("Div", 14).x(f32s([2, 3])).x(uniform(E::Float, [3], 0.5, 2.0)) => close(tol::F32);
        div_by_float_zero: case("Div", 7).x(row(E::Float, &[1.0, -1.0, 0.0, NAN])).x(row(E::Float, &[0.0])) => exact();
        div_f16: case("Div", 14).x(random(E::Float16, [9])).x(uniform(E::Float16, [9], 0.5, 2.0)) => close(tol::F16);
        div_bf16: case("Div", 14).x(random(E::Bfloat16, [9])).x(uniform(E::Bfloat16, [9], 0.5, 2.0)) => close(tol::BF16);
        div_floats_folded: case("Div", 14).c(f32s([4, 1])).c(uniform(E::Float, [3], 0.5, 2.0)) => exact();
        div_int8: case("Div", 14).x(many(E::Int8)).x(signs(E::Int8)) => exact();
        div_int16: case("Div", 14).x(many(E::Int16)).x(signs(E::Int16)) => exact();
        div_int32: case("Div", 14).x(many(E::Int32)).x(signs(E::Int32)) => exact();
        div_int64: case("Div", 14).x(many(E::Int64)).c(signs(E::Int64)) => exact();
        div_uint8: case("Div", 14).x(many(E::Uint8)).c(row(E::Uint8, &[7.0])) => exact();
        div_uint64: case("Div", 14).x(row(E::Uint64, &[1.8e19, 5.0])).x(row(E::Uint64, &[7.0])) => exact();
        div_int64_beyond_doubles: case("Div", 14).x(i64s(&[i64::MAX, i64::MIN, (1 << 53) + 1])).x(i64s(&[3, 3, -1])) => exact();
        div_int64_folded: case("Div", 14).c(i64s(&[-7, 7, -7, i64::MIN])).c(i64s(&[2, -2, -2, 1])) => exact();
        div_int8_smallest: case("Div", 14).x(row(E::Int8, &[-128.0, -128.0])).x(row(E::Int8, &[-1.0, 1.0])) => exact();
        div_scalar: case("Div", 14).x(tensor(E::Int64, [], &[9.0])).x(tensor(E::Int64, [], &[-2.0])) => exact();
        div_empty: case("Div", 14).x(row(E::Int32, &[])).x(row(E::Int32, &[2.0])) => exact();
        div_by_empty: case("Div", 14).x(row(E::Int32, &[2.0])).x(tensor(E::Int32, [0, 1], &[])) => exact();
        mod_int8: case("Mod", 13).x(many(E::Int8)).x(signs(E::Int8)) => exact();
        mod_int16: case("Mod", 10).x(many(E::Int16)).x(signs(E::Int16)) => exact();
        mod_int32: case("Mod", 13).x(many(E::Int32)).x(signs(E::Int32)) => exact();
        mod_int64: case("Mod", 13).x(many(E::Int64)).c(signs(E::Int64)) => exact();
        mod_uint32: case("Mod", 13).x(many(E::Uint32)).x(row(E::Uint32, &[7.0])) => exact();
        mod_smallest: case("Mod", 13).x(row(E::Int32, &[-2147483648.0; 80])).x(row(E::Int32, &[-1.0])) => exact();
        mod_folded: case("Mod", 13).x(i64s(&[-7, 7, -7, i64::MIN])).x(i64s(&[2, -2, -2, -1])) => exact();
        fmod_int64: case("Mod", 13).x(many(E::Int64)).x(signs(E::Int64)).attr("fmod", 1i64) => exact();
        fmod_int32_folded: case("Mod", 13).x(signs(E::Int32)).x(row(E::Int32, &[3.0])).attr("fmod", 1i64) => exact();
        fmod_float: case("Mod", 13).x(row(E::Float, &[-7.5, 7.5, INF, 3.0, 3.0, -0.0, 5e8])).x(row(E::Float, &[2.0, -2.0, 2.0, INF, 0.0, 2.0, 0.3])).attr("fmod", 1i64) => exact();
        fmod_float_folded: case("Mod", 13).c(row(E::Float, &[-7.5, 7.5, INF, 3.0])).c(row(E::Float, &[2.0, -2.0, 2.0, INF])).attr("fmod", 1i64) => exact();
        fmod_f16: case("Mod", 13).x(random(E::Float16, [40])).x(uniform(E::Float16, [40], 0.1, 0.9)).attr("fmod", 1i64) => close(tol::F16);
        div_by_zero: case("Div", 14).x(many(E::Int32)).x(row(E::Int32, &[1.0, 2.0, 3.0, 0.0, 5.0, 6.0, 7.0, 8.0])) => fails("division by zero");
        div_by_zero_on_host: case("Div", 14).x(i64s(&[1])).x(i64s(&[0])) => fails("division by zero");
        mod_by_zero: case("Mod", 14).x(many(E::Int64)).x(tensor(E::Int64, [], &[0.0])) => fails("division by zero");
        div_by_constant_zero: case("Div", 14).x(i64s(&[1])).c(i64s(&[0])) => declines();
        mod_of_floats: case("Mod", 13).x(f32s([2])).x(f32s([2])) => declines();
    }

    /// ONNX Runtime's CPU provider dies of these.
    #[test]
    fn the_smallest_integer_by_minus_one_wraps() {
        for (dtype, least) in [(Dtype::Int32, i64::from(i32::MIN)), (Dtype::Int64, i64::MIN)] {
            let a = Array::scalar_of(least as f64, dtype).unwrap();
            let b = Array::scalar_of(-1.0, dtype).unwrap();
            let q = quotient(&a, &b).unwrap().astype(Dtype::Int64).unwrap();
            assert_eq!(q.item::<i64>().unwrap(), least);
            let r = remainder(&a, &b).unwrap().astype(Dtype::Int64).unwrap();
            assert_eq!(r.item::<i64>().unwrap(), 0);
        }
    }
}
