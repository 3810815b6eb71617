//! `BatchNormalization` at opsets 7, 9, 14 and 15, with running statistics where `training_mode` is set.

use mlx_safe::{Array, Dtype};

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::sums::{centre, mean};
use crate::{Decline, LowerError, NodeRef};

pub(crate) struct BatchNorm {
    epsilon: f32,
    /// The weight of the old running statistics, if the batch's own are used.
    training: Option<f32>,
    /// One parameter a channel, rather than one an element (opset 7 only).
    spatial: bool,
}

impl Op for BatchNorm {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("BatchNormalization")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        for i in 0..5 {
            node.expect_float(i)?;
        }
        if node.input_rank(0) == Some(0) {
            return Err(Decline::invalid("a scalar has no channels"));
        }
        let trains = node.version() >= 14 && node.flag_or("training_mode", false)?;
        if !trains && (1..node.output_count()).any(|i| node.has_output(i)) {
            return Err(Decline::form("statistics are an output of training only"));
        }
        let momentum = node.float_or("momentum", 0.9)?;
        let spatial = node.version() >= 9 || node.flag_or("spatial", true)?;
        let training = trains.then_some(momentum);
        Ok(Self { epsilon: node.float_or("epsilon", 1e-5)?, training, spatial })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the parameters are reshaped to the input's rank")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let rank = x.ndim();
        // A vector is one channel.
        let (wanted, channels) = match (rank, self.spatial) {
            (0, _) => return Err(LowerError::invalid("a scalar has no channels")),
            (1, _) => (&[1][..], 0),
            (_, true) => (&x.shape()[1..2], 1),
            (_, false) => (&x.shape()[1..], 1),
        };
        let mut broadcast = vec![1; rank];
        broadcast[channels..channels + wanted.len()].copy_from_slice(wanted);
        let parameters = (1..5)
            .map(|i| {
                let p = cx.array(i)?;
                if p.shape() != wanted {
                    let detail = format!("input {i} is {:?} for an input {:?}", p.shape(), x.shape());
                    return Err(LowerError::invalid(detail));
                }
                Ok(p.astype(Dtype::Float32)?.reshape(&broadcast)?)
            })
            .collect::<Result<Vec<Array>, LowerError>>()?;
        let [scale, bias, mean_given, var_given] = parameters.as_slice() else {
            return Err(LowerError::Bug("four parameters were read".into()));
        };
        let wide = x.astype(Dtype::Float32)?;
        let (mean, var) = match self.training {
            None => (mean_given.clone(), var_given.clone()),
            Some(momentum) => {
                let axes: Vec<i32> = (0..rank as i32).filter(|&a| a != 1).collect();
                let (now_mean, above) = centre(&wide, &axes)?;
                let now_var = mean(&above.square()?, &axes, true)?;
                for (i, old, now) in [(1, mean_given, &now_mean), (2, var_given, &now_var)] {
                    let (kept, new) = (Array::scalar(momentum), Array::scalar(1.0 - momentum));
                    let running = old.multiply(&kept)?.add(&now.multiply(&new)?)?.reshape(wanted)?;
                    cx.emit(i, running.astype(cx.array(i + 2)?.dtype())?)?;
                }
                (now_mean, now_var)
            }
        };
        let factor = var.add(&Array::scalar(self.epsilon))?.rsqrt()?.multiply(scale)?;
        let offset = bias.subtract(&mean.multiply(&factor)?)?;
        cx.emit(0, wide.multiply(&factor)?.add(&offset)?.astype(x.dtype())?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn norm(opset: i64, x: &[usize], p: &[usize]) -> Case {
        let parameter = |low, high| uniform(E::Float, p, low, high);
        let x = case("BatchNormalization", opset).x(f32s(x));
        x.c(parameter(0.5, 2.0)).c(parameter(-1.0, 1.0)).c(parameter(-0.5, 0.5)).c(parameter(0.3, 2.0))
    }

    fn half(element: E) -> Case {
        let parameter = |low, high| uniform(element, [3], low, high);
        let x = case("BatchNormalization", 15).x(random(element, [2, 3, 5]));
        x.c(parameter(0.5, 2.0)).c(parameter(-1.0, 1.0)).c(parameter(-0.5, 0.5)).c(parameter(0.3, 2.0))
    }

    op_cases! {
        images: norm(15, &[2, 3, 4, 5], &[3]) => close(tol::F32);
        rank_2: norm(15, &[2, 3], &[3]) => close(tol::F32);
        rank_3: norm(14, &[2, 3, 7], &[3]).attr("epsilon", 1e-2_f32) => close(tol::F32);
        volumes: norm(9, &[2, 3, 2, 2, 2], &[3]) => close(tol::F32);
        opset_7: norm(7, &[2, 3, 4], &[3]).attr("spatial", 1) => close(tol::F32);
        opset_7_by_element: norm(7, &[2, 3, 4], &[3, 4]).attr("spatial", 0) => close(tol::F32);
        f16: half(E::Float16) => close(tol::F16);
        bf16: half(E::Bfloat16) => close(tol::BF16);
        no_batch: norm(15, &[0, 3, 4], &[3]) => exact();
        nothing_spatial: norm(15, &[2, 3, 0], &[3]) => exact();
        training: norm(14, &[2, 3, 4, 5], &[3]).attr("training_mode", 1).outputs(3) => close(tol::F32_SUM);
        training_15: norm(15, &[4, 3], &[3]).attr("training_mode", 1).attr("momentum", 0.5_f32).outputs(3) => close(tol::F32_SUM);
        statistics_of_opset_9: norm(9, &[2, 3, 4], &[3]).outputs(5) => declines();
        vector: norm(15, &[5], &[1]) => close(tol::F32);
        vector_of_opset_7: norm(7, &[5], &[1]).attr("spatial", 0) => close(tol::F32);
        vector_in_training: norm(15, &[5], &[1]).attr("training_mode", 1).outputs(3) => close(tol::F32_SUM);
        vector_of_three_channels: case("BatchNormalization", 15).x(f32s([3])).x(f32s([3])).x(f32s([3])).x(f32s([3])).x(f32s([3])) => fails("input 1");
        scalar: norm(15, &[], &[1]) => declines();
    }
}
