//! ReverseSequence.

use mlx_safe::{Array, Dtype};

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// Which of the first two axes is time; the other is the batch.
pub(crate) struct ReverseSequence {
    time: usize,
}

impl Op for ReverseSequence {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("ReverseSequence")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        match (node.int_or("time_axis", 0)?, node.int_or("batch_axis", 1)?) {
            (0, 1) => Ok(Self { time: 0 }),
            (1, 0) => Ok(Self { time: 1 }),
            axes => Err(Decline::invalid(format!("time and batch axes {axes:?}"))),
        }
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("positions are counted up to the input's size")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let lengths = cx.array(1)?;
        let [Some(&first), Some(&second)] = [x.shape().first(), x.shape().get(1)] else {
            return Err(LowerError::invalid("the input has less than two axes"));
        };
        let (steps, batch) = if self.time == 0 { (first, second) } else { (second, first) };
        if lengths.shape() != [batch] {
            return Err(LowerError::invalid(format!("a batch of {batch} needs as many lengths")));
        }
        if batch == 0 {
            return cx.forward(0, 0);
        }
        let (zero, most) = (Array::scalar(0i64), Array::scalar(i64::from(steps)));
        let fits = lengths.greater_equal(&zero)?.logical_and(&lengths.less_equal(&most)?)?;
        cx.require(fits.all(&[0], false)?, format!("a length is not between 0 and {steps}"));
        if x.size() == 0 {
            return cx.forward(0, 0);
        }
        // Lengths lie along the batch axis, positions along the time axis; further axes broadcast.
        let along = |array: &Array, axis: usize, size: i32| {
            let mut shape = vec![1; x.ndim()];
            shape[axis] = size;
            array.reshape(&shape)
        };
        let lengths =
            along(&lengths.maximum(&zero)?.minimum(&most)?.astype(Dtype::Int32)?, 1 - self.time, batch)?;
        let here = along(&mlx_safe::arange(0.0, steps.into(), 1.0, Dtype::Int32)?, self.time, steps)?;
        let there = lengths.subtract(&Array::scalar(1i32))?.subtract(&here)?;
        let from = mlx_safe::where_(&here.less(&lengths)?, &there, &here)?.broadcast_to(x.shape())?;
        cx.emit(0, x.take_along_axis(&from, self.time as i32)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        time_first: case("ReverseSequence", 10).x(f32s([4, 3])).x(i64s(&[4, 2, 1])) => exact();
        batch_first: case("ReverseSequence", 10).x(f32s([3, 4, 2])).c(i64s(&[4, 2, 3])).attr("time_axis", 1).attr("batch_axis", 0) => exact();
        length_zero: case("ReverseSequence", 10).x(f32s([4, 2])).x(i64s(&[0, 3])) => exact();
        int: case("ReverseSequence", 10).x(random(E::Int32, [4, 2])).x(i64s(&[4, 3])) => exact();
        empty: case("ReverseSequence", 10).x(f32s([4, 0])).x(i64s(&[])) => exact();
        no_time: case("ReverseSequence", 10).x(f32s([0, 2])).x(i64s(&[0, 0])) => exact();
        no_time_too_long: case("ReverseSequence", 10).x(f32s([0, 2])).x(i64s(&[1, 0])) => fails("a length is not");
        nothing_too_long: case("ReverseSequence", 10).x(f32s([2, 2, 0])).x(i64s(&[3, 1])) => fails("a length is not");
        too_long: case("ReverseSequence", 10).x(f32s([4, 2])).x(i64s(&[5, 1])) => fails("a length is not");
    }
}
