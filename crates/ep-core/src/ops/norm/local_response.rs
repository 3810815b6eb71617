//! `LRN`: each value over a power of the squares of its neighbours in the channel axis.

use mlx_safe::{Array, Dtype, PadMode};

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

pub(crate) struct LocalResponse {
    size: i32,
    alpha: f32,
    beta: f32,
    bias: f32,
}

impl Op for LocalResponse {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("LRN")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        let size = node.int("size")?.and_then(|n| i32::try_from(n).ok()).filter(|n| *n > 0 && n % 2 == 1);
        let size = size.ok_or_else(|| Decline::form("size must be odd"))?;
        if node.input_rank(0).is_some_and(|rank| rank != 4) {
            return Err(Decline::form("the input must be of rank 4"));
        }
        let (alpha, beta) = (node.float_or("alpha", 1e-4)?, node.float_or("beta", 0.75)?);
        Ok(Self { size, alpha, beta, bias: node.float_or("bias", 1.0)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the window is cut out by the number of channels")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let &[_, channels, ..] = x.shape() else {
            return Err(LowerError::invalid("an input of rank 4 is needed"));
        };
        if x.ndim() != 4 {
            return Err(LowerError::invalid("an input of rank 4 is needed"));
        }
        if x.size() == 0 {
            return cx.forward(0, 0);
        }
        // Wider than this on either side, the window sees all channels.
        let reach = (self.size / 2).min(channels - 1);
        let wide = x.astype(Dtype::Float32)?;
        let zero = Array::scalar(0.0f32);
        let padded = wide.square()?.pad(&[1], &[reach], &[reach], &zero, PadMode::Constant)?;
        let (mut start, mut stop, strides) = (vec![0; 4], x.shape().to_vec(), [1; 4]);
        let mut squares = zero;
        for offset in 0..=2 * reach {
            (start[1], stop[1]) = (offset, offset + channels);
            squares = squares.add(&padded.slice(&start, &stop, &strides)?)?;
        }
        let weight = Array::scalar(self.alpha / self.size as f32);
        let base = squares.multiply(&weight)?.add(&Array::scalar(self.bias))?;
        cx.emit(0, wide.divide(&base.power(&Array::scalar(self.beta))?)?.astype(x.dtype())?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        defaults: case("LRN", 13).x(f32s([2, 7, 3, 4])).attr("size", 3) => close(tol::F32);
        all: case("LRN", 7).x(f32s([2, 7, 3, 4])).attr("size", 5).attr("alpha", 0.5_f32).attr("beta", 1.5_f32).attr("bias", 2.0_f32) => close(tol::F32);
        wider_than_the_channels: case("LRN", 13).x(f32s([2, 3, 4, 4])).attr("size", 11).attr("alpha", 0.5_f32) => close(tol::F32);
        one: case("LRN", 13).x(f32s([2, 3, 4, 4])).attr("size", 1).attr("alpha", 0.5_f32) => close(tol::F32);
        f16: case("LRN", 13).x(random(E::Float16, [2, 7, 3, 4])).attr("size", 3).attr("alpha", 0.5_f32) => close(tol::F16);
        no_batch: case("LRN", 13).x(f32s([0, 7, 3, 4])).attr("size", 3) => exact();
        even: case("LRN", 13).x(f32s([2, 7, 3, 4])).attr("size", 2) => declines();
        rank_3: case("LRN", 13).x(f32s([2, 7, 3])).attr("size", 3) => declines();
    }
}
