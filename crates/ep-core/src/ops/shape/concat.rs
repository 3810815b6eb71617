//! Concat.

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
        if cx.input_count() == 1 {
            return cx.forward(0, 0);
        }
        let axis = axes::axis(self.axis, cx.shape(0)?.len())? as i32;
        cx.emit(0, mlx_safe::concatenate(&cx.arrays()?, axis)?)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let Some(Some(first)) = inputs.first() else { return Ok(None) };
        let axis = Axis(axes::axis(self.axis, first.dims().len())?);
        if inputs.iter().flatten().map(|t| t.len()).sum::<usize>() > HOST_LIMIT {
            return Ok(None);
        }
        let misfit = |e: ndarray::ShapeError| LowerError::invalid(format!("the inputs do not fit: {e}"));
        let element = first.element();
        Ok(Some(vec![match first.values() {
            HostValues::Ints(_) => {
                let parts: Vec<_> =
                    inputs.iter().flatten().filter_map(|t| Some(t.as_ints()?.view())).collect();
                HostTensor::ints(element, ndarray::concatenate(axis, &parts).map_err(misfit)?)
            }
            HostValues::Floats(_) => {
                let parts: Vec<_> =
                    inputs.iter().flatten().filter_map(|t| Some(t.as_floats()?.view())).collect();
                HostTensor::floats(element, ndarray::concatenate(axis, &parts).map_err(misfit)?)
            }
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
