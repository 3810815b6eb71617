//! DepthToSpace and SpaceToDepth: blocks of pixels become channels, and back.

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// Either direction.
pub(crate) struct Depth {
    /// The side of a block.
    block: i32,
    /// A block's rows and columns come before the other channels in the depth (DCR), or after them (CRD).
    block_first: bool,
    to_depth: bool,
}

impl Op for Depth {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("DepthToSpace"), OpKey::onnx("SpaceToDepth")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let size = node.int_or("blocksize", 0)?;
        let block = i32::try_from(size).ok().filter(|&b| (1..=1 << 15).contains(&b));
        let block = block.ok_or_else(|| Decline::attribute("blocksize", size))?;
        let block_first = match node.string_or("mode", "DCR")? {
            "DCR" => true,
            "CRD" => false,
            other => return Err(Decline::attribute("mode", other)),
        };
        let to_depth = node.op_type() == "SpaceToDepth";
        Ok(Self { block, block_first, to_depth })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the input's shape is cut into blocks")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let b = self.block;
        let misfit = || LowerError::invalid(format!("{x} cannot be cut into blocks of {b}"));
        let &[n, c, h, w] = x.shape() else { return Err(misfit()) };
        let fits = if self.to_depth { h % b == 0 && w % b == 0 } else { c % (b * b) == 0 };
        if !fits {
            return Err(misfit());
        }
        let (parts, order, shape) = if self.to_depth {
            let order = if self.block_first { [0, 3, 5, 1, 2, 4] } else { [0, 1, 3, 5, 2, 4] };
            ([n, c, h / b, b, w / b, b], order, [n, c * b * b, h / b, w / b])
        } else {
            let channels = c / (b * b);
            let shape = [n, channels, h * b, w * b];
            if self.block_first {
                ([n, b, b, channels, h, w], [0, 3, 4, 1, 5, 2], shape)
            } else {
                ([n, channels, b, b, h, w], [0, 1, 4, 2, 5, 3], shape)
            }
        };
        cx.emit(0, x.reshape(&parts)?.transpose(&order)?.reshape(&shape)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        to_space: case("DepthToSpace", 13).x(f32s([2, 8, 2, 3])).attr("blocksize", 2) => exact();
        to_space_old: case("DepthToSpace", 1).x(f32s([1, 9, 2, 1])).attr("blocksize", 3) => exact();
        to_space_crd: case("DepthToSpace", 11).x(f32s([2, 8, 2, 3])).attr("blocksize", 2).attr("mode", "CRD") => exact();
        to_space_empty: case("DepthToSpace", 13).x(f32s([0, 8, 2, 3])).attr("blocksize", 2) => exact();
        to_space_f16: case("DepthToSpace", 13).x(random(E::Float16, [2, 8, 2, 3])).attr("blocksize", 2) => exact();
        to_space_uint8: case("DepthToSpace", 13).x(random(E::Uint8, [2, 8, 2, 3])).attr("blocksize", 2) => exact();
        to_depth: case("SpaceToDepth", 13).x(f32s([2, 3, 4, 6])).attr("blocksize", 2) => exact();
        to_depth_old: case("SpaceToDepth", 1).x(f32s([1, 1, 3, 6])).attr("blocksize", 3) => exact();
        to_depth_empty: case("SpaceToDepth", 13).x(f32s([1, 0, 4, 6])).attr("blocksize", 2) => exact();
        misfit: case("DepthToSpace", 13).x(f32s([1, 6, 2, 3])).attr("blocksize", 2) => fails("shape [1, 6, 2, 3] cannot be cut");
    }
}
