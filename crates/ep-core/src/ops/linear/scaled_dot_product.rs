//! `ScaledDotProductAttention` and `ScaledDotProductAttentionGrad` (ai.ortmlx 1) as one kernel each; see
//! `kernels_metal::attention`.

use kernels_metal::attention::{Attention as Kernel, Inputs, Outputs};
use mlx_safe::Array;
use onnx_graph::{Dim, ElementType};

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The forward operator: inputs Q (B, Hq, L, E), K (B, Hk, S, E), V (B, Hk, S, Ev) and a mask; outputs Y (B, Hq, L, Ev) and
/// the rows' log-sum-exp (B, Hq, L).
pub(crate) struct ScaledDotProductAttention {
    kernel: Kernel,
}

/// Its derivative: inputs Q, K, V, dY, a mask, and perhaps both outputs of the forward operator; outputs dQ, dK and dV.
pub(crate) struct ScaledDotProductAttentionGrad {
    kernel: Kernel,
    saved: bool,
}

/// Parses a node whose inputs at `series` have four axes and one type, and whose mask is at `mask`.
fn claim(node: &NodeRef<'_>, series: &[usize], mask: usize) -> Result<Kernel, Decline> {
    let element = node.expect_float(0)?;
    for &i in series {
        node.expect_type(i, |e| e == element)?;
        if let Some(rank) = node.input_rank(i).filter(|&rank| rank != 4) {
            return Err(Decline::invalid(format!("input {i} is of rank {rank}, not 4")));
        }
    }
    if node.has_input(mask) && node.input_type(mask)? != ElementType::Bool {
        node.expect_float(mask)?;
    }
    let heads = |i: usize| node.input_shape(i).and_then(|shape| shape.0.get(1)).and_then(Dim::known);
    if let (Some(heads), Some(key_heads)) = (heads(0), heads(1))
        && heads.checked_rem(key_heads).unwrap_or(heads) != 0
    {
        return Err(Decline::invalid(format!("{heads} heads of queries for {key_heads} of keys")));
    }
    let scale = node.float("scale")?;
    if let Some(scale) = scale.filter(|scale| !scale.is_finite()) {
        return Err(Decline::attribute("scale", scale));
    }
    Ok(Kernel { scale, causal: node.flag_or("is_causal", false)? })
}

fn inputs(cx: &Lowering<'_>, mask: usize) -> Result<Inputs, LowerError> {
    Ok(Inputs { q: cx.array(0)?, k: cx.array(1)?, v: cx.array(2)?, mask: cx.optional_array(mask)? })
}

fn emit<const N: usize>(cx: &mut Lowering<'_>, outputs: [Array; N]) -> Result<(), LowerError> {
    for (i, array) in outputs.into_iter().enumerate() {
        if cx.wants(i) {
            cx.emit(i, array)?;
        }
    }
    Ok(())
}

impl Op for ScaledDotProductAttention {
    const KEYS: &'static [OpKey] = &[OpKey::own("ScaledDotProductAttention")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(Self { kernel: claim(node, &[0, 1, 2], 3)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the kernel is made for its sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let inputs = inputs(cx, 3)?;
        if !cx.wants(1) {
            return cx.emit(0, self.kernel.apply(&inputs)?);
        }
        let Outputs { y, lse } = self.kernel.forward(&inputs)?;
        emit(cx, [y, lse])
    }
}

impl Op for ScaledDotProductAttentionGrad {
    const KEYS: &'static [OpKey] = &[OpKey::own("ScaledDotProductAttentionGrad")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let kernel = claim(node, &[0, 1, 2, 3], 4)?;
        let saved = node.has_input(5);
        if saved != node.has_input(6) {
            return Err(Decline::invalid("only one of Y and lse"));
        }
        if saved {
            let element = node.input_type(0)?;
            node.expect_type(5, |e| e == element)?;
            node.expect_type(6, |e| e == ElementType::Float)?;
        }
        Ok(Self { kernel, saved })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the kernel is made for its sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let saved = match self.saved {
            true => Some(Outputs { y: cx.array(5)?, lse: cx.array(6)? }),
            false => None,
        };
        let grads = self.kernel.grad(&inputs(cx, 4)?, &cx.array(3)?, saved.as_ref())?;
        emit(cx, [grads.q, grads.k, grads.v])
    }
}
