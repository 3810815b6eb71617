//! `TopK` at opsets 1, 10 and 11: a stable sort of integer keys that order as the values do.
//!
//! Among equals the lower index comes first; NaN is the largest. Unsorted results come sorted.

use mlx_safe::{Array, Dtype, where_, zeros};

use crate::axes::axis;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

pub(crate) struct TopK {
    k: Count,
    axis: i64,
    largest: bool,
}

/// Where `k` comes from.
enum Count {
    Fixed(i64),
    Input,
}

impl Op for TopK {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("TopK")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_type(0, |e| e.is_float() || e.is_integer())?;
        let k = match node.version() {
            10.. => Count::Input,
            _ => Count::Fixed(node.int("k")?.ok_or_else(|| Decline::invalid("k is missing"))?),
        };
        // Results are sorted always: without `sorted` any order will do.
        node.flag_or("sorted", true)?;
        let largest = node.version() < 11 || node.flag_or("largest", true)?;
        Ok(Self { k, axis: node.int_or("axis", -1)?, largest })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("k is compared with the axis's size")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let at = axis(self.axis, x.ndim())?;
        let k = match self.k {
            Count::Fixed(k) => k,
            Count::Input if cx.shape(1)? == [1] => cx.ints(1)?[0],
            Count::Input => return Err(LowerError::invalid("k must be a vector of one element")),
        };
        let mut shape = x.shape().to_vec();
        let k = match i32::try_from(k) {
            Ok(k) if (0..=shape[at]).contains(&k) => k,
            _ => return Err(LowerError::invalid(format!("k = {k} of an axis of {}", shape[at]))),
        };
        shape[at] = k;
        if shape.contains(&0) {
            cx.emit(0, zeros(&shape, x.dtype())?)?;
            return cx.emit(1, zeros(&shape, Dtype::Int64)?);
        }
        let at = at as i32;
        let key = if self.largest { key(&x)?.bitwise_invert()? } else { key(&x)? };
        let indices = if k == 1 {
            key.argmin(at, true)?
        } else {
            key.argsort(at)?.slice(&vec![0; shape.len()], &shape, &vec![1; shape.len()])?
        };
        cx.emit(0, x.take_along_axis(&indices, at)?)?;
        cx.emit(1, indices.astype(Dtype::Int64)?)
    }
}

/// Integers in the order of `x`: integers are their own; a float's bits, read as an integer, fall where it is negative.
fn key(x: &Array) -> mlx_safe::Result<Array> {
    if !x.dtype().is_float() {
        return Ok(x.clone());
    }
    // The sum makes -0 and 0 equal, and any NaN becomes the largest of all values.
    let x = x.astype(Dtype::Float32)?.add(&Array::scalar(0.0f32))?;
    let bits = where_(&x.isnan()?, &Array::scalar(f32::NAN.abs()), &x)?.view(Dtype::Int32)?;
    let falling = bits.right_shift(&Array::scalar(31i32))?.bitwise_and(&Array::scalar(i32::MAX))?;
    bits.bitwise_xor(&falling)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    const NAN: f64 = f64::NAN;

    fn ties() -> onnx_graph::Tensor<'static> {
        tensor(E::Float, [8], &[2.0, 2.0, -1.0, 2.0, -1.0, 0.0, -0.0, 0.0])
    }

    fn nans() -> onnx_graph::Tensor<'static> {
        tensor(E::Float, [6], &[1.0, NAN, 3.0, f64::INFINITY, -NAN, f64::NEG_INFINITY])
    }

    op_cases! {
        largest: case("TopK", 11).x(f32s([3, 40])).c(i64s(&[5])).outputs(2) => exact();
        smallest: case("TopK", 11).x(f32s([3, 40])).c(i64s(&[5])).attr("largest", 0).outputs(2) => exact();
        axis_0: case("TopK", 11).x(f32s([9, 4])).c(i64s(&[3])).attr("axis", 0).outputs(2) => exact();
        k_at_run_time: case("TopK", 11).x(f32s([3, 5, 4])).x(i64s(&[2])).attr("axis", -2).outputs(2) => exact();
        one: case("TopK", 11).x(f32s([3, 40])).c(i64s(&[1])).outputs(2) => exact();
        one_smallest: case("TopK", 11).x(ties()).c(i64s(&[1])).attr("largest", 0).outputs(2) => exact();
        all: case("TopK", 11).x(f32s([3, 7])).c(i64s(&[7])).outputs(2) => exact();
        ties_largest: case("TopK", 11).x(ties()).c(i64s(&[8])).outputs(2) => exact();
        ties_smallest: case("TopK", 11).x(ties()).c(i64s(&[7])).attr("largest", 0).outputs(2) => exact();
        nan_largest: case("TopK", 11).x(nans()).c(i64s(&[6])).outputs(2) => exact();
        nan_smallest: case("TopK", 11).x(nans()).c(i64s(&[6])).attr("largest", 0).outputs(2) => exact();
        opset_7: case("TopK", 7).x(f32s([3, 4])).attr("k", 2).outputs(2) => exact();
        opset_10: case("TopK", 10).x(f32s([3, 4])).c(i64s(&[2])).attr("axis", 0).outputs(2) => exact();
        i64: case("TopK", 11).x(tensor(E::Int64, [3], &[-5.0, 9007199254740993.0, 9007199254740992.0])).c(i64s(&[3])).outputs(2) => exact();
        i32: case("TopK", 11).x(random(E::Int32, [3, 60])).c(i64s(&[9])).outputs(2) => exact();
        i8: case("TopK", 24).x(uniform(E::Int8, [60], -128.0, 127.0)).c(i64s(&[9])).outputs(2) => exact();
        u8: case("TopK", 24).x(uniform(E::Uint8, [60], 0.0, 255.0)).c(i64s(&[9])).outputs(2) => exact();
        f16: case("TopK", 11).x(random(E::Float16, [3, 40])).c(i64s(&[5])).outputs(2) => exact();
        bf16: case("TopK", 24).x(random(E::Bfloat16, [3, 40])).c(i64s(&[5])).outputs(2) => exact();
        many: case("TopK", 11).x(random(E::Int32, [40000])).c(i64s(&[300])).outputs(2) => exact();
        k_0: case("TopK", 11).x(f32s([3, 4])).c(i64s(&[0])).outputs(2) => exact();
        nothing: case("TopK", 11).x(f32s([0, 4])).c(i64s(&[2])).outputs(2) => exact();
        largest_2: case("TopK", 11).x(f32s([3, 4])).x(i64s(&[2])).attr("largest", 2).outputs(2) => declines();
        sorted_2: case("TopK", 11).x(f32s([3, 4])).x(i64s(&[2])).attr("sorted", 2).outputs(2) => declines();
        scalar: case("TopK", 11).x(f32s([])).x(i64s(&[1])).outputs(2) => fails("axis -1");
        k_too_large: case("TopK", 11).x(f32s([3, 4])).x(i64s(&[5])).outputs(2) => fails("k = 5");
        k_negative: case("TopK", 11).x(f32s([3, 4])).x(i64s(&[-1])).outputs(2) => fails("k = -1");
        k_scalar: case("TopK", 11).x(f32s([3, 4])).x(tensor(E::Int64, [], &[1.0])).outputs(2) => fails("vector");
    }
}
