//! Trilu.

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// Keeps the upper or the lower triangle of the last two axes.
pub(crate) struct Trilu {
    upper: bool,
}

impl Op for Trilu {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Trilu")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(Self { upper: node.flag_or("upper", true)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the diagonal is an input, and the mask takes the matrix's shape")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let k = cx.optional_ints(1)?.and_then(|k| k.first().copied()).unwrap_or(0);
        let &[.., rows, columns] = x.shape() else {
            return Err(LowerError::invalid(format!("a tensor of rank {} has no triangles", x.ndim())));
        };
        let k = k.clamp(-i64::from(rows) - 1, i64::from(columns) + 1) as i32;
        cx.emit(0, if self.upper { x.triu(k)? } else { x.tril(k)? })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn k(value: i64) -> onnx_graph::Tensor<'static> {
        tensor(E::Int64, [], &[value as f64])
    }

    op_cases! {
        upper: case("Trilu", 14).x(f32s([3, 4])) => exact();
        lower: case("Trilu", 14).x(f32s([2, 4, 3])).attr("upper", 0) => exact();
        upper_k: case("Trilu", 14).x(f32s([4, 4])).c(k(1)) => exact();
        lower_k: case("Trilu", 14).x(f32s([4, 4])).x(k(-2)).attr("upper", 0) => exact();
        far_k: case("Trilu", 14).x(f32s([4, 4])).x(k(99)) => exact();
        far_k_below: case("Trilu", 14).x(f32s([4, 4])).x(k(-99)).attr("upper", 0) => exact();
        nan_goes: case("Trilu", 14).x(tensor(E::Float, [2, 2], &[f64::NAN; 4])) => exact();
        int64: case("Trilu", 14).x(random(E::Int64, [9, 9])) => exact();
        bool: case("Trilu", 14).x(random(E::Bool, [9, 9])) => exact();
        empty: case("Trilu", 14).x(f32s([0, 3])) => exact();
        empty_batch: case("Trilu", 14).x(f32s([0, 3, 3])) => exact();
    }
}
