//! `CumSum` (11+) and `CumProd` (26): running sums and products along an axis that is an input.

use mlx_safe::Dtype;
use ndarray::{ArrayD, Axis};
use onnx_graph::ElementType;

use crate::axes::axis;
use crate::host::{HostTensor, HostValues};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

pub(crate) struct Cumulative {
    product: bool,
    exclusive: bool,
    reverse: bool,
}

impl Op for Cumulative {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("CumProd"), OpKey::onnx("CumSum")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_type(0, |e| e.is_float() || e.is_integer())?;
        node.expect_type(1, |e| matches!(e, ElementType::Int32 | ElementType::Int64))?;
        Ok(Self {
            product: node.op_type() == "CumProd",
            exclusive: node.flag_or("exclusive", false)?,
            reverse: node.flag_or("reverse", false)?,
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("nothing is left to sum where a dimension is 0")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        // As in ONNX Runtime, nothing has no axis to be wrong about.
        if x.size() == 0 {
            return cx.forward(0, 0);
        }
        let at = resolve(cx.host(1)?, x.ndim())? as i32;
        let wide = if x.dtype().is_float() { x.astype(Dtype::Float32)? } else { x.clone() };
        let y = match self.product {
            true => wide.cumprod(at, self.reverse, !self.exclusive)?,
            false => wide.cumsum(at, self.reverse, !self.exclusive)?,
        };
        cx.emit(0, y.astype(x.dtype())?)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let [Some(x), Some(at)] = inputs else { return Ok(None) };
        if x.len() == 0 {
            return Ok(None);
        }
        let at = resolve(at, x.dims().len())?;
        let HostValues::Ints(v) = x.values() else { return Ok(None) };
        if x.element() == ElementType::Uint64 {
            return Ok(None);
        }
        let mut y: ArrayD<i64> = v.clone();
        let (start, step): (i64, fn(i64, i64) -> i64) =
            if self.product { (1, i64::wrapping_mul) } else { (0, i64::wrapping_add) };
        for mut lane in y.lanes_mut(Axis(at)) {
            if self.reverse {
                lane.invert_axis(Axis(0));
            }
            let mut total = start;
            for v in lane {
                let before = total;
                total = step(total, *v);
                *v = if self.exclusive { before } else { total };
            }
        }
        Ok(Some(vec![HostTensor::ints(x.element(), y)]))
    }
}

/// The axis: a scalar or a vector of one element.
fn resolve(given: &HostTensor, rank: usize) -> Result<usize, LowerError> {
    match (given.dims(), given.to_ints().as_deref()) {
        ([] | [1], Some(&[at])) => axis(at, rank),
        _ => Err(LowerError::invalid("the axis must be one integer")),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn at(axis: i64) -> onnx_graph::Tensor<'static> {
        tensor(E::Int64, [], &[axis as f64])
    }

    op_cases! {
        sum: case("CumSum", 14).x(f32s([3, 40])).c(at(1)) => close(tol::F32);
        opset_11: case("CumSum", 11).x(f32s([3, 40])).c(at(0)) => close(tol::F32);
        axis_at_run_time: case("CumSum", 14).x(f32s([3, 40])).x(i64s(&[-1])) => close(tol::F32);
        axis_i32: case("CumSum", 14).x(f32s([3, 4])).c(tensor(E::Int32, [1], &[0.0])) => close(tol::F32);
        exclusive: case("CumSum", 14).x(f32s([3, 40])).c(at(1)).attr("exclusive", 1) => close(tol::F32);
        reverse: case("CumSum", 14).x(f32s([3, 40])).c(at(1)).attr("reverse", 1) => close(tol::F32);
        both: case("CumSum", 14).x(f32s([3, 4, 5])).c(at(1)).attr("reverse", 1).attr("exclusive", 1) => close(tol::F32);
        f16: case("CumSum", 14).x(random(E::Float16, [200])).c(at(0)) => close(tol::F16);
        i32: case("CumSum", 14).x(random(E::Int32, [40, 3])).c(at(0)).attr("exclusive", 1) => exact();
        i64_on_the_host: case("CumSum", 14).x(i64s(&[4, 9, -9])).c(at(0)) => exact();
        i64_on_the_host_backwards: case("CumSum", 14).x(i64s(&[4, 9, -9])).c(at(0)).attr("reverse", 1).attr("exclusive", 1) => exact();
        i64_wide: case("CumSum", 14).x(tensor(E::Int64, [70, 2], &[9007199254740993.0; 140])).c(at(0)) => exact();
        product: case("CumProd", 26).x(uniform(E::Float, [3, 40], 0.5, 1.6)).c(at(1)) => close(tol::F32_SUM);
        product_both: case("CumProd", 26).x(f32s([3, 4])).c(at(1)).attr("reverse", 1).attr("exclusive", 1) => close(tol::F32);
        product_i64: case("CumProd", 26).x(i64s(&[4, 9, -9])).c(at(0)).attr("exclusive", 1) => exact();
        nothing: case("CumSum", 14).x(f32s([0, 2])).c(at(0)) => exact();
        nothing_along_a_bad_axis: case("CumSum", 14).x(f32s([0, 3])).x(at(5)) => exact();
        nothing_folded_along_a_bad_axis: case("CumSum", 14).c(random(E::Int64, [0, 3])).c(at(-5)) => exact();
        scalar: case("CumSum", 14).x(f32s([])).x(at(0)) => fails("axis 0");
        bad_axis: case("CumSum", 14).x(f32s([3, 2])).x(at(2)) => fails("axis 2");
        axis_of_rank_2: case("CumSum", 14).x(f32s([3, 2])).x(tensor(E::Int64, [1, 1], &[0.0])) => fails("one integer");
    }
}
