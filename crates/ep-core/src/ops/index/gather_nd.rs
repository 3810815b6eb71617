//! GatherND.

use mlx_safe::Array;

use super::bounds::{checked_array, positions};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// Slices by tuples of indices, which are the last axis of the indices; the first `batch` axes go in step.
pub(crate) struct GatherNd {
    batch: usize,
}

impl Op for GatherNd {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("GatherND")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let batch = node.int_or("batch_dims", 0)?;
        let batch = usize::try_from(batch).map_err(|_| Decline::invalid(format!("batch_dims = {batch}")))?;
        Ok(Self { batch })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("indices are checked against the axes' sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (x, indices, batch) = (cx.array(0)?, cx.array(1)?, self.batch);
        let misfit = || {
            LowerError::invalid(format!("indices of {indices} do not index {x} with batch_dims = {batch}"))
        };
        let (&width, lead) = indices.shape().split_last().ok_or_else(misfit)?;
        let indexed = batch + width as usize;
        let same_batch = || x.shape().get(..batch) == lead.get(..batch);
        if indexed > x.ndim() || batch > lead.len() || !same_batch() {
            return Err(misfit());
        }
        let rest = &x.shape()[indexed..];
        let shape = [lead, rest].concat();
        // As on ONNX Runtime, slices of nothing may be anywhere.
        if rest.contains(&0) {
            return cx.emit(0, mlx_safe::zeros(&shape, x.dtype())?);
        }
        let mut tuple = Vec::with_capacity(indexed);
        for axis in 0..batch {
            tuple.push(positions(x.shape()[axis], axis, lead.len())?);
        }
        for (column, axis) in (batch..indexed).enumerate() {
            let column = column_of(&indices, column)?;
            tuple.push(checked_array(cx, column, x.shape()[axis])?);
        }
        if shape.contains(&0) {
            return cx.emit(0, mlx_safe::zeros(&shape, x.dtype())?);
        }
        if tuple.is_empty() {
            return cx.emit(0, x.broadcast_to(&shape)?);
        }
        let axes: Vec<i32> = (0..indexed as i32).collect();
        let slice = [&vec![1; indexed][..], rest].concat();
        cx.emit(0, x.gather(&tuple, &axes, &slice)?.reshape(&shape)?)
    }
}

/// Entry `column` of every index tuple.
pub(super) fn column_of(indices: &Array, column: usize) -> Result<Array, LowerError> {
    let rank = indices.ndim();
    let (mut start, mut stop) = (vec![0; rank], indices.shape().to_vec());
    start[rank - 1] = column as i32;
    stop[rank - 1] = column as i32 + 1;
    Ok(indices.slice(&start, &stop, &vec![1; rank])?.squeeze(&[rank as i32 - 1])?)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn pairs(values: &[f64]) -> onnx_graph::Tensor<'static> {
        tensor(E::Int64, [values.len() / 2, 2], values)
    }

    op_cases! {
        elements: case("GatherND", 13).x(f32s([3, 4])).c(pairs(&[0.0, 1.0, 2.0, -1.0])) => exact();
        rows: case("GatherND", 11).x(f32s([3, 4])).x(tensor(E::Int64, [2, 1], &[-1.0, 0.0])) => exact();
        slices: case("GatherND", 13).x(f32s([3, 4, 5])).x(pairs(&[0.0, 1.0, 2.0, -1.0])) => exact();
        one_tuple: case("GatherND", 13).x(f32s([3, 4])).x(i64s(&[1, 2])) => exact();
        batch: case("GatherND", 12).x(f32s([2, 3, 4])).x(tensor(E::Int64, [2, 1], &[1.0, 0.0])).attr("batch_dims", 1) => exact();
        batch_of_many: case("GatherND", 13).x(f32s([2, 9, 4])).x(uniform(E::Int64, [2, 50, 1], -9.0, 8.0)).attr("batch_dims", 1) => exact();
        two_batch_axes: case("GatherND", 13).x(f32s([2, 3, 4])).x(uniform(E::Int64, [2, 3, 5, 1], -4.0, 3.0)).attr("batch_dims", 2) => exact();
        bool: case("GatherND", 13).x(random(E::Bool, [9, 9])).x(uniform(E::Int64, [50, 2], -9.0, 8.0)) => exact();
        int64: case("GatherND", 13).x(random(E::Int64, [9, 9])).x(uniform(E::Int64, [50, 2], -9.0, 8.0)) => exact();
        f16: case("GatherND", 13).x(random(E::Float16, [9, 9])).x(uniform(E::Int64, [50, 2], -9.0, 8.0)) => exact();
        none: case("GatherND", 13).x(f32s([3, 4])).x(random(E::Int64, [0, 2])) => exact();
        empty_slices: case("GatherND", 13).x(f32s([3, 0])).x(tensor(E::Int64, [2, 1], &[1.0, 2.0])) => exact();
        empty_slices_beyond: case("GatherND", 13).x(f32s([3, 0])).x(tensor(E::Int64, [1, 1], &[5.0])) => exact();
        nothing_to_index: case("GatherND", 13).x(f32s([0, 3])).x(tensor(E::Int64, [1, 1], &[0.0])) => fails("no elements");
        misfit: case("GatherND", 13).x(f32s([3])).x(pairs(&[0.0, 4.0])) => fails("indices of shape [1, 2] do not index shape [3]");
        beyond: case("GatherND", 13).x(f32s([3, 4])).x(pairs(&[0.0, 4.0])) => fails("out of range");
        beyond_backwards: case("GatherND", 13).x(f32s([3, 4])).x(pairs(&[-4.0, 0.0])) => fails("out of range");
    }
}
