//! `Clip`: bounds as attributes before opset 11, as inputs since. The upper bound wins, NaN stays, a bound that is NaN does
//! not bound, and a float bound that is left out is the largest finite value (16-bit: from opset 12 on): all as ONNX Runtime's CPU
//! provider does.

use mlx_safe::{Array, Dtype, where_};
use onnx_graph::ElementType;

use crate::convert::like;
use crate::host::{HostTensor, HostValues};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, dtype};

/// `Clip`.
pub(crate) struct Clip {
    low: Bound,
    high: Bound,
}

enum Bound {
    None,
    /// The largest finite value.
    Finite,
    Fixed(f32),
    /// Whether it may be NaN, and which input.
    Input(bool, usize),
}

impl Op for Clip {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Clip")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        if node.version() < 11 {
            let element = node.expect_float(0)?;
            let (low, high) = (node.float("min")?, node.float("max")?);
            if low.unwrap_or(f32::MIN) > high.unwrap_or(f32::MAX) {
                return Err(Decline::invalid("min is above max"));
            }
            let bound = |value: Option<f32>| value.map_or(Bound::missing(element, node), Bound::Fixed);
            return Ok(Self { low: bound(low), high: bound(high) });
        }
        let element = node.expect_type(0, |e| e.is_float() || e.is_integer())?;
        let bound = |i| {
            let known = node.constant(i).and_then(|t| t.floats());
            let nan = element.is_float() && known.is_none_or(|v| v.iter().any(|v| v.is_nan()));
            if node.has_input(i) { Bound::Input(nan, i) } else { Bound::missing(element, node) }
        };
        Ok(Self { low: bound(1), high: bound(2) })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let mut y = cx.array(0)?;
        if let Some(low) = self.low.array(cx, &y, -1.0)? {
            y = y.maximum(&low)?;
        }
        if let Some(high) = self.high.array(cx, &y, 1.0)? {
            y = y.minimum(&high)?;
        }
        cx.emit(0, y)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let Some(Some(x)) = inputs.first() else { return Ok(None) };
        let bound = |bound: &Bound, sign: f64| match *bound {
            Bound::Input(_, i) => scalar(inputs.get(i).copied().flatten()),
            Bound::Fixed(v) => Some((0, f64::from(v))),
            Bound::None => Some((if sign < 0.0 { i64::MIN } else { i64::MAX }, sign * f64::INFINITY)),
            Bound::Finite => Some((0, sign * dtype::to_mlx(x.element()).map_or(f64::MAX, largest))),
        };
        let (Some(low), Some(high)) = (bound(&self.low, -1.0), bound(&self.high, 1.0)) else {
            return Ok(None);
        };
        Ok(Some(vec![match x.values() {
            HostValues::Ints(v) => HostTensor::ints(x.element(), v.mapv(|v| v.max(low.0).min(high.0))),
            HostValues::Floats(v) => {
                let raised = v.mapv(|v| if v < low.1 { low.1 } else { v });
                HostTensor::floats(x.element(), raised.mapv(|v| if v > high.1 { high.1 } else { v }))
            }
        }]))
    }
}

impl Bound {
    /// A bound that is left out.
    fn missing(element: ElementType, node: &NodeRef<'_>) -> Self {
        let finite = element == ElementType::Float || (element.is_float() && node.version() >= 12);
        if finite { Self::Finite } else { Self::None }
    }

    /// A scalar of `x`'s type without NaN; `sign` says which side.
    fn array(&self, cx: &Lowering<'_>, x: &Array, sign: f64) -> Result<Option<Array>, LowerError> {
        let largest = largest(x.dtype());
        Ok(match *self {
            Self::None => None,
            Self::Finite => Some(like(sign * largest, x)?),
            Self::Fixed(v) => Some(like(f64::from(v).clamp(-largest, largest), x)?),
            Self::Input(nan, i) => {
                if !matches!(*cx.shape(i)?, [] | [1]) {
                    return Err(LowerError::invalid("min and max should be scalars"));
                }
                let bound = cx.array(i)?.reshape(&[])?;
                let unbounded = like(sign * f64::INFINITY, x)?;
                Some(if nan { where_(&bound.isnan()?, &unbounded, &bound)? } else { bound })
            }
        })
    }
}

fn largest(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float16 => f64::from(half::f16::MAX),
        Dtype::Bfloat16 => f64::from(half::bf16::MAX),
        _ => f64::from(f32::MAX),
    }
}

