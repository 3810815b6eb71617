//! Range.

use mlx_safe::Dtype;
use ndarray::Array1;
use onnx_graph::ElementType;

use crate::host::{HOST_LIMIT, HostTensor};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// `start`, `start + delta`, ... before `limit`. The values are made on the host, where the inputs must be anyway.
pub(crate) struct Range;

/// The three inputs, and how many values they make.
enum Plan {
    Ints { start: i64, delta: i64, count: usize },
    Floats { start: f32, delta: f32, count: usize },
}

impl Plan {
    fn new(inputs: [&HostTensor; 3]) -> Result<Self, LowerError> {
        let not_scalar = || LowerError::invalid("start, limit and delta are not scalars of one type");
        let count = |steps: f64| match steps.ceil() {
            count if count <= f64::from(i32::MAX) => Ok(count.max(0.0) as usize),
            _ => Err(LowerError::invalid("the range is beyond what MLX can hold")),
        };
        if let [Some(start), Some(limit), Some(delta)] = inputs.map(HostTensor::to_ints) {
            let ([start], [limit], [delta]) = (&start[..], &limit[..], &delta[..]) else {
                return Err(not_scalar());
            };
            check_delta(*delta != 0)?;
            // ONNX Runtime divides in double precision, too.
            let count = count(limit.wrapping_sub(*start) as f64 / *delta as f64)?;
            return Ok(Self::Ints { start: *start, delta: *delta, count });
        }
        let [start, limit, delta] = inputs.map(HostTensor::to_floats);
        let ([start], [limit], [delta]) = (&start[..], &limit[..], &delta[..]) else {
            return Err(not_scalar());
        };
        let (start, limit, delta) = (*start as f32, *limit as f32, *delta as f32);
        check_delta(delta != 0.0)?;
        Ok(Self::Floats { start, delta, count: count(f64::from(limit - start) / f64::from(delta))? })
    }

    fn count(&self) -> usize {
        match *self {
            Self::Ints { count, .. } | Self::Floats { count, .. } => count,
        }
    }

    fn values(&self, element: ElementType) -> HostTensor {
        match *self {
            Self::Ints { start, delta, count } => {
                let values = (0..count as i64).map(|i| start.wrapping_add(delta.wrapping_mul(i)));
                HostTensor::ints(element, Array1::from_iter(values).into_dyn())
            }
            Self::Floats { start, delta, count } => {
                // Added up, not multiplied: ONNX Runtime's rounding.
                let values = std::iter::successors(Some(start), |v| Some(v + delta)).take(count);
                HostTensor::floats(element, Array1::from_iter(values.map(f64::from)).into_dyn())
            }
        }
    }
}

fn check_delta(is_not_zero: bool) -> Result<(), LowerError> {
    if is_not_zero { Ok(()) } else { Err(LowerError::invalid("delta is 0")) }
}

impl Op for Range {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Range")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_type(0, |e| e == ElementType::Float || e.is_integer())?;
        // Of 16-bit floats, which are not taken.
        node.ignore(&["stash_type"]);
        Ok(Self)
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the inputs' values decide the output's size")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let start = cx.host(0)?;
        let plan = Plan::new([start, cx.host(1)?, cx.host(2)?])?;
        cx.afford(&[plan.count() as i32], Dtype::Int64)?;
        cx.emit(0, plan.values(start.element()).upload()?)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let [Some(start), Some(limit), Some(delta)] = *inputs else { return Ok(None) };
        let plan = Plan::new([start, limit, delta])?;
        Ok((plan.count() <= HOST_LIMIT).then(|| vec![plan.values(start.element())]))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn range(element: E, start: f64, limit: f64, delta: f64) -> Case {
        let scalar = |v| tensor(element, [], &[v]);
        case("Range", 11).x(scalar(start)).x(scalar(limit)).x(scalar(delta))
    }

    op_cases! {
        int64: range(E::Int64, 0.0, 5.0, 1.0) => exact();
        int32_down: range(E::Int32, 10.0, 1.0, -3.0) => exact();
        int16: range(E::Int16, -5.0, 5.0, 4.0) => exact();
        float: range(E::Float, 0.0, 1.0, 0.1) => close(tol::F32);
        float_down: range(E::Float, 1.0, -2.0, -0.3) => close(tol::F32);
        empty: range(E::Int64, 5.0, 0.0, 1.0) => exact();
        empty_equal: range(E::Float, 1.0, 1.0, 1.0) => exact();
        long_ints: range(E::Int64, 3.0, 9000.0, 2.0) => exact();
        long_floats: range(E::Float, 0.5, 3000.0, 0.7) => close(tol::F32);
        one_element_inputs: case("Range", 11).x(i64s(&[0])).x(i64s(&[4])).x(i64s(&[1])) => exact();
        not_a_number: range(E::Float, f64::NAN, 1.0, 1.0) => fails("beyond");
        no_delta: range(E::Int64, 0.0, 5.0, 0.0) => fails("delta is 0");
    }
}
