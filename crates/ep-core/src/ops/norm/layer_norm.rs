//! `LayerNormalization` (17+, and 1 as ONNX Runtime's own), `SimplifiedLayerNormalization` and `RMSNormalization` (23).
//!
//! One kernel where scale and bias have the shape of what is normalised: MLX's on GPUs, ours on CPUs for what is large. Else
//! they are applied after it.

use kernels_metal::rows::Row;
use mlx_safe::{Array, Dtype, fast, zeros};

use crate::axes::axis;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::sums::{centre, mean, on_gpu, over_deviation, standardise};
use crate::{Decline, LowerError, NodeRef};

pub(crate) struct LayerNorm {
    norm: Norm,
    axis: i64,
    /// How many elements are normalised together, where a model that spells the operator counts on it.
    count: Option<i64>,
}

impl Op for LayerNorm {
    const KEYS: &'static [OpKey] = &[
        OpKey::onnx("LayerNormalization"),
        OpKey::onnx("RMSNormalization"),
        OpKey::onnx("SimplifiedLayerNormalization"),
        OpKey::microsoft("SimplifiedLayerNormalization"),
    ];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        // ONNX asks for a scale; nodes that the rewrite rules put in place of others may have none.
        if node.has_input(1) {
            node.expect_float(1)?;
        }
        let centred = node.op_type() == "LayerNormalization";
        match (centred, node.has_input(2)) {
            (true, true) => _ = node.expect_float(2)?,
            (false, true) => return Err(Decline::invalid("only LayerNormalization has a bias")),
            (_, false) => {}
        }
        if node.int_or("stash_type", 1)? != 1 {
            return Err(Decline::attribute("stash_type", node.int_or("stash_type", 1)?));
        }
        let norm = Norm {
            centred,
            epsilon: node.float_or("epsilon", 1e-5)?,
            as_spelled: node.int_or("as_spelled", 0)? != 0,
        };
        Ok(Self { norm, axis: node.int_or("axis", -1)?, count: node.int("count")? })
    }

    fn shape_mode(&self) -> ShapeMode {
        NORM_MODE
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let at = axis(self.axis, x.ndim())?;
        let count: i64 = x.shape()[at..].iter().map(|&n| i64::from(n)).product();
        if let Some(wanted) = self.count.filter(|wanted| *wanted != count) {
            return Err(LowerError::invalid(format!(
                "normalises {count} elements, not the {wanted} of the model"
            )));
        }
        let (scale, bias) = (cx.optional_array(1)?, cx.optional_array(2)?);
        let statistics = self.norm.emit_statistics(cx, &x, at)?;
        let y = match statistics.filter(|_| self.norm.as_spelled) {
            Some(Statistics { above, inverse }) => {
                scaled(above.multiply(&inverse)?, scale.as_ref(), bias.as_ref())?
            }
            None => self.norm.apply(&x, at, scale.as_ref(), bias.as_ref())?,
        };
        cx.emit(0, y.astype(cx.output_dtype(0)?)?)
    }
}

/// How the norms that lower to [`Norm`] may be compiled.
pub(super) const NORM_MODE: ShapeMode = ShapeMode::Keyed("the normalised axes are merged");

/// A normalisation over an axis and all that follow it.
pub(super) struct Norm {
    /// Whether the mean is taken off first.
    pub(super) centred: bool,
    pub(super) epsilon: f32,
    /// Whether a rewrite rule put it in place of smaller operators. Where there is no kernel for it, it is then computed in
    /// no more operations than they would be: without the correction of the mean.
    pub(super) as_spelled: bool,
}

impl Norm {
    /// Normalises `x` from `axis` on, then multiplies by `scale` and adds `bias`, which broadcast to `x`. The result is as
    /// wide as the widest of the three, or float32.
    pub(super) fn apply(
        &self,
        x: &Array,
        axis: usize,
        scale: Option<&Array>,
        bias: Option<&Array>,
    ) -> Result<Array, LowerError> {
        let shape = x.shape();
        let size: i32 = shape[axis..].iter().product();
        // What a graph spells makes nothing of nothing.
        if size == 0 && !self.as_spelled {
            return Err(LowerError::invalid(format!(
                "nothing to normalise in {shape:?} from axis {axis} on"
            )));
        }
        if let Some(p) = scale.into_iter().chain(bias).find(|p| !broadcasts(p.shape(), shape)) {
            return Err(LowerError::invalid(format!("scale or bias {:?} for {shape:?}", p.shape())));
        }
        if x.size() == 0 {
            return Ok(zeros(shape, x.dtype())?);
        }
        let fits = |p: &Array| ones_cut(p.shape()).eq(ones_cut(&shape[axis..]));
        let rows = x.reshape(&[-1, size])?;
        if scale.is_none_or(fits) && bias.is_none_or(fits) {
            let flat = |p: Option<&Array>| p.map(|p| p.reshape(&[size])).transpose();
            let (scale, bias) = (flat(scale)?, flat(bias)?);
            if let Some(y) = self.fused(&rows, scale.as_ref(), bias.as_ref())? {
                return Ok(y.reshape(shape)?);
            }
        }
        scaled(self.standardised(&rows)?.reshape(shape)?, scale, bias)
    }

