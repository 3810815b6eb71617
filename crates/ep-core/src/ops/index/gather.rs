//! Gather and GatherElements.

use ndarray::{ArrayD, Axis, IxDyn};

use super::bounds::{checked, wrapped};
use crate::host::{HOST_LIMIT, HostTensor, rearrange};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, axes};

/// Slices of an axis; the indices' shape replaces the axis.
pub(crate) struct Gather {
    axis: i64,
}

impl Op for Gather {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Gather")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(Self { axis: node.int_or("axis", 0)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("indices are checked against the axis's size")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let axis = axes::axis(self.axis, x.ndim())?;
        let indices = checked(cx, 1, x.shape()[axis])?;
        let (before, after) = (&x.shape()[..axis], &x.shape()[axis + 1..]);
        let shape = [before, indices.shape(), after].concat();
        if shape.contains(&0) {
            return cx.emit(0, mlx_safe::zeros(&shape, x.dtype())?);
        }
        cx.emit(0, x.take(&indices, axis as i32)?)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let [Some(x), Some(indices)] = *inputs else { return Ok(None) };
        let axis = axes::axis(self.axis, x.dims().len())?;
        let (before, after) = (&x.dims()[..axis], &x.dims()[axis + 1..]);
        let shape = [before, indices.dims(), after].concat();
        if shape.iter().product::<usize>() > HOST_LIMIT {
            return Ok(None);
        }
        let wanted: Vec<usize> =
            wrapped(indices, x.dims()[axis] as i64)?.into_iter().map(|i| i as usize).collect();
        let y = rearrange!(x, |v| {
            let taken = v.select(Axis(axis), &wanted);
            ArrayD::from_shape_vec(IxDyn(&shape), taken.iter().copied().collect()).ok()
        });
        Ok(y.map(|y| vec![y]))
    }
}

/// One element of an axis for every index.
pub(crate) struct GatherElements {
    axis: i64,
}

impl Op for GatherElements {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("GatherElements")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(Self { axis: node.int_or("axis", 0)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("indices are checked against the axis's size")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let axis = axes::axis(self.axis, x.ndim())?;
        let shape = cx.shape(1)?;
        let fits = |i: usize| i == axis || shape[i] <= x.shape()[i];
        if shape.len() != x.ndim() || !(0..shape.len()).all(fits) {
            return Err(LowerError::invalid(format!(
                "indices of shape {shape:?} do not fit data of shape {:?}",
                x.shape()
            )));
        }
        let indices = checked(cx, 1, x.shape()[axis])?;
        if indices.size() == 0 {
            return cx.emit(0, mlx_safe::zeros(&shape, x.dtype())?);
        }
        // The indices may cover less than the data along the other axes.
        let mut covered = shape.clone();
        covered[axis] = x.shape()[axis];
        let x = if x.shape() == covered {
            x
        } else {
            x.slice(&vec![0; covered.len()], &covered, &vec![1; covered.len()])?
        };
        cx.emit(0, x.take_along_axis(&indices, axis as i32)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        rows: case("Gather", 13).x(f32s([5, 3])).c(i64s(&[4, 0, 0])) => exact();
        columns: case("Gather", 11).x(f32s([5, 3])).x(i64s(&[2, -1])).attr("axis", 1) => exact();
        negative_axis: case("Gather", 11).x(f32s([2, 5, 3])).x(i64s(&[-5, 4])).attr("axis", -2) => exact();
        scalar_index: case("Gather", 13).x(f32s([5, 3])).c(tensor(E::Int64, [], &[2.0])) => exact();
        int32_indices: case("Gather", 1).x(f32s([5, 3])).x(tensor(E::Int32, [2, 2], &[0.0, -1.0, 3.0, 1.0])) => exact();
        many_indices: case("Gather", 13).x(f32s([50, 3])).x(uniform(E::Int64, [20, 9], -50.0, 49.0)) => exact();
        many_int32_indices: case("Gather", 13).x(f32s([50, 3])).x(uniform(E::Int32, [20, 9], -50.0, 49.0)) => exact();
        no_indices: case("Gather", 13).x(f32s([5, 3])).x(i64s(&[])) => exact();
        no_indices_of_nothing: case("Gather", 13).x(f32s([0, 3])).x(i64s(&[])) => exact();
        empty_slices: case("Gather", 13).x(f32s([5, 0])).x(i64s(&[1, 2])) => exact();
        host: case("Gather", 13).x(i64s(&[7, 8, 9])).c(i64s(&[-1])) => exact();
        host_scalar: case("Gather", 13).x(i64s(&[7, 8, 9])).c(tensor(E::Int64, [], &[1.0])) => exact();
        bool: case("Gather", 13).x(random(E::Bool, [90, 3])).c(i64s(&[4, 0, 0])) => exact();
        uint64: case("Gather", 13).x(random(E::Uint64, [9, 3])).c(i64s(&[4, 0, 0])) => exact();
        f16: case("Gather", 13).x(random(E::Float16, [5, 3])).c(i64s(&[4, 0])) => exact();
        bf16: case("Gather", 13).x(random(E::Bfloat16, [5, 3])).c(i64s(&[4, 0])) => exact();
        beyond: case("Gather", 13).x(f32s([5, 3])).x(i64s(&[5])) => fails("out of range");
        beyond_backwards: case("Gather", 13).x(f32s([5, 3])).x(i64s(&[-6])) => fails("out of range");
        beyond_on_the_device: case("Gather", 13).x(f32s([5, 3])).x(uniform(E::Int64, [90], 0.0, 5.0)) => fails("out of range");
        far_beyond_on_the_device: case("Gather", 13).x(f32s([5, 3])).x(uniform(E::Int64, [90], -9e18, 9e18)) => fails("out of range");
        of_nothing: case("Gather", 13).x(f32s([0, 3])).x(i64s(&[0])) => fails("range");

        elements: case("GatherElements", 13).x(f32s([3, 3])).c(tensor(E::Int64, [2, 3], &[1.0, 2.0, 0.0, 2.0, 0.0, -3.0])) => exact();
        elements_columns: case("GatherElements", 11).x(f32s([3, 2])).x(tensor(E::Int32, [3, 4], &[0.0, 1.0, -1.0, -2.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0])).attr("axis", 1) => exact();
        elements_smaller: case("GatherElements", 13).x(f32s([4, 5, 6])).x(uniform(E::Int64, [2, 9, 3], -5.0, 4.0)).attr("axis", -2) => exact();
        elements_many: case("GatherElements", 13).x(random(E::Int64, [9, 30])).x(uniform(E::Int64, [9, 70], -30.0, 29.0)).attr("axis", 1) => exact();
        elements_bool: case("GatherElements", 13).x(random(E::Bool, [9])).x(uniform(E::Int64, [70], -9.0, 8.0)) => exact();
        elements_f16: case("GatherElements", 13).x(random(E::Float16, [9])).x(uniform(E::Int64, [70], -9.0, 8.0)) => exact();
        elements_none: case("GatherElements", 13).x(f32s([3, 2])).x(random(E::Int64, [0, 2])) => exact();
        elements_beyond: case("GatherElements", 13).x(f32s([3])).x(i64s(&[3])) => fails("out of range");
        elements_beyond_on_the_device: case("GatherElements", 13).x(f32s([3])).x(uniform(E::Int64, [90], 0.0, 3.0)) => fails("out of range");
        elements_misfit: case("GatherElements", 13).x(f32s([3, 2])).x(random(E::Int64, [1, 3])) => fails("do not fit");
    }
}
