//! Transpose.

use crate::host::{HostTensor, rearrange, shape_i32};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, axes};

/// The permutation; without one the axes are reversed.
pub(crate) struct Transpose(Option<Vec<i64>>);

impl Transpose {
    fn permutation(&self, rank: usize) -> Result<Vec<usize>, LowerError> {
        let Some(list) = &self.0 else { return Ok((0..rank).rev().collect()) };
        if list.len() != rank {
            return Err(LowerError::invalid(format!("perm {list:?} for a tensor of rank {rank}")));
        }
        axes::axes(list, rank)
    }
}

impl Op for Transpose {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Transpose")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(Self(node.ints("perm")?))
    }

    fn shape_mode(&self) -> ShapeMode {
        match self.0 {
            Some(_) => ShapeMode::Shapeless,
            None => ShapeMode::Keyed("the input's rank decides the permutation"),
        }
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let axes = shape_i32(&self.permutation(x.ndim())?)?;
        cx.emit(0, x.transpose(&axes)?)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let Some(Some(x)) = inputs.first() else { return Ok(None) };
        let axes = self.permutation(x.dims().len())?;
        let y = rearrange!(x, |v| Some(v.view().permuted_axes(axes.as_slice()).to_owned()));
        Ok(y.map(|y| vec![y]))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        matrix: case("Transpose", 13).x(f32s([2, 3])) => exact();
        reversed: case("Transpose", 1).x(f32s([2, 3, 4])) => exact();
        permuted: case("Transpose", 13).x(f32s([2, 3, 4, 5])).attr("perm", vec![0, 2, 3, 1]) => exact();
        identical: case("Transpose", 21).x(f32s([2, 3])).attr("perm", vec![0, 1]) => exact();
        scalar: case("Transpose", 13).x(f32s([])) => exact();
        empty: case("Transpose", 13).x(f32s([0, 3, 2])) => exact();
        bool: case("Transpose", 13).x(random(E::Bool, [3, 2])) => exact();
        uint64: case("Transpose", 13).x(random(E::Uint64, [3, 2])) => exact();
        int8: case("Transpose", 13).x(random(E::Int8, [30, 20])) => exact();
        f16: case("Transpose", 13).x(random(E::Float16, [3, 2])) => exact();
        host: case("Transpose", 13).x(random(E::Int64, [3, 2])) => exact();
    }
}
