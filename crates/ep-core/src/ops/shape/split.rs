//! Split.

use ndarray::{Axis, Slice};

use crate::host::{HostTensor, given_ints, rearrange};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, axes};

/// How the axis is cut where no input says.
pub(crate) struct Split {
    axis: i64,
    rule: Rule,
}

enum Rule {
    /// The sizes: an attribute before opset 13.
    Sizes(Vec<i64>),
    /// So many equal parts.
    Equal(i64),
    /// So many parts, the last of which may be smaller.
    Nearly(i64),
}

impl Split {
    fn sizes(&self, length: i64, given: Option<Vec<i64>>) -> Result<Vec<i64>, LowerError> {
        let sizes = match (given, &self.rule) {
            (Some(sizes), _) => sizes,
            (None, Rule::Sizes(sizes)) => sizes.clone(),
            (None, &Rule::Equal(count)) => vec![length / count; count as usize],
            (None, &Rule::Nearly(count)) => {
                let size = (length + count - 1) / count;
                (0..count).map(|i| size.min(length - i * size)).collect()
            }
        };
        if sizes.iter().sum::<i64>() != length || sizes.iter().any(|&n| n < 0) {
            return Err(LowerError::invalid(format!(
                "an axis of size {length} cannot be split into {sizes:?}"
            )));
        }
        Ok(sizes)
    }
}

impl Op for Split {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Split")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let count = node.output_count() as i64;
        let attribute = if node.version() < 13 { node.ints("split")? } else { None };
        let rule = match attribute {
            Some(sizes) => Rule::Sizes(sizes),
            None if node.version() >= 18 => Rule::Nearly(node.int_or("num_outputs", count)?),
            None => Rule::Equal(count),
        };
        if matches!(rule, Rule::Nearly(n) if n != count) {
            return Err(Decline::invalid("num_outputs is not the number of outputs"));
        }
        Ok(Self { axis: node.int_or("axis", 0)?, rule })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the sizes of the parts are worked out on the host")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let axis = axes::axis(self.axis, x.ndim())?;
        let given = if cx.has_input(1) { Some(cx.ints(1)?) } else { None };
        let sizes = self.sizes(x.shape()[axis].into(), given)?;
        let mut ends: Vec<i32> = Vec::with_capacity(sizes.len());
        for size in &sizes {
            ends.push(ends.last().unwrap_or(&0) + *size as i32);
        }
        ends.pop();
        for (i, part) in x.split(&ends, axis as i32)?.into_iter().enumerate() {
            cx.emit(i, part)?;
        }
        Ok(())
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let Some(Some(x)) = inputs.first() else { return Ok(None) };
        let axis = axes::axis(self.axis, x.dims().len())?;
        let sizes = self.sizes(x.dims()[axis] as i64, given_ints(inputs, 1))?;
        let mut start = 0;
        let mut parts = Vec::with_capacity(sizes.len());
        for size in sizes {
            let range = Slice::from(start..start + size as isize);
            parts.extend(rearrange!(x, |v| Some(v.slice_axis(Axis(axis), range).to_owned())));
            start += size as isize;
        }
        Ok(Some(parts))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        equal: case("Split", 13).x(f32s([2, 6])).attr("axis", 1).outputs(3) => exact();
        default_axis: case("Split", 2).x(f32s([4, 3])).outputs(2) => exact();
        attribute: case("Split", 11).x(f32s([2, 6])).attr("axis", -1).attr("split", vec![1, 3, 2]).outputs(3) => exact();
        input: case("Split", 13).x(f32s([6, 2])).x(i64s(&[1, 5])).outputs(2) => exact();
        input_18: case("Split", 18).x(f32s([6, 2])).c(i64s(&[2, 4])).outputs(2) => exact();
        empty_part: case("Split", 13).x(f32s([6, 2])).c(i64s(&[0, 6])).outputs(2) => exact();
        empty: case("Split", 13).x(f32s([0, 2])).outputs(2) => exact();
        empty_elsewhere: case("Split", 13).x(f32s([4, 0])).outputs(2) => exact();
        uneven: case("Split", 18).x(f32s([7, 2])).attr("num_outputs", 3).outputs(3) => exact();
        even: case("Split", 18).x(f32s([6])).attr("num_outputs", 3).outputs(3) => exact();
        single: case("Split", 18).x(f32s([6])).attr("num_outputs", 1) => exact();
        host: case("Split", 18).x(i64s(&[5, 6, 7])).attr("num_outputs", 2).outputs(2) => exact();
        bool: case("Split", 13).x(random(E::Bool, [4])).outputs(2) => exact();
        f16: case("Split", 13).x(random(E::Float16, [4])).outputs(2) => exact();
        indivisible: case("Split", 13).x(f32s([7])).outputs(2) => fails("cannot be split");
        wrong_sum: case("Split", 13).x(f32s([7])).x(i64s(&[3, 3])).outputs(2) => fails("cannot be split");
        too_many_parts: case("Split", 18).x(f32s([2])).attr("num_outputs", 4).outputs(4) => fails("cannot be split");
    }
}
