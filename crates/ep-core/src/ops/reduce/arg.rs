//! `ArgMax` and `ArgMin`: where the first (or last) extreme is.

use mlx_safe::{Array, Dtype, arange, where_, zeros};
use ndarray::{ArrayView1, Axis};
use onnx_graph::ElementType;

use super::extreme::{Extreme, extreme, first_extreme};
use crate::axes::axis;
use crate::host::{HostTensor, HostValues};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

pub(crate) struct Arg {
    which: Extreme,
    axis: i64,
    keepdims: bool,
    last: bool,
}

impl Op for Arg {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("ArgMax"), OpKey::onnx("ArgMin")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_type(0, |e| e.is_float() || e.is_integer())?;
        Ok(Self {
            which: if node.op_type() == "ArgMax" { Extreme::Max } else { Extreme::Min },
            axis: node.int_or("axis", 0)?,
            keepdims: node.flag_or("keepdims", true)?,
            last: node.version() >= 12 && node.flag_or("select_last_index", false)?,
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("an empty axis is an error, and the last index counts from the axis's end")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        if x.ndim() == 0 {
            // ONNX Runtime does not look at the axis.
            return cx.emit(0, Array::scalar(0i64));
        }
        let at = axis(self.axis, x.ndim())?;
        let mut shape = x.shape().to_vec();
        let size = std::mem::replace(&mut shape[at], 1);
        let y = if shape.contains(&0) {
            zeros(&shape, Dtype::Int64)?
        } else if size == 0 {
            return Err(empty());
        } else if self.last {
            let at = at as i32;
            let mut along = vec![1; x.ndim()];
            along[at as usize] = size;
            let positions = arange(0.0, f64::from(size), 1.0, Dtype::Int64)?.reshape(&along)?;
            // NaN equals nothing: where it comes first, the position is 0.
            let best = x.equal(&extreme(&x, &[at], true, self.which)?)?;
            where_(&best, &positions, &Array::scalar(0i64))?.max(&[at], true)?
        } else {
            first_extreme(&x, at as i32, self.which)?.astype(Dtype::Int64)?
        };
        cx.emit(0, if self.keepdims { y } else { y.squeeze(&[at as i32])? })
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let [Some(x)] = inputs else { return Ok(None) };
        if x.dims().is_empty() {
            return Ok(Some(vec![HostTensor::scalar(0)]));
        }
        let at = axis(self.axis, x.dims().len())?;
        if x.element() == ElementType::Uint64 || x.dims().contains(&0) {
            return Ok(None);
        }
        let y = match x.values() {
            HostValues::Ints(v) => v.map_axis(Axis(at), |lane| self.pick(lane)),
            HostValues::Floats(v) => v.map_axis(Axis(at), |lane| self.pick(lane)),
        };
        let y = if self.keepdims { y.insert_axis(Axis(at)) } else { y };
        Ok(Some(vec![HostTensor::ints(ElementType::Int64, y)]))
    }
}

impl Arg {
    fn pick<T: PartialOrd + Copy>(&self, lane: ArrayView1<'_, T>) -> i64 {
        let mut best = 0;
        for (i, &v) in lane.iter().enumerate() {
            let beats = match self.which {
                Extreme::Max => v > lane[best],
                Extreme::Min => v < lane[best],
            };
            if beats || (self.last && v == lane[best]) {
                best = i;
            }
        }
        best as i64
    }
}

fn empty() -> LowerError {
    LowerError::invalid("the index of an extreme of no elements is not defined")
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    const NAN: f64 = f64::NAN;

    op_cases! {
        max: case("ArgMax", 13).x(f32s([3, 40])).attr("axis", 1) => exact();
        min: case("ArgMin", 13).x(f32s([3, 40])).attr("axis", -1).attr("keepdims", 0) => exact();
        default_axis: case("ArgMax", 11).x(f32s([3, 4])) => exact();
        opset_7: case("ArgMax", 7).x(f32s([3, 4])).attr("axis", 1) => exact();
        ties: case("ArgMax", 13).x(tensor(E::Float, [5], &[1.0, 3.0, 3.0, 3.0, 2.0])) => exact();
        ties_last: case("ArgMax", 13).x(tensor(E::Float, [5], &[1.0, 3.0, 3.0, 3.0, 2.0])).attr("select_last_index", 1) => exact();
        min_last: case("ArgMin", 12).x(random(E::Int32, [3, 50])).attr("axis", 1).attr("select_last_index", 1) => exact();
        i64_on_the_host: case("ArgMax", 13).x(i64s(&[4, 9, 9])).attr("keepdims", 0) => exact();
        i64_large: case("ArgMin", 13).x(random(E::Int64, [40, 40])).attr("axis", 0) => exact();
        u8: case("ArgMax", 13).x(uniform(E::Uint8, [90, 2], 0.0, 255.0)) => exact();
        f16: case("ArgMax", 13).x(random(E::Float16, [3, 40])).attr("axis", 1) => exact();
        nan: case("ArgMax", 13).x(tensor(E::Float, [2, 3], &[NAN, 1.0, 2.0, 1.0, NAN, 2.0])).attr("axis", 1) => exact();
        nan_min: case("ArgMin", 13).x(tensor(E::Float, [2, 3], &[NAN, 1.0, 2.0, 1.0, NAN, 2.0])).attr("axis", 1) => exact();
        all_nan: case("ArgMax", 13).x(tensor(E::Float, [2], &[NAN, NAN])) => exact();
        nothing_along_others: case("ArgMax", 13).x(f32s([2, 0])) => exact();
        nothing_along_axis: case("ArgMax", 13).x(f32s([2, 0])).attr("axis", 1) => fails("not defined");
        scalar: case("ArgMax", 13).x(f32s([])).unranked() => exact();
        scalar_last: case("ArgMin", 13).x(f32s([])).unranked().attr("axis", -1).attr("keepdims", 0).attr("select_last_index", 1) => exact();
        scalar_folded: case("ArgMin", 13).x(tensor(E::Int64, [], &[5.0])).unranked() => exact();
        last_after_nan: case("ArgMax", 13).x(tensor(E::Float, [4, 4], &[NAN, 1.0, 2.0, 2.0, NAN, NAN, 1.0, NAN, 1.0, NAN, 1.0, 0.0, f64::NEG_INFINITY, NAN, f64::NEG_INFINITY, NAN])).attr("axis", 1).attr("select_last_index", 1) => exact();
        last_least_after_nan: case("ArgMin", 13).x(tensor(E::Float, [4, 3], &[NAN, 1.0, 2.0, NAN, NAN, NAN, 1.0, NAN, 1.0, f64::INFINITY, NAN, NAN])).attr("axis", 1).attr("select_last_index", 1) => exact();
        boolean: case("ArgMax", 13).x(tensor(E::Bool, [2], &[0.0, 1.0])) => declines();
    }
}
