//! Slice.

use ndarray::Axis;

use crate::host::{HostTensor, given_ints, rearrange};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, axes};

/// The bounds, where they are attributes: before opset 10.
pub(crate) struct Slice(Option<Bounds>);

struct Bounds {
    starts: Vec<i64>,
    ends: Vec<i64>,
    axes: Option<Vec<i64>>,
    steps: Option<Vec<i64>>,
}

/// What is kept of one axis: `count` elements from `start` by `step`.
#[derive(Clone, Copy)]
struct Cut {
    start: i64,
    step: i64,
    count: i64,
}

const OPEN_32: i64 = i32::MAX as i64;

impl Cut {
    /// Negative bounds count from the end, and all are clamped, to one before the first for an end that goes backwards.
    fn new(length: i64, start: i64, end: i64, step: i64) -> Result<Self, LowerError> {
        if step == 0 {
            return Err(LowerError::invalid("a step of 0"));
        }
        if length == 0 {
            return Ok(Self { start: 0, step: 1, count: 0 });
        }
        let from_front = |bound: i64| if bound < 0 { bound.saturating_add(length) } else { bound };
        let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
        let start = from_front(start).clamp(low.max(0), high);
        let end = match end {
            // As on ONNX Runtime, the greatest number of either index type is no end at all.
            OPEN_32 | i64::MAX if step < 0 => -1,
            end => from_front(end).clamp(low, high),
        };
        let span = if step > 0 { end - start } else { start - end };
        let count = span.max(0).unsigned_abs().div_ceil(step.unsigned_abs()) as i64;
        // One element needs no step, and a step may be longer than any axis.
        Ok(Self { start, step: if count > 1 { step } else { 1 }, count })
    }

    fn indices(self) -> impl Iterator<Item = i64> {
        (0..self.count).map(move |i| self.start + i * self.step)
    }

    /// The bound after the last element as MLX writes it: one before the first is `-length - 1`.
    fn stop(self, length: i64) -> i64 {
        match self.start + self.count * self.step {
            stop if self.step < 0 && stop < 0 => -length - 1,
            stop => stop.min(length),
        }
    }
}

impl Bounds {
    fn cuts(&self, dims: &[i64]) -> Result<Vec<Cut>, LowerError> {
        let count = self.starts.len();
        let axes = match &self.axes {
            Some(list) => axes::axes(list, dims.len())?,
            None => (0..count).collect(),
        };
        let steps = self.steps.clone().unwrap_or_else(|| vec![1; count]);
        if self.ends.len() != count || axes.len() != count || steps.len() != count || count > dims.len() {
            return Err(LowerError::invalid("starts, ends, axes and steps do not fit together"));
        }
        let mut cuts: Vec<Cut> = dims.iter().map(|&d| Cut { start: 0, step: 1, count: d }).collect();
        for (i, &axis) in axes.iter().enumerate() {
            cuts[axis] = Cut::new(dims[axis], self.starts[i], self.ends[i], steps[i])?;
        }
        Ok(cuts)
    }
}

