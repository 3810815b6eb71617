//! Operators that repeat a tensor.

use ndarray::{Axis, IxDyn};

use crate::host::{HostTensor, given_ints, is_small, rearrange, shape_i32};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// Expand and Tile.
pub(crate) enum Expand {
    /// Both the tensor and the shape that is asked for broadcast.
    Expand,
    /// So many times along each axis.
    Tile,
}

impl Expand {
    fn target(&self, from: &[i64], argument: &[i64]) -> Result<Vec<i64>, LowerError> {
        let misfit =
            |what: &str| LowerError::invalid(format!("shape {from:?} cannot be {what} {argument:?}"));
        if argument.iter().any(|&n| n < 0) {
            return Err(misfit("repeated by a negative number, as in"));
        }
        match self {
            Self::Tile if argument.len() == from.len() => {
                Ok(from.iter().zip(argument).map(|(&d, &n)| d.saturating_mul(n)).collect())
            }
            Self::Tile => Err(misfit("tiled by")),
            Self::Expand => {
                let rank = from.len().max(argument.len());
                let size = |dims: &[i64], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
                (0..rank)
                    .map(|i| match (size(from, i), size(argument, i)) {
                        (a, b) if a == b || b == 1 => Ok(a),
                        (1, b) => Ok(b),
                        _ => Err(misfit("broadcast to")),
                    })
                    .collect()
            }
        }
    }
}

impl Op for Expand {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Expand"), OpKey::onnx("Tile")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        match node.op_type() {
            "Tile" if node.version() < 6 => Err(Decline::form("Tile before opset 6 is not supported")),
            "Tile" => Ok(Self::Tile),
            _ => Ok(Self::Expand),
        }
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the new shape is worked out on the host")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let from: Vec<i64> = x.shape().iter().map(|&d| d.into()).collect();
        let argument = cx.ints(1)?;
        let to = shape_i32(&self.target(&from, &argument)?)?;
        let y = match self {
            _ if to.contains(&0) => mlx_safe::zeros(&to, x.dtype())?,
            Self::Expand => x.broadcast_to(&to)?,
            Self::Tile => x.tile(&shape_i32(&argument)?)?,
        };
        cx.emit(0, y)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let (Some(Some(x)), Some(argument)) = (inputs.first(), given_ints(inputs, 1)) else {
            return Ok(None);
        };
        let from: Vec<i64> = x.dims().iter().map(|&d| d as i64).collect();
        let to: Vec<usize> = self.target(&from, &argument)?.into_iter().map(|d| d as usize).collect();
        if !is_small(&to) {
            return Ok(None);
        }
        let y = match self {
            Self::Expand => rearrange!(x, |v| Some(v.broadcast(IxDyn(&to))?.to_owned())),
            Self::Tile => rearrange!(x, |v| {
                let mut v = v.clone();
                for (axis, &size) in to.iter().enumerate() {
                    let from = v.shape()[axis];
                    let again: Vec<usize> = (0..size).map(|i| i % from.max(1)).collect();
                    v = v.select(Axis(axis), &again);
                }
                Some(v)
            }),
        };
        Ok(y.map(|y| vec![y]))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        expand: case("Expand", 13).x(f32s([3, 1])).c(i64s(&[2, 1, 6])) => exact();
        expand_shape_smaller: case("Expand", 8).x(f32s([2, 3, 4])).x(i64s(&[1, 4])) => exact();
        expand_scalar: case("Expand", 13).x(f32s([])).c(i64s(&[2, 3])) => exact();
        expand_to_scalar: case("Expand", 13).x(f32s([2])).c(i64s(&[])) => exact();
        expand_to_empty: case("Expand", 13).x(f32s([1, 3])).x(i64s(&[0, 3])) => exact();
        expand_of_empty: case("Expand", 13).x(f32s([0, 1])).x(i64s(&[1, 3])) => exact();
        expand_host: case("Expand", 13).x(i64s(&[5])).x(i64s(&[3])) => exact();
        expand_large: case("Expand", 13).x(random(E::Int64, [1])).x(i64s(&[30, 50])) => exact();
        expand_bool: case("Expand", 13).x(random(E::Bool, [3, 1])).c(i64s(&[1, 400])) => exact();
        expand_f16: case("Expand", 13).x(random(E::Float16, [3, 1])).c(i64s(&[1, 4])) => exact();
        expand_beyond: case("Expand", 13).x(f32s([1])).x(i64s(&[1 << 20, 1 << 20, 1 << 20])) => fails("more than");
        tile_beyond: case("Tile", 13).x(f32s([1, 2])).x(i64s(&[1 << 30, 1 << 20])) => fails("more than");
        tile_beyond_mlx: case("Tile", 13).x(f32s([1, 2])).x(i64s(&[1 << 40, 1])) => fails("beyond MLX");
        tile_host_beyond: case("Tile", 13).x(i64s(&[1, 2])).x(i64s(&[1 << 40])) => fails("beyond MLX");
        expand_wide_empty: case("Expand", 13).x(tensor(E::Int64, [1, 0], &[])).x(i64s(&[1 << 30, 1])) => exact();
        expand_misfit: case("Expand", 13).x(f32s([3, 2])).x(i64s(&[3, 4])) => fails("cannot be broadcast");
        tile: case("Tile", 13).x(f32s([2, 3])).c(i64s(&[2, 3])) => exact();
        tile_old: case("Tile", 6).x(f32s([2, 3, 4])).x(i64s(&[1, 2, 1])) => exact();
        tile_zero: case("Tile", 13).x(f32s([2, 3])).x(i64s(&[2, 0])) => exact();
        tile_empty: case("Tile", 13).x(f32s([0, 3])).x(i64s(&[2, 2])) => exact();
        tile_scalar: case("Tile", 13).x(f32s([])).x(i64s(&[])) => exact();
        tile_host: case("Tile", 13).x(i64s(&[5, 6])).c(i64s(&[3])) => exact();
        tile_host_empty: case("Tile", 13).x(i64s(&[])).c(i64s(&[3])) => exact();
        tile_bool: case("Tile", 13).x(random(E::Bool, [100])).c(i64s(&[30])) => exact();
        tile_f16: case("Tile", 13).x(random(E::Float16, [100])).c(i64s(&[3])) => exact();
        tile_wrong_rank: case("Tile", 13).x(f32s([2, 3])).x(i64s(&[2])) => fails("cannot be tiled");
    }
}