/// The one element of a scalar, as an integer and as a float: which is right depends on the type.
fn scalar(tensor: Option<&HostTensor>) -> Option<(i64, f64)> {
    let tensor = tensor.filter(|t| matches!(t.dims(), [] | [1]))?;
    match tensor.values() {
        HostValues::Ints(v) => v.first().map(|&v| (v, v as f64)),
        HostValues::Floats(v) => v.first().map(|&v| (v as i64, v)),
    }
}

#[cfg(test)]
mod tests {
    use onnx_graph::Tensor;

    use crate::testing::*;

    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;

    fn xs() -> Tensor<'static> {
        tensor(E::Float, [6], &[NAN, 1.0, -5.0, 5.0, INF, -INF])
    }

    fn at(value: f64) -> Tensor<'static> {
        tensor(E::Float, [], &[value])
    }

    fn ints(element: E, values: &[f64]) -> Tensor<'static> {
        tensor(element, [values.len()], values)
    }

    fn int(element: E, value: f64) -> Tensor<'static> {
        tensor(element, [], &[value])
    }

    op_cases! {
        both: case("Clip", 13).x(xs()).c(at(-1.0)).c(at(1.0)) => exact();
        computed_bounds: case("Clip", 13).x(f32s([30, 50])).x(at(-1.0)).x(at(1.0)) => exact();
        only_low: case("Clip", 13).x(xs()).c(at(0.0)) => exact();
        only_high: case("Clip", 13).x(xs()).none().c(at(2.0)) => exact();
        no_bounds: case("Clip", 13).x(xs()) => exact();
        infinite_bounds: case("Clip", 12).x(xs()).x(at(-INF)).x(at(INF)) => exact();
        low_above_high: case("Clip", 13).x(xs()).x(at(3.0)).x(at(1.0)) => exact();
        low_is_nan: case("Clip", 13).x(xs()).x(at(NAN)).x(at(1.0)) => exact();
        high_is_nan: case("Clip", 13).x(xs()).c(at(-1.0)).c(at(NAN)) => exact();
        folded: case("Clip", 13).c(xs()).c(at(-1.0)).c(at(2.0)) => exact();
        folded_no_bounds: case("Clip", 13).c(xs()) => exact();
        bound_of_one_element: case("Clip", 11).x(f32s([])).x(tensor(E::Float, [1], &[0.5])) => exact();
        opset_6: case("Clip", 6).x(xs()).attr("min", -1.0f32).attr("max", 2.0f32) => exact();
        opset_10_low: case("Clip", 10).x(xs()).attr("min", 0.0f32) => exact();
        opset_6_none: case("Clip", 6).x(xs()) => exact();
        f16: case("Clip", 13).x(random(E::Float16, [40])).c(tensor(E::Float16, [], &[0.0])).c(tensor(E::Float16, [], &[1.0])) => close(tol::F16);
        bf16: case("Clip", 13).x(random(E::Bfloat16, [40])).c(tensor(E::Bfloat16, [], &[0.0])) => close(tol::BF16);
        f16_unbounded: case("Clip", 11).x(tensor(E::Float16, [3], &[NAN, INF, -INF])).c(tensor(E::Float16, [], &[0.0])) => exact();
        int64: case("Clip", 12).x(i64s(&[-9, 4, 1 << 60])).x(int(E::Int64, -1.0)).x(int(E::Int64, 5.0)) => exact();
        int64_unbounded: case("Clip", 12).x(i64s(&[-9, 4, i64::MAX])).c(int(E::Int64, 0.0)) => exact();
        int64_large: case("Clip", 12).x(uniform(E::Int64, [90, 3], -9.0, 9.0)).x(int(E::Int64, 3.0)).x(int(E::Int64, 1.0)) => exact();
        int64_folded: case("Clip", 12).x(i64s(&[-9, 4, 77])).x(int(E::Int64, -1.0)).none() => exact();
        int8: case("Clip", 12).x(uniform(E::Int8, [90], -9.0, 9.0)).c(int(E::Int8, -3.0)).c(int(E::Int8, 4.0)) => exact();
        uint8: case("Clip", 12).x(ints(E::Uint8, &[1.0, 200.0, 3.0])).c(int(E::Uint8, 2.0)) => exact();
        uint64: case("Clip", 12).x(ints(E::Uint64, &[1.0, 1.8e19])).none().c(int(E::Uint64, 1e19)) => exact();
        empty: case("Clip", 13).x(f32s([2, 0])).c(at(0.0)) => exact();
        bound_is_no_scalar: case("Clip", 13).x(f32s([2])).x(f32s([2])) => fails("scalar");
        opset_6_low_above_high: case("Clip", 6).x(xs()).attr("min", 3.0f32).attr("max", 2.0f32) => declines();
    }
}
