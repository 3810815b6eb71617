//! `InstanceNormalization` and `GroupNormalization` (18: a scale for each group, 21: for each channel).

use mlx_safe::{Array, Dtype, zeros};

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::sums::standardise;
use crate::{Decline, LowerError, NodeRef};

use super::layer_norm::NORM_MODE;

pub(crate) struct GroupNorm {
    epsilon: f32,
    /// `None` normalises every channel on its own.
    groups: Option<i32>,
    /// Scale and bias have an entry a group, rather than one a channel.
    scale_by_group: bool,
}

impl Op for GroupNorm {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("GroupNormalization"), OpKey::onnx("InstanceNormalization")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        for i in 0..3 {
            node.expect_float(i)?;
        }
        let epsilon = node.float_or("epsilon", 1e-5)?;
        if node.op_type() == "InstanceNormalization" {
            if node.input_rank(0).is_some_and(|rank| rank < 3) {
                return Err(Decline::form("the input has no spatial axes"));
            }
            return Ok(Self { epsilon, groups: None, scale_by_group: false });
        }
        let groups = node.int("num_groups")?.and_then(|n| i32::try_from(n).ok()).filter(|n| *n > 0);
        let groups = groups.ok_or_else(|| Decline::invalid("num_groups is missing or not positive"))?;
        if node.int_or("stash_type", 1)? != 1 {
            return Err(Decline::attribute("stash_type", node.int_or("stash_type", 1)?));
        }
        Ok(Self { epsilon, groups: Some(groups), scale_by_group: node.version() < 21 })
    }

    fn shape_mode(&self) -> ShapeMode {
        NORM_MODE
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let shape = x.shape();
        let least = if self.groups.is_some() { 2 } else { 3 };
        let &[batch, channels, ..] = shape else { return Err(rank_error(shape)) };
        if shape.len() < least {
            return Err(rank_error(shape));
        }
        let groups = self.groups.unwrap_or(channels);
        if groups != 0 && channels % groups != 0 {
            return Err(LowerError::invalid(format!("{channels} channels in {groups} groups")));
        }
        let entries = if self.scale_by_group { groups } else { channels };
        let parameter = |i| {
            let p = cx.array(i)?;
            // As on ONNX Runtime, groups take any shape of that many entries, or of one.
            let fits = match self.groups {
                Some(_) => p.size() == entries as usize || p.size() == 1,
                None => p.shape() == [entries],
            };
            if !fits {
                return Err(LowerError::invalid(format!("input {i} has {p}, not [{entries}]")));
            }
            Ok(p.astype(Dtype::Float32)?.reshape(&[1, p.size() as i32, 1])?)
        };
        let (scale, bias): (Array, Array) = (parameter(1)?, parameter(2)?);
        if x.size() == 0 {
            return cx.emit(0, zeros(shape, x.dtype())?);
        }
        let grouped = x.reshape(&[batch, groups, -1])?;
        let y = standardise(&grouped, true, self.epsilon)?.reshape(&[batch, entries, -1])?;
        cx.emit(0, y.multiply(&scale)?.add(&bias)?.reshape(shape)?.astype(x.dtype())?)
    }
}

fn rank_error(shape: &[i32]) -> LowerError {
    LowerError::invalid(format!("an input of shape {shape:?} has no channels or no spatial axes"))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn instance(x: &[usize]) -> Case {
        case("InstanceNormalization", 6).x(f32s(x)).c(uniform(E::Float, [3], 0.5, 2.0)).c(f32s([3]))
    }

    fn group(opset: i64, x: &[usize], entries: usize) -> Case {
        let x = case("GroupNormalization", opset).x(f32s(x));
        x.c(uniform(E::Float, [entries], 0.5, 2.0)).c(f32s([entries])).attr("num_groups", 3)
    }

    fn half(op: &'static str, opset: i64) -> Case {
        case(op, opset)
            .x(random(E::Float16, [2, 6, 50]))
            .c(random(E::Float16, [6]))
            .c(random(E::Float16, [6]))
    }

    op_cases! {
        instance_images: instance(&[2, 3, 4, 5]) => close(tol::F32_SUM);
        instance_rank_3: instance(&[2, 3, 70]).attr("epsilon", 1e-2_f32) => close(tol::F32_SUM);
        instance_f16: half("InstanceNormalization", 22) => close(tol::F16);
        instance_no_batch: instance(&[0, 3, 4]) => exact();
        instance_of_many: case("InstanceNormalization", 6).x(uniform(E::Float, [1, 3, 300000], 1.0, 9.0)).c(f32s([3])).c(f32s([3])) => close(tol::F32_SUM);
        group_of_many: group(21, &[1, 6, 100000], 6) => close(tol::F32_SUM);
        instance_rank_2: instance(&[2, 3]) => declines();
        by_group: group(18, &[2, 6, 4], 3) => close(tol::F32_SUM);
        by_group_images: group(18, &[2, 6, 4, 5], 3) => close(tol::F32_SUM);
        by_channel: group(21, &[2, 6, 4], 6) => close(tol::F32_SUM);
        by_channel_images: group(21, &[2, 6, 4, 5], 6).attr("epsilon", 1e-2_f32) => close(tol::F32_SUM);
        by_channel_rank_2: group(21, &[2, 6], 6) => close(tol::F32_SUM);
        group_f16: half("GroupNormalization", 21).attr("num_groups", 2) => close(tol::F16);
        one_for_all: group(21, &[2, 6, 4], 1) => close(tol::F32_SUM);
        one_for_all_18: group(18, &[2, 6, 4], 1) => close(tol::F32_SUM);
        scalar_for_all: case("GroupNormalization", 21).x(f32s([2, 6, 4])).c(f32s([])).x(f32s([])).attr("num_groups", 3) => close(tol::F32_SUM);
        column: case("GroupNormalization", 21).x(f32s([2, 6, 4])).c(f32s([6, 1])).x(f32s([1, 6])).attr("num_groups", 3) => close(tol::F32_SUM);
        too_few: group(21, &[2, 6, 4], 3) => fails("input 1 has shape [3], not [6]");
        uneven_groups: case("GroupNormalization", 21).x(f32s([2, 5, 4])).x(f32s([5])).x(f32s([5])).attr("num_groups", 3) => fails("in 3 groups");
    }
}
