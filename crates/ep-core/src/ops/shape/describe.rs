//! Operators that tell a tensor's sizes, on the host, without reading a value.

use crate::host::HostTensor;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// Shape and Size.
pub(crate) enum Describe {
    /// The sizes from axis `start` up to axis `end`; negative ones count from the end, all are clamped.
    Shape { start: i64, end: i64 },
    /// The number of elements.
    Size,
}

impl Describe {
    fn of<T: Copy + Into<i64>>(&self, dims: &[T]) -> HostTensor {
        let dims: Vec<i64> = dims.iter().map(|&d| d.into()).collect();
        match *self {
            Self::Size => HostTensor::scalar(dims.iter().product()),
            Self::Shape { start, end } => {
                let rank = dims.len() as i64;
                let clamp = |a: i64| (if a < 0 { a.saturating_add(rank) } else { a }).clamp(0, rank) as usize;
                HostTensor::shape_of(dims.get(clamp(start)..clamp(end)).unwrap_or_default().iter().copied())
            }
        }
    }
}

impl Op for Describe {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Shape"), OpKey::onnx("Size")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        if node.op_type() == "Size" {
            return Ok(Self::Size);
        }
        Ok(Self::Shape { start: node.int_or("start", 0)?, end: node.int_or("end", i64::MAX)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the output is the input's shape")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let described = self.of(&cx.shape(0)?);
        cx.emit_host(0, described);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        shape: case("Shape", 13).x(f32s([2, 3, 4])) => exact();
        shape_scalar: case("Shape", 13).x(f32s([])) => exact();
        shape_empty: case("Shape", 1).x(f32s([0, 3])) => exact();
        shape_start: case("Shape", 15).x(f32s([2, 3, 4])).attr("start", 1) => exact();
        shape_negative: case("Shape", 15).x(f32s([2, 3, 4])).attr("start", -2).attr("end", -1) => exact();
        shape_clamped: case("Shape", 19).x(f32s([2, 3, 4])).attr("start", -9).attr("end", 9) => exact();
        shape_crossed: case("Shape", 15).x(f32s([2, 3, 4])).attr("start", 2).attr("end", 1) => exact();
        shape_bool: case("Shape", 21).x(random(E::Bool, [5])) => exact();
        size: case("Size", 13).x(f32s([2, 3, 4])) => exact();
        size_scalar: case("Size", 1).x(f32s([])) => exact();
        size_empty: case("Size", 13).x(f32s([2, 0])) => exact();
    }
}
