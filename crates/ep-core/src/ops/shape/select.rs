//! Operators whose output's size depends on values: NonZero and Compress. The positions are found on the host.

use mlx_safe::{Array, Dtype};

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, axes};

/// Which of the two.
pub(crate) enum Select {
    /// The coordinates of all elements that are not zero, one row an axis.
    NonZero,
    /// The slices of `axis`, or the elements, at which the condition is true.
    Compress { axis: Option<i64> },
}

/// The flat positions of what is not zero.
fn positions(x: &Array) -> Result<Vec<usize>, LowerError> {
    let hit = x.astype(Dtype::Bool)?;
    if !hit.has_values() {
        return Err(LowerError::Values);
    }
    let found =
        hit.with_bytes(|bytes| bytes.iter().enumerate().filter(|(_, b)| **b != 0).map(|(i, _)| i).collect())?;
    Ok(found)
}

fn non_zero(x: &Array) -> Result<Array, LowerError> {
    let found = positions(x)?;
    let mut rows: Vec<i64> = Vec::with_capacity(found.len() * x.ndim());
    for axis in 0..x.ndim() {
        let after: usize = x.shape()[axis + 1..].iter().map(|&d| d as usize).product();
        let size = x.shape()[axis] as usize;
        rows.extend(found.iter().map(|&i| (i / after % size) as i64));
    }
    Ok(Array::from_slice(&rows, &[x.ndim() as i32, found.len() as i32])?)
}

impl Op for Select {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Compress"), OpKey::onnx("NonZero")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(if node.op_type() == "NonZero" {
            Self::NonZero
        } else {
            Self::Compress { axis: node.int("axis")? }
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the values of an input decide the output's size")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let Self::Compress { axis } = *self else {
            // ONNX Runtime sees a scalar as a tensor of one element.
            let x = if x.ndim() == 0 { x.reshape(&[1])? } else { x };
            return cx.emit(0, non_zero(&x)?);
        };
        let (x, axis) = match axis {
            Some(axis) => (x.clone(), axes::axis(axis, x.ndim())?),
            None => (x.reshape(&[x.size() as i32])?, 0),
        };
        let length = x.shape()[axis];
        let kept: Vec<i32> =
            positions(&cx.array(1)?)?.into_iter().map(|i| i as i32).filter(|&i| i < length).collect();
        let mut shape = x.shape().to_vec();
        shape[axis] = kept.len() as i32;
        let y = if shape.contains(&0) {
            mlx_safe::zeros(&shape, x.dtype())?
        } else {
            x.take(&Array::from_slice(&kept, &[kept.len() as i32])?, axis as i32)?
        };
        cx.emit(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn bools(values: &[f64]) -> onnx_graph::Tensor<'static> {
        tensor(E::Bool, [values.len()], values)
    }

    op_cases! {
        non_zero: case("NonZero", 9).x(tensor(E::Float, [2, 3], &[0.0, 1.5, f64::NAN, -0.0, 0.0, -2.0])) => exact();
        non_zero_bool: case("NonZero", 13).x(random(E::Bool, [3, 40, 2])) => exact();
        non_zero_int64: case("NonZero", 13).x(random(E::Int64, [30, 4])) => exact();
        non_zero_none: case("NonZero", 13).x(tensor(E::Float, [2, 2], &[0.0; 4])) => exact();
        non_zero_empty: case("NonZero", 13).x(f32s([0, 3])) => exact();
        non_zero_scalar: case("NonZero", 13).x(tensor(E::Float, [], &[2.0])) => exact();
        non_zero_of_nothing: case("NonZero", 13).x(tensor(E::Float, [], &[0.0])) => exact();
        compress: case("Compress", 9).x(f32s([3, 2])).x(bools(&[0.0, 1.0, 1.0])).attr("axis", 0) => exact();
        compress_negative: case("Compress", 11).x(f32s([2, 3])).x(bools(&[1.0, 0.0, 1.0])).attr("axis", -1) => exact();
        compress_flat: case("Compress", 9).x(f32s([2, 3])).c(bools(&[0.0, 1.0, 0.0, 0.0, 1.0])) => exact();
        compress_long: case("Compress", 11).x(f32s([2])).x(bools(&[0.0, 1.0, 1.0])).attr("axis", 0) => exact();
        compress_none: case("Compress", 9).x(f32s([2, 3])).x(bools(&[0.0, 0.0])).attr("axis", 0) => exact();
        compress_empty: case("Compress", 9).x(f32s([0, 3])).x(bools(&[])).attr("axis", 0) => exact();
        compress_int: case("Compress", 9).x(random(E::Int32, [100])).x(random(E::Bool, [100])) => exact();
    }
}