    fn standardised(&self, rows: &Array) -> Result<Array, LowerError> {
        if !self.as_spelled || on_gpu()? {
            return standardise(rows, self.centred, self.epsilon);
        }
        let rows = rows.astype(Dtype::Float32)?;
        let above = if self.centred { rows.subtract(&mean(&rows, &[1], true)?)? } else { rows };
        over_deviation(&above, self.epsilon)
    }

    /// All of it in one kernel, where there is one.
    fn fused(
        &self,
        rows: &Array,
        scale: Option<&Array>,
        bias: Option<&Array>,
    ) -> mlx_safe::Result<Option<Array>> {
        let Self { centred, epsilon, .. } = *self;
        if !on_gpu()? {
            return Row::Norm { centred, epsilon }.apply(rows, scale, bias);
        }
        Ok(Some(if centred {
            fast::layer_norm(rows, scale, bias, epsilon)?
        } else {
            fast::rms_norm(rows, scale, epsilon)?
        }))
    }

    /// Makes the outputs after the first: the mean (if it is taken off) and one over the standard deviation. Gives what they
    /// are made from, if any is wanted.
    pub(super) fn emit_statistics(
        &self,
        cx: &mut Lowering<'_>,
        x: &Array,
        axis: usize,
    ) -> Result<Option<Statistics>, LowerError> {
        let deviation = if self.centred { 2 } else { 1 };
        if !cx.wants(1) && !cx.wants(deviation) {
            return Ok(None);
        }
        let axes: Vec<i32> = (axis as i32..x.ndim() as i32).collect();
        let wide = x.astype(Dtype::Float32)?;
        let above = if self.centred {
            let (mean, above) = centre(&wide, &axes)?;
            if cx.wants(1) {
                cx.emit(1, mean.astype(cx.output_dtype(1)?)?)?;
            }
            above
        } else {
            wide
        };
        let power = mean(&above.square()?, &axes, true)?;
        let inverse = power.add(&Array::scalar(self.epsilon))?.rsqrt()?;
        if cx.wants(deviation) {
            cx.emit(deviation, inverse.astype(cx.output_dtype(deviation)?)?)?;
        }
        Ok(Some(Statistics { above, inverse }))
    }
}

/// What x is above its mean, if that is taken off, and one over its deviation; in float32.
pub(super) struct Statistics {
    above: Array,
    inverse: Array,
}

/// `y` times `scale` plus `bias`.
fn scaled(y: Array, scale: Option<&Array>, bias: Option<&Array>) -> Result<Array, LowerError> {
    let y = scale.map_or_else(|| Ok(y.clone()), |scale| y.multiply(scale))?;
    Ok(bias.map_or_else(|| Ok(y.clone()), |bias| y.add(bias))?)
}

/// Whether `from` broadcasts to `to` without changing it.
fn broadcasts(from: &[i32], to: &[i32]) -> bool {
    from.len() <= to.len() && from.iter().rev().zip(to.iter().rev()).all(|(f, t)| f == t || *f == 1)
}

