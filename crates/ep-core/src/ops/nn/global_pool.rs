//! `GlobalAveragePool`, `GlobalMaxPool` and `GlobalLpPool` (ai.onnx 1+): one value a channel. 16-bit floats are summed in
//! float32.

use mlx_safe::{Array, Dtype, zeros};

use super::average_pool::{norm_order, power, root};
use super::pool::{is_batch_empty, numbers};
use super::window::spatial;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::sums::{mean, sum};
use crate::{Decline, LowerError, NodeRef};

/// Which one.
pub(crate) enum GlobalPool {
    /// The mean.
    Average,
    /// The largest.
    Max,
    /// The p-norm.
    Norm(f32),
}

impl Op for GlobalPool {
    const KEYS: &'static [OpKey] =
        &[OpKey::onnx("GlobalAveragePool"), OpKey::onnx("GlobalMaxPool"), OpKey::onnx("GlobalLpPool")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        if node.input_rank(0).is_some_and(|rank| !(3..=5).contains(&rank)) {
            return Err(Decline::form("not one to three spatial axes"));
        }
        Ok(match node.op_type() {
            "GlobalMaxPool" => Self::Max,
            "GlobalAveragePool" => Self::Average,
            _ if node.version() < 2 => {
                return Err(Decline::form("GlobalLpPool before opset 2 has a float p"));
            }
            _ => Self::Norm(norm_order(node)?),
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("an empty input is handled apart")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let dtype = x.dtype();
        let pixels = spatial(x.shape())?;
        if pixels.len() > 3 {
            return Err(LowerError::invalid(format!("more than three spatial axes in {:?}", x.shape())));
        }
        if is_batch_empty(x.shape())? {
            let shape: Vec<i32> = x.shape()[..2].iter().copied().chain(pixels.iter().map(|_| 1)).collect();
            return cx.emit(0, zeros(&shape, dtype)?);
        }
        let axes: Vec<i32> = (2..x.ndim() as i32).collect();
        let wide = |x: &Array| x.astype(Dtype::Float32);
        let y = match self {
            Self::Max => numbers(&x)?.max(&axes, true)?,
            Self::Average => mean(&wide(&x)?, &axes, true)?,
            Self::Norm(p) => root(&sum(&power(&wide(&x)?, *p)?, &axes, true)?, *p)?,
        };
        cx.emit(0, y.astype(dtype)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        average: case("GlobalAveragePool", 1).x(f32s([2, 3, 7, 8])) => close(tol::F32);
        average_one_axis: case("GlobalAveragePool", 22).x(f32s([2, 3, 7])) => close(tol::F32);
        average_three_axes: case("GlobalAveragePool", 1).x(f32s([2, 3, 4, 5, 6])) => close(tol::F32);
        average_half: case("GlobalAveragePool", 1).x(uniform(E::Float16, [1, 2, 80, 80], 0.0, 60.0)) => close(tol::F16);
        average_bfloat: case("GlobalAveragePool", 22).x(random(E::Bfloat16, [1, 2, 30, 30])) => close(tol::BF16);
        average_of_many: case("GlobalAveragePool", 1).x(uniform(E::Float, [1, 2, 1000, 300], 1.0, 30.0)) => close(tol::F32);
        average_no_batch: case("GlobalAveragePool", 1).x(f32s([0, 3, 7, 8])) => exact();
        average_no_pixels: case("GlobalAveragePool", 1).x(f32s([1, 3, 0])) => fails("empty");
        max: case("GlobalMaxPool", 1).x(f32s([2, 3, 7, 8])) => exact();
        max_half: case("GlobalMaxPool", 22).x(random(E::Float16, [2, 3, 7])) => close(tol::F16);
        max_no_batch: case("GlobalMaxPool", 1).x(f32s([0, 3, 7, 8])) => exact();
        max_no_channels: case("GlobalMaxPool", 1).x(f32s([1, 0, 7])) => fails("empty");
        max_nan: case("GlobalMaxPool", 1).x(tensor(E::Float, [1, 2, 4], &[f64::NAN, 1.0, 2.0, 5.0, -f64::INFINITY, f64::NAN, -f64::INFINITY, 1.0])) => exact();
        max_lowest: case("GlobalMaxPool", 1).x(tensor(E::Float, [1, 1, 2, 2], &[-f64::INFINITY; 4])) => exact();
        four_axes: case("GlobalAveragePool", 1).x(f32s([1, 1, 2, 2, 2, 2])) => declines();
        norm: case("GlobalLpPool", 2).x(f32s([2, 3, 7, 8])) => close(tol::F32);
        norm_three: case("GlobalLpPool", 2).x(f32s([2, 3, 7, 8])).attr("p", 3) => close(tol::F32);
        matrix: case("GlobalMaxPool", 1).x(f32s([2, 3])) => declines();
    }
}
