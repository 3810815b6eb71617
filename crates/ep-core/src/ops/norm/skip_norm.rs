//! com.microsoft `SkipLayerNormalization` and `SkipSimplifiedLayerNormalization`: a residual sum, then the norm of it.
//!
//! Outputs: the norm, mean, one over the standard deviation, and the sum itself.

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

use super::layer_norm::{NORM_MODE, Norm};

pub(crate) struct SkipNorm(Norm);

impl SkipNorm {
    /// The bias of the norm, if this form has one, and that of the sum.
    fn biases(&self) -> (Option<usize>, usize) {
        if self.0.centred { (Some(3), 4) } else { (None, 3) }
    }
}

impl Op for SkipNorm {
    const KEYS: &'static [OpKey] =
        &[OpKey::microsoft("SkipLayerNormalization"), OpKey::microsoft("SkipSimplifiedLayerNormalization")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let element = node.expect_float(0)?;
        for i in (1..node.input_count()).filter(|&i| node.has_input(i)) {
            node.expect_type(i, |e| e == element)?;
        }
        if matches!(node.input_rank(0), Some(rank) if !(2..=3).contains(&rank)) {
            return Err(Decline::form("the input must be of rank 2 or 3"));
        }
        let centred = node.op_type() == "SkipLayerNormalization";
        if !centred && (node.has_output(1) || node.has_output(2)) {
            return Err(Decline::form("the simplified norm has no mean or deviation to give"));
        }
        Ok(Self(Norm { centred, epsilon: node.float_or("epsilon", 1e-12)?, as_spelled: false }))
    }

    fn shape_mode(&self) -> ShapeMode {
        NORM_MODE
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (x, skip) = (cx.array(0)?, cx.array(1)?);
        let last = match (x.ndim(), x.shape()) {
            (2 | 3, [batch @ .., rows, columns]) => {
                let fits = match skip.shape() {
                    [r, c] => (r, c) == (rows, columns),
                    [b, r, c] => (r, c) == (rows, columns) && (*b == 1 || [*b] == *batch),
                    _ => false,
                };
                if !fits {
                    let detail = format!("skip {:?} for an input {:?}", skip.shape(), x.shape());
                    return Err(LowerError::invalid(detail));
                }
                x.ndim() - 1
            }
            _ => return Err(LowerError::invalid("the input must be of rank 2 or 3")),
        };
        let (beta, bias) = self.biases();
        let mut sum = x.add(&skip)?.reshape(x.shape())?;
        if let Some(bias) = cx.optional_array(bias)? {
            sum = sum.add(&bias)?;
        }
        let beta = beta.map(|i| cx.optional_array(i)).transpose()?.flatten();
        let y = self.0.apply(&sum, last, Some(&cx.array(2)?), beta.as_ref())?;
        cx.emit(0, y.astype(sum.dtype())?)?;
        if self.0.centred {
            self.0.emit_statistics(cx, &sum, last)?;
        }
        cx.emit(3, sum)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn skip(op: &'static str, dims: &[usize]) -> Case {
        case(op, 17).microsoft().x(f32s([2, 3, 8])).x(uniform(E::Float, dims, -1.0, 1.0)).c(f32s([8]))
    }

    fn layer(dims: &[usize]) -> Case {
        skip("SkipLayerNormalization", dims)
    }

    fn simplified(dims: &[usize]) -> Case {
        skip("SkipSimplifiedLayerNormalization", dims).attr("epsilon", 1e-5_f32)
    }

    fn half(op: &'static str) -> Case {
        let (x, skip) = (random(E::Float16, [4, 64]), uniform(E::Float16, [4, 64], -1.0, 1.0));
        case(op, 17).microsoft().x(x).x(skip).c(random(E::Float16, [64])).attr("epsilon", 1e-5_f32)
    }

    op_cases! {
        plain: layer(&[2, 3, 8]) => close(tol::F32_SUM);
        beta: layer(&[2, 3, 8]).c(f32s([8])).attr("epsilon", 1e-5_f32) => close(tol::F32_SUM);
        bias: layer(&[2, 3, 8]).c(f32s([8])).c(f32s([8])) => close(tol::F32_SUM);
        bias_without_beta: layer(&[2, 3, 8]).none().c(f32s([8])) => close(tol::F32_SUM);
        all_outputs: layer(&[2, 3, 8]).c(f32s([8])).c(f32s([8])).outputs(4) => close(tol::F32_SUM);
        skip_of_one_batch: layer(&[1, 3, 8]).outputs(4) => close(tol::F32_SUM);
        skip_of_rank_2: layer(&[3, 8]).c(f32s([8])) => close(tol::F32_SUM);
        skip_does_not_fit: layer(&[2, 1, 8]) => fails("skip");
        f16: half("SkipLayerNormalization").c(random(E::Float16, [64])) => close(tol::F16);
        simple: simplified(&[2, 3, 8]) => close(tol::F32_SUM);
        simple_bias: simplified(&[2, 3, 8]).c(f32s([8])) => close(tol::F32_SUM);
        simple_mean: simplified(&[2, 3, 8]).outputs(4) => declines();
        simple_f16: half("SkipSimplifiedLayerNormalization") => close(tol::F16);
        rank_4: case("SkipLayerNormalization", 17).microsoft().x(f32s([1, 1, 2, 8])).x(f32s([1, 1, 2, 8])).c(f32s([8])) => declines();
        no_rows: case("SkipLayerNormalization", 17).microsoft().x(f32s([0, 8])).x(f32s([0, 8])).c(f32s([8])) => exact();
    }
}