impl Op for Slice {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Slice")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        if node.version() >= 10 {
            return Ok(Self(None));
        }
        let missing = || Decline::invalid("starts or ends are missing");
        Ok(Self(Some(Bounds {
            starts: node.ints("starts")?.ok_or_else(missing)?,
            ends: node.ints("ends")?.ok_or_else(missing)?,
            axes: node.ints("axes")?,
            steps: None,
        })))
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the bounds are worked out on the host")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let dims: Vec<i64> = x.shape().iter().map(|&d| d.into()).collect();
        let cuts = match &self.0 {
            Some(bounds) => bounds.cuts(&dims)?,
            None => Bounds {
                starts: cx.ints(1)?,
                ends: cx.ints(2)?,
                axes: cx.optional_ints(3)?,
                steps: cx.optional_ints(4)?,
            }
            .cuts(&dims)?,
        };
        let column = |f: &dyn Fn(&Cut, i64) -> i64| -> Vec<i32> {
            cuts.iter().zip(&dims).map(|(cut, &d)| f(cut, d) as i32).collect()
        };
        let shape = column(&|cut, _| cut.count);
        if shape.contains(&0) {
            return cx.emit(0, mlx_safe::zeros(&shape, x.dtype())?);
        }
        let (starts, stops) = (column(&|cut, _| cut.start), column(&|cut, d| cut.stop(d)));
        cx.emit(0, x.slice(&starts, &stops, &column(&|cut, _| cut.step))?)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let Some(Some(x)) = inputs.first() else { return Ok(None) };
        let dims: Vec<i64> = x.dims().iter().map(|&d| d as i64).collect();
        let cuts = match &self.0 {
            Some(bounds) => bounds.cuts(&dims)?,
            None => Bounds {
                starts: given_ints(inputs, 1).unwrap_or_default(),
                ends: given_ints(inputs, 2).unwrap_or_default(),
                axes: given_ints(inputs, 3),
                steps: given_ints(inputs, 4),
            }
            .cuts(&dims)?,
        };
        let y = rearrange!(x, |v| {
            let mut v = v.clone();
            for (axis, cut) in cuts.iter().enumerate() {
                let kept: Vec<usize> = cut.indices().map(|i| i as usize).collect();
                v = v.select(Axis(axis), &kept);
            }
            Some(v)
        });
        Ok(y.map(|y| vec![y]))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    /// Slices `x` along all its axes in order.
    fn slice(x: onnx_graph::Tensor<'static>, starts: &[i64], ends: &[i64], steps: &[i64]) -> Case {
        let axes: Vec<i64> = (0..starts.len() as i64).collect();
        case("Slice", 13).x(x).x(i64s(starts)).x(i64s(ends)).c(i64s(&axes)).c(i64s(steps))
    }

    fn i32s(values: &[f64]) -> onnx_graph::Tensor<'static> {
        tensor(E::Int32, [values.len()], values)
    }

    op_cases! {
        attributes: case("Slice", 9).x(f32s([4, 5])).attr("starts", vec![1, 0]).attr("ends", vec![3, -1]) => exact();
        attributes_axes: case("Slice", 1).x(f32s([4, 5])).attr("starts", vec![-3]).attr("ends", vec![1000]).attr("axes", vec![1]) => exact();
        inputs: case("Slice", 10).x(f32s([4, 5])).c(i64s(&[1, 1])).c(i64s(&[3, 4])) => exact();
        negative_axis: case("Slice", 13).x(f32s([4, 5])).c(i64s(&[1])).c(i64s(&[3])).c(i64s(&[-2])) => exact();
        steps_without_axes: case("Slice", 11).x(f32s([7, 5])).x(i64s(&[0])).x(i64s(&[7])).none().x(i64s(&[3])) => exact();
        int32_bounds: case("Slice", 13).x(f32s([7])).x(i32s(&[-5.0])).x(i32s(&[2147483647.0])).x(i32s(&[0.0])).x(i32s(&[2.0])) => exact();
        steps: slice(f32s([7, 9]), &[0, 8], &[7, 1], &[2, -3]) => exact();
        reversed: slice(f32s([5, 3]), &[-1, -1], &[i64::MIN, i64::MIN], &[-1, -1]) => exact();
        reversed_far: slice(f32s([5]), &[i64::MAX], &[-1000], &[-2]) => exact();
        open_end: slice(f32s([5, 3]), &[1, 0], &[i64::MAX, i64::MAX], &[1, 1]) => exact();
        far_start: slice(f32s([5]), &[i64::MIN], &[3], &[1]) => exact();
        far_start_backwards: slice(f32s([5]), &[i64::MIN], &[i64::MIN], &[-1]) => exact();
        backwards_to_the_last: slice(f32s([5]), &[4], &[-1], &[-1]) => exact();
        backwards_at_the_first: slice(f32s([5]), &[-9], &[-20], &[-1]) => exact();
        start_beyond: slice(f32s([5]), &[9], &[20], &[1]) => exact();
        crossed: slice(f32s([5]), &[3], &[2], &[1]) => exact();
        open_end_backwards: slice(f32s([5]), &[-1], &[i64::MAX], &[-1]) => exact();
        open_end_backwards_32: slice(f32s([5]), &[3], &[2147483647], &[-2]) => exact();
        open_end_backwards_int32: case("Slice", 13).x(f32s([5])).x(i32s(&[-1.0])).x(i32s(&[2147483647.0])).x(i32s(&[0.0])).x(i32s(&[-1.0])) => exact();
        open_end_backwards_constant: case("Slice", 13).x(f32s([5])).c(i64s(&[-1])).c(i64s(&[i64::MAX])).c(i64s(&[0])).c(i64s(&[-1])) => exact();
        open_end_backwards_host: slice(i64s(&[4, 5, 6, 7]), &[-1], &[i64::MAX], &[-1]) => exact();
        far_end_backwards: slice(f32s([5]), &[-1], &[i64::MAX - 1], &[-1]) => exact();
        far_end_backwards_32: slice(f32s([5]), &[4], &[2147483646], &[-1]) => exact();
        huge_step: slice(f32s([5]), &[1], &[5], &[i64::MAX]) => exact();
        huge_step_backwards: slice(f32s([5]), &[3], &[i64::MIN], &[i64::MIN]) => exact();
        empty: slice(f32s([0, 3]), &[0, 0], &[5, 2], &[1, 1]) => exact();
        empty_backwards: slice(f32s([0, 3]), &[-1, -1], &[-9, -9], &[-1, -1]) => exact();
        host: slice(i64s(&[4, 5, 6, 7]), &[-1], &[0], &[-2]) => exact();
        host_floats: case("Slice", 13).c(f32s([6])).c(i64s(&[2])).c(i64s(&[4])) => exact();
        bool: slice(random(E::Bool, [100]), &[5], &[70], &[3]) => exact();
        uint64: slice(random(E::Uint64, [100]), &[70], &[5], &[-3]) => exact();
        f16: slice(random(E::Float16, [100]), &[70], &[5], &[-3]) => exact();
        step_zero: slice(f32s([5]), &[0], &[3], &[0]) => fails("step of 0");
        twice: case("Slice", 13).x(f32s([4, 5])).x(i64s(&[1, 1])).x(i64s(&[3, 3])).x(i64s(&[0, -2])) => fails("twice");
    }
}
