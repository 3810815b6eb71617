//! EyeLike.

use mlx_safe::Dtype;

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The diagonal that has ones.
pub(crate) struct EyeLike {
    k: i64,
}

impl Op for EyeLike {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("EyeLike")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        // The output's declared type says it.
        node.ignore(&["dtype"]);
        Ok(Self { k: node.int_or("k", 0)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the output takes the input's shape")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let shape = cx.shape(0)?;
        let [rows, columns] = shape[..] else {
            return Err(LowerError::invalid(format!("a tensor of shape {shape:?} is not a matrix")));
        };
        let dtype = cx.output_dtype(0)?;
        let outside = self.k >= columns.into() || self.k <= -i64::from(rows);
        let eye = if outside {
            mlx_safe::zeros(&shape, dtype)?
        } else {
            mlx_safe::eye(rows, columns, self.k as i32, Dtype::Int32)?.astype(dtype)?
        };
        cx.emit(0, eye)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        float: case("EyeLike", 9).x(f32s([3, 4])) => exact();
        above: case("EyeLike", 9).x(f32s([3, 4])).attr("k", 2) => exact();
        below: case("EyeLike", 22).x(f32s([4, 3])).attr("k", -1) => exact();
        outside: case("EyeLike", 9).x(f32s([3, 3])).attr("k", 3) => exact();
        typed: case("EyeLike", 9).x(random(E::Int32, [3, 3])).attr("dtype", 1) => exact();
        int64: case("EyeLike", 9).x(random(E::Int64, [3, 3])) => exact();
        empty: case("EyeLike", 9).x(f32s([0, 3])) => exact();
    }
}
