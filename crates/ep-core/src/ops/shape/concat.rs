//! Concat.

use mlx_safe::Array;
use ndarray::Axis;

use crate::host::{HOST_LIMIT, HostTensor, HostValues};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, axes};

/// The axis.
pub(crate) struct Concat {
    axis: i64,
}

impl Op for Concat {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Concat")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let axis = node.int("axis")?;
        let axis = axis.or((node.version() < 4).then_some(1));
        Ok(Self { axis: axis.ok_or_else(|| Decline::invalid("axis is missing"))? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let axis = axes::axis(self.axis, cx.shape(0)?.len())?;
        if cx.input_count() == 1 {
            return cx.forward(0, 0);
        }
        // As on ONNX Runtime, what adds nothing need not fit.
        let parts: Vec<Array> =
            cx.arrays()?.into_iter().filter(|part| part.shape().get(axis) != Some(&0)).collect();
        match &parts[..] {
            [] => cx.forward(0, 0),
            [only] => cx.emit(0, only.clone()),
            parts => cx.emit(0, mlx_safe::concatenate(parts, axis as i32)?),
        }
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let given = || inputs.iter().copied().flatten();
        let Some(first) = given().next() else { return Ok(None) };
        let axis = axes::axis(self.axis, first.dims().len())?;
        let parts: Vec<&HostTensor> = given().filter(|part| part.dims().get(axis) != Some(&0)).collect();
        if parts.is_empty() {
            return Ok(Some(vec![first.clone()]));
        }
        if parts.iter().map(|part| part.len()).sum::<usize>() > HOST_LIMIT {
            return Ok(None);
        }
        let misfit = |e: ndarray::ShapeError| LowerError::invalid(format!("the inputs do not fit: {e}"));
        macro_rules! joined {
            ($values:ident, $build:ident) => {{
                let views: Vec<_> = parts.iter().filter_map(|part| Some(part.$values()?.view())).collect();
                HostTensor::$build(first.element(), ndarray::concatenate(Axis(axis), &views).map_err(misfit)?)
            }};
        }
        Ok(Some(vec![match first.values() {
            HostValues::Ints(_) => joined!(as_ints, ints),
            HostValues::Floats(_) => joined!(as_floats, floats),
        }]))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        two: case("Concat", 13).attr("axis", 1).x(f32s([2, 3])).x(f32s([2, 4])) => exact();
        negative: case("Concat", 11).attr("axis", -2).x(f32s([2, 3])).x(f32s([1, 3])).x(f32s([3, 3])) => exact();
        old: case("Concat", 4).attr("axis", 0).x(f32s([2])).c(f32s([3])) => exact();
        single: case("Concat", 13).attr("axis", 0).x(f32s([2, 3])) => exact();
        empty_piece: case("Concat", 13).attr("axis", 1).x(f32s([2, 0])).x(f32s([2, 4])).x(f32s([2, 0])) => exact();
        all_empty: case("Concat", 13).attr("axis", 0).x(f32s([0, 3])).x(f32s([0, 3])) => exact();
        empty_elsewhere: case("Concat", 13).attr("axis", 0).x(f32s([2, 0])).x(f32s([3, 0])) => exact();
        host: case("Concat", 13).attr("axis", 0).x(i64s(&[1, 2])).c(i64s(&[3])).x(i64s(&[])) => exact();
        host_floats: case("Concat", 13).attr("axis", 0).c(f32s([2])).c(f32s([1])) => exact();
        host_and_device: case("Concat", 13).attr("axis", 0).x(random(E::Int64, [100])).c(i64s(&[3])) => exact();
        bool: case("Concat", 13).attr("axis", 0).x(random(E::Bool, [100])).x(random(E::Bool, [3])) => exact();
        uint8: case("Concat", 13).attr("axis", 0).x(random(E::Uint8, [100])).x(random(E::Uint8, [3])) => exact();
        f16: case("Concat", 13).attr("axis", 0).x(random(E::Float16, [2])).x(random(E::Float16, [3])) => exact();
        bf16: case("Concat", 13).attr("axis", 0).x(random(E::Bfloat16, [2])).x(random(E::Bfloat16, [3])) => exact();
        misfit: case("Concat", 13).attr("axis", 0).x(f32s([2, 3])).x(f32s([2, 4])) => fails("concatenate");
    }
}