fn ones_cut(shape: &[i32]) -> impl Iterator<Item = &i32> {
    shape.iter().skip_while(|&&n| n == 1)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn layer(opset: i64) -> Case {
        case("LayerNormalization", opset).x(f32s([2, 3, 8]))
    }

    fn half(element: E) -> Case {
        case("LayerNormalization", 17).x(random(element, [4, 64]))
    }

    fn simplified() -> Case {
        case("SimplifiedLayerNormalization", 17)
    }

    op_cases! {
        last_axis: layer(17).c(f32s([8])).c(uniform(E::Float, [8], 0.0, 1.0)) => close(tol::F32_SUM);
        no_bias: layer(17).c(f32s([8])) => close(tol::F32_SUM);
        all_outputs: layer(17).c(f32s([8])).c(f32s([8])).outputs(3) => close(tol::F32_SUM);
        many_rows: case("LayerNormalization", 17).x(f32s([5, 30, 41])).c(f32s([41])).c(f32s([41])).outputs(3) => close(tol::F32_SUM);
        many_rows_axis_1: case("LayerNormalization", 17).x(f32s([50, 3, 41])).c(f32s([3, 41])).attr("axis", 1) => close(tol::F32_SUM);
        many_rows_f16: case("LayerNormalization", 17).x(random(E::Float16, [40, 64])).c(random(E::Float16, [64])) => close(tol::F16);
        many_rows_rms: case("RMSNormalization", 23).x(f32s([50, 3, 41])).c(f32s([41])) => close(tol::F32_SUM);
        axis_1: layer(17).c(f32s([3, 8])).c(f32s([3, 8])).attr("axis", 1).outputs(3) => close(tol::F32_SUM);
        axis_0: layer(17).c(f32s([2, 3, 8])).attr("axis", -3).outputs(3) => close(tol::F32_SUM);
        own_opset_1: layer(11).c(f32s([8])).c(f32s([8])).attr("epsilon", 1e-3_f32).outputs(3) => close(tol::F32_SUM);
        scale_of_one: layer(17).c(f32s([1])).c(f32s([8])) => close(tol::F32_SUM);
        scale_of_rank_0: layer(17).c(f32s([])) => close(tol::F32_SUM);
        scale_broadcasts: layer(17).c(f32s([3, 1])).c(f32s([8])).attr("axis", 1) => close(tol::F32_SUM);
        scale_with_leading_ones: layer(17).c(f32s([1, 1, 8])) => close(tol::F32_SUM);
        scale_by_row: layer(17).x(f32s([2, 1, 8])) => close(tol::F32_SUM);
        scale_does_not_fit: layer(17).x(f32s([24])).attr("axis", 1) => fails("scale or bias");
        f16: half(E::Float16).c(random(E::Float16, [64])).c(random(E::Float16, [64])) => close(tol::F16);
        bf16: half(E::Bfloat16).c(random(E::Bfloat16, [64])) => close(tol::BF16);
        offset: case("LayerNormalization", 17).x(uniform(E::Float, [4, 64], 3.0, 4.0)).c(f32s([64])) => close(tol::F32_SUM);
        no_rows: case("LayerNormalization", 17).x(f32s([0, 8])).c(f32s([8])).outputs(3) => exact();
        no_columns: case("LayerNormalization", 17).x(f32s([2, 0])).x(f32s([0])) => fails("nothing to normalise");
        one_column: case("LayerNormalization", 17).x(f32s([2, 1])).x(f32s([1])) => close(tol::F32);
        rank_1: case("LayerNormalization", 17).x(f32s([9])).x(f32s([9])).attr("axis", 0).outputs(3) => close(tol::F32_SUM);
        rms: case("RMSNormalization", 23).x(f32s([2, 3, 8])).c(f32s([8])) => close(tol::F32_SUM);
        rms_axis_1: case("RMSNormalization", 23).x(f32s([2, 3, 8])).c(f32s([3, 8])).attr("axis", 1) => close(tol::F32_SUM);
        rms_scale_broadcasts: case("RMSNormalization", 23).x(f32s([2, 3, 8])).c(f32s([1])).attr("axis", 1) => close(tol::F32_SUM);
        rms_f16: case("RMSNormalization", 23).x(random(E::Float16, [4, 64])).c(random(E::Float16, [64])) => close(tol::F16);
        rms_no_rows: case("RMSNormalization", 23).x(f32s([0, 8])).c(f32s([8])) => exact();
        simplified_1: simplified().x(f32s([2, 3, 8])).c(f32s([8])) => close(tol::F32_SUM);
        simplified_deviation: simplified().x(f32s([2, 3, 8])).c(f32s([8])).attr("epsilon", 1e-6_f32).outputs(2) => close(tol::F32_SUM);
        simplified_f16: simplified().x(random(E::Float16, [4, 64])).c(random(E::Float16, [64])) => close(tol::F16);
        wide: case("LayerNormalization", 17).x(uniform(E::Float, [2, 5000], 1.0, 9.0)).c(f32s([5000])).c(f32s([5000])) => close(tol::F32_SUM);
        million: case("LayerNormalization", 17).x(uniform(E::Float, [1, 1000003], 1.0, 9.0)).c(f32s([1000003])) => close(tol::F32_SUM);
        rms_million: case("RMSNormalization", 23).x(uniform(E::Float, [1, 1000003], 1.0, 9.0)).c(f32s([1000003])) => close(tol::F32_SUM);
        stash_type_10: layer(17).c(f32s([8])).attr("stash_type", 10) => declines();
    }
}
