//! OneHot.

use mlx_safe::Dtype;

use crate::host::{HostTensor, shape_i32};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, axes};

/// The new axis.
pub(crate) struct OneHot {
    axis: i64,
}

impl Op for OneHot {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("OneHot")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(Self { axis: node.int_or("axis", -1)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the depth is an output's size")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let depth = depth(cx.host(1)?)?;
        let indices = cx.array(0)?.astype(Dtype::Int64)?;
        if indices.ndim() == 0 {
            return Err(LowerError::invalid("the indices are a scalar, where at least one axis is needed"));
        }
        let rank = indices.ndim() + 1;
        let axis = axes::axis(self.axis, rank)?;
        let mut shape = indices.shape().to_vec();
        shape.insert(axis, depth);
        cx.afford(&shape, Dtype::Int64)?;
        let values = cx.array(2)?;
        if values.shape() != [2] {
            return Err(LowerError::invalid("values are not the pair off, on"));
        }
        let off = values.slice(&[0], &[1], &[1])?.reshape(&[])?;
        let on = values.slice(&[1], &[2], &[1])?.reshape(&[])?;
        let mut positions = vec![1; rank];
        positions[axis] = depth;
        let hot = mlx_safe::arange(0.0, depth.into(), 1.0, Dtype::Int64)?.reshape(&positions)?;
        let from_end = hot.subtract(&mlx_safe::Array::scalar(i64::from(depth)))?;
        let indices = indices.expand_dims(&[axis as i32])?;
        let hit = indices.equal(&hot)?.logical_or(&indices.equal(&from_end)?)?;
        cx.emit(0, mlx_safe::where_(&hit, &on, &off)?)
    }
}

fn depth(tensor: &HostTensor) -> Result<i32, LowerError> {
    match tensor.to_floats()[..] {
        // A depth of a float type is cut.
        [depth] if depth >= 1.0 => Ok(shape_i32(&[depth as i64])?[0]),
        _ => Err(LowerError::invalid("the depth is not one positive number")),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn depth(value: f64) -> onnx_graph::Tensor<'static> {
        tensor(E::Int64, [], &[value])
    }

    op_cases! {
        plain: case("OneHot", 11).x(i64s(&[1, 0, 3])).c(depth(4.0)).c(tensor(E::Float, [2], &[0.0, 1.0])) => exact();
        outside_is_off: case("OneHot", 11).x(i64s(&[5, -6, 4])).c(depth(5.0)).c(tensor(E::Float, [2], &[2.0, 3.0])) => exact();
        negative: case("OneHot", 11).x(i64s(&[-1, -5, 2])).x(depth(5.0)).c(tensor(E::Float, [2], &[2.0, 3.0])) => exact();
        negative_9: case("OneHot", 9).x(i64s(&[-1, -5, 2])).x(depth(5.0)).c(tensor(E::Float, [2], &[2.0, 3.0])) => exact();
        axis_0: case("OneHot", 11).x(uniform(E::Int64, [2, 3], 0.0, 3.0)).x(depth(4.0)).x(i64s(&[5, 7])).attr("axis", 0) => exact();
        axis_negative: case("OneHot", 11).x(uniform(E::Int64, [2, 3], 0.0, 3.0)).x(depth(4.0)).x(i64s(&[5, 7])).attr("axis", -2) => exact();
        float_indices: case("OneHot", 11).x(tensor(E::Float, [3], &[0.0, 2.0, -1.0])).c(tensor(E::Float, [1], &[3.0])).c(tensor(E::Float, [2], &[0.0, 1.0])) => exact();
        int32: case("OneHot", 11).x(tensor(E::Int32, [3], &[0.0, 2.0, -1.0])).c(tensor(E::Int32, [1], &[3.0])).c(tensor(E::Float, [2], &[0.0, 1.0])) => exact();
        empty: case("OneHot", 11).x(i64s(&[])).c(depth(3.0)).c(tensor(E::Float, [2], &[0.0, 1.0])) => exact();
        scalar_indices: case("OneHot", 11).x(tensor(E::Int64, [], &[1.0])).x(depth(3.0)).c(tensor(E::Float, [2], &[0.0, 1.0])) => fails("scalar");
        too_deep: case("OneHot", 11).x(i64s(&[1])).x(depth(2f64.powi(40))).c(tensor(E::Float, [2], &[0.0, 1.0])) => fails("beyond MLX");
        no_depth: case("OneHot", 11).x(i64s(&[1])).x(depth(0.0)).c(tensor(E::Float, [2], &[0.0, 1.0])) => fails("positive");
    }
}
