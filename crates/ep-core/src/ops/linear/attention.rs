//! `Attention` (ai.onnx 23+): MLX's fused attention, or the chain of products where scores are asked for or capped.
//!
//! A query's position counts the keys that precede the first one: those of the past, or of a cache that
//! `nonpad_kv_seqlen` measures. Causality and windows (25+) go by it. A query without any key gives zeros.

use kernels_metal::elementwise::Function;
use mlx_safe::fast::{Mask, scaled_dot_product_attention};
use mlx_safe::{Array, Dtype, PadMode, arange, concatenate, where_, zeros};

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::sums::softmax;
use crate::{Decline, LowerError, NodeRef};

/// The attributes.
pub(crate) struct Attention {
    /// How many keys before and after its own position a query sees; `None` for all.
    left: Option<i32>,
    right: Option<i32>,
    /// Heads of queries and of keys, for inputs that hold them side by side.
    heads: Option<(i32, i32)>,
    /// `None` stands for 1 / sqrt(head size).
    scale: Option<f32>,
    /// 0 for none.
    softcap: f32,
    scores: Scores,
}

/// What the fourth output shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scores {
    Raw,
    Capped,
    Masked,
    Softmax,
}

/// Who sees whom; both broadcast to (B, H, L, S).
#[derive(Default)]
struct Sight {
    /// True where a query may see a key.
    allowed: Option<Array>,
    /// Added to the scores.
    bias: Option<Array>,
}

const MASK: usize = 3;
const PAST_KEY: usize = 4;
const PAST_VALUE: usize = 5;
const LENGTHS: usize = 6;

impl Op for Attention {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Attention")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let element = node.expect_float(0)?;
        for i in [1, 2, PAST_KEY, PAST_VALUE] {
            if node.has_input(i) && node.input_type(i)? != element {
                return Err(Decline::form("queries, keys and values of different types"));
            }
        }
        if node.has_input(MASK) {
            node.expect_type(MASK, |e| e == onnx_graph::ElementType::Bool || e.is_float())?;
        }
        if node.has_input(PAST_KEY) != node.has_input(PAST_VALUE) {
            return Err(Decline::invalid("only one of past_key and past_value"));
        }
        if node.has_input(PAST_KEY) && node.has_input(LENGTHS) {
            return Err(Decline::invalid("both past_key and nonpad_kv_seqlen"));
        }
        let heads = |name: &'static str| match node.int(name)? {
            None => Ok(None),
            Some(n) => match i32::try_from(n) {
                Ok(n) if n > 0 => Ok(Some(n)),
                _ => Err(Decline::attribute(name, n)),
            },
        };
        let heads = heads("q_num_heads")?.zip(heads("kv_num_heads")?);
        match node.input_rank(0) {
            Some(3) if heads.is_none() => return Err(Decline::invalid("the numbers of heads are missing")),
            None | Some(3 | 4) => {}
            Some(rank) => return Err(Decline::invalid(format!("queries of rank {rank}"))),
        }
        let scores = match node.int_or("qk_matmul_output_mode", 0)? {
            0 => Scores::Raw,
            1 => Scores::Capped,
            2 => Scores::Masked,
            3 => Scores::Softmax,
            other => return Err(Decline::attribute("qk_matmul_output_mode", other)),
        };
        let window = |name: &'static str| match node.int_or(name, -1)? {
            -1 => Ok(None),
            n => match i32::try_from(n) {
                Ok(n) if n >= 0 && node.version() >= 25 => Ok(Some(n)),
                _ => Err(Decline::attribute(name, n)),
            },
        };
        let right = window("right_window_size")?;
        Ok(Self {
            left: window("left_window_size")?,
            right: if node.flag_or("is_causal", false)? { Some(0) } else { right },
            heads,
            scale: node.float("scale")?,
            softcap: node.float_or("softcap", 0.0)?,
            scores,
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("heads and masks are laid out for the sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let flat = cx.shape(0)?.len() == 3;
        let (q, mut k, mut v) = (self.split(cx, 0)?, self.split(cx, 1)?, self.split(cx, 2)?);
        let mut past = 0;
        if cx.has_input(PAST_KEY) {
            let (keys, values) = (cx.array(PAST_KEY)?, cx.array(PAST_VALUE)?);
            k = concatenate(&[keys.clone(), k], 2)?;
            v = concatenate(&[values, v], 2)?;
            past = keys.dim(2)?;
        }
        cx.emit(1, k.clone())?;
        cx.emit(2, v.clone())?;
        let (&[b, h, l, e], &[_, hk, s, _], &[_, _, _, ev]) = (q.shape(), k.shape(), v.shape()) else {
            return Err(LowerError::invalid("queries, keys and values need four axes"));
        };
        if hk == 0 || h % hk != 0 || k.dim(0)? != b || k.dim(3)? != e || v.shape()[..3] != k.shape()[..3] {
            return Err(LowerError::invalid(format!(
                "queries {:?}, keys {:?} and values {:?} do not fit",
                q.shape(),
                k.shape(),
                v.shape()
            )));
        }
        let scale = self.scale.unwrap_or_else(|| 1.0 / (e as f32).sqrt());
        let y = if b == 0 || l == 0 || s == 0 || e == 0 {
            if cx.wants(3) {
                cx.emit(3, zeros(&[b, h, l, s], q.dtype())?)?;
            }
            if e == 0 && s != 0 {
                return Err(LowerError::invalid("heads of size 0"));
            }
            zeros(&[b, h, l, ev], q.dtype())?
        } else if cx.wants(3) || self.softcap != 0.0 {
            let sight = self.sight(cx, &q, s, past)?;
            self.chain(cx, [&q, &k, &v], &sight, scale)?
        } else {
            self.fused(cx, [&q, &k, &v], past, scale)?
        };
        let y = if flat { y.transpose(&[0, 2, 1, 3])?.reshape(&[b, l, h * ev])? } else { y };
        cx.emit(0, y)
    }
}

impl Attention {
    /// Input `i` as (B, H, L, E).
    fn split(&self, cx: &Lowering<'_>, i: usize) -> Result<Array, LowerError> {
        let x = cx.array(i)?;
        let &[b, l, width] = x.shape() else { return Ok(x) };
        let heads = self.heads.map(|(queries, keys)| if i == 0 { queries } else { keys });
        let heads = heads.filter(|&heads| width % heads == 0);
        let heads = heads.ok_or_else(|| {
            LowerError::invalid(format!("input {i} of shape {:?} does not split into heads", x.shape()))
        })?;
        Ok(x.reshape(&[b, l, heads, width / heads])?.transpose(&[0, 2, 1, 3])?)
    }

    fn fused(
        &self,
        cx: &Lowering<'_>,
        [q, k, v]: [&Array; 3],
        past: i32,
        scale: f32,
    ) -> Result<Array, LowerError> {
        let (l, s) = (q.dim(2)?, k.dim(2)?);
        let attend = |mask| scaled_dot_product_attention(q, k, v, scale, mask);
        if !cx.has_input(MASK) && !cx.has_input(LENGTHS) {
            match (self.left, self.right) {
                (None, None) => return Ok(attend(Mask::None)?),
                // MLX aligns the triangle with the last key.
                (None, Some(0)) if past == s - l => return Ok(attend(Mask::Causal)?),
                _ => {}
            }
        }
        let sight = self.sight(cx, q, s, past)?;
        let mask = match (&sight.allowed, &sight.bias) {
            (None, None) => return Ok(attend(Mask::None)?),
            (Some(allowed), None) => allowed.clone(),
            (None, Some(bias)) => bias.clone(),
            (Some(allowed), Some(bias)) => where_(allowed, bias, &negative_infinity(bias.dtype())?)?,
        };
        let y = attend(Mask::Array(&mask))?;
        zero_where_blind(&y, &mask)
    }

    fn chain(
        &self,
        cx: &mut Lowering<'_>,
        [q, k, v]: [&Array; 3],
        sight: &Sight,
        scale: f32,
    ) -> Result<Array, LowerError> {
        let (&[b, h, l, _], &[_, hk, s, _]) = (q.shape(), k.shape()) else {
            return Err(LowerError::Bug("attention without four axes".into()));
        };
        let dtype = q.dtype();
        // (B, Hk, H / Hk, ...): the queries that share a key's head beside each other.
        let grouped = |x: &Array, groups: i32| -> Result<Array, LowerError> {
            let shape = [b, hk, groups, x.dim(2)?, x.dim(3)?];
            Ok(x.astype(Dtype::Float32)?.reshape(&shape)?)
        };
        let (q, k, v) = (grouped(q, h / hk)?, grouped(k, 1)?, grouped(v, 1)?);
        let q = q.multiply(&Array::scalar(scale))?;
        let mut scores = q.matmul(&k.swapaxes(-1, -2)?)?.reshape(&[b, h, l, s])?;
        let shown = self.scores;
        let mut show = |stage: Scores, scores: &Array| -> Result<(), LowerError> {
            if stage == shown && cx.wants(3) { cx.emit(3, scores.astype(dtype)?) } else { Ok(()) }
        };
        show(Scores::Raw, &scores)?;
        if self.softcap != 0.0 {
            let cap = Array::scalar(self.softcap);
            scores = Function::Tanh.apply(&scores.divide(&cap)?)?.multiply(&cap)?;
        }
        show(Scores::Capped, &scores)?;
        if let Some(bias) = &sight.bias {
            scores = scores.add(&bias.astype(Dtype::Float32)?)?;
        }
        if let Some(allowed) = &sight.allowed {
            scores = where_(allowed, &scores, &negative_infinity(Dtype::Float32)?)?;
        }
        show(Scores::Masked, &scores)?;
        let weights = zero_where_blind(&softmax(&scores, scores.ndim() as i32 - 1)?, &scores)?;
        show(Scores::Softmax, &weights)?;
        let y = weights.reshape(&[b, hk, h / hk, l, s])?.matmul(&v)?;
        Ok(y.reshape(&[b, h, l, -1])?.astype(dtype)?)
    }

    /// The mask, the triangle and the lengths together, for `s` keys of which `past` precede the queries.
    fn sight(&self, cx: &Lowering<'_>, q: &Array, s: i32, past: i32) -> Result<Sight, LowerError> {
        let mut sight = Sight::default();
        let keys = arange(0.0, s.into(), 1.0, Dtype::Int64)?;
        let lengths = match cx.optional_array(LENGTHS)? {
            Some(lengths) => Some(lengths.reshape(&[-1, 1, 1, 1])?),
            None => None,
        };
        let mut allow = |more: Array| -> Result<(), LowerError> {
            sight.allowed = Some(match sight.allowed.take() {
                Some(allowed) => allowed.logical_and(&more)?,
                None => more,
            });
            Ok(())
        };
        if let Some(lengths) = &lengths {
            allow(keys.less(lengths)?)?;
        }
        if self.left.is_some() || self.right.is_some() {
            let l = q.dim(2)?;
            let offset = match &lengths {
                Some(lengths) => lengths.subtract(&Array::scalar(i64::from(l)))?,
                None => Array::scalar(i64::from(past)),
            };
            let position = arange(0.0, l.into(), 1.0, Dtype::Int64)?.reshape(&[l, 1])?.add(&offset)?;
            if let Some(right) = self.right {
                allow(keys.less_equal(&position.add(&Array::scalar(i64::from(right)))?)?)?;
            }
            if let Some(left) = self.left {
                allow(keys.greater_equal(&position.subtract(&Array::scalar(i64::from(left)))?)?)?;
            }
        }
        if let Some(mask) = cx.optional_array(MASK)? {
            let short = if mask.ndim() == 0 { 0 } else { s - mask.dim(-1)? };
            let flag = mask.dtype() == Dtype::Bool;
            let mask = if short > 0 && mask.dim(-1)? != 1 {
                let fill = if flag { Array::scalar(false) } else { negative_infinity(mask.dtype())? };
                mask.pad(&[-1], &[0], &[short], &fill, PadMode::Constant)?
            } else {
                mask
            };
            if flag {
                allow(mask)?;
            } else {
                sight.bias = Some(mask.astype(q.dtype())?);
            }
        }
        Ok(sight)
    }
}

fn negative_infinity(dtype: Dtype) -> Result<Array, LowerError> {
    Ok(Array::scalar_of(f64::NEG_INFINITY, dtype)?)
}

/// `y`, zero in the rows where `mask` (boolean, or minus infinity for no) leaves no key.
fn zero_where_blind(y: &Array, mask: &Array) -> Result<Array, LowerError> {
    let open = match mask.dtype() {
        Dtype::Bool => mask.clone(),
        dtype => mask.not_equal(&negative_infinity(dtype)?)?,
    };
    Ok(where_(&open.any(&[-1], true)?, y, &Array::scalar_of(0.0, y.dtype())?)?)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    /// Queries (1, 4, 3, 8) and keys and values (1, 2, 5, 8).
    fn grouped(opset: i64) -> Case {
        case("Attention", opset).x(f32s([1, 4, 3, 8])).x(f32s([1, 2, 5, 8])).x(uniform(
            E::Float,
            [1, 2, 5, 8],
            -1.0,
            1.0,
        ))
    }

    fn square(element: E) -> Case {
        case("Attention", 23)
            .x(random(element, [2, 2, 4, 8]))
            .x(uniform(element, [2, 2, 4, 8], -1.0, 1.0))
            .x(random(element, [2, 2, 4, 6]))
    }

    fn visible() -> onnx_graph::Tensor<'static> {
        tensor(E::Bool, [3, 5], &[1., 1., 0., 0., 0., 0., 0., 0., 0., 0., 1., 0., 1., 0., 1.])
    }

    fn with_past() -> Case {
        grouped(23).none().x(f32s([1, 2, 2, 8])).x(uniform(E::Float, [1, 2, 2, 8], -1.0, 0.0))
    }

    op_cases! {
        plain: square(E::Float) => close(tol::F32_SUM);
        grouped_heads: grouped(23) => close(tol::F32_SUM);
        causal_square: square(E::Float).attr("is_causal", 1) => close(tol::F32_SUM);
        causal_more_keys: grouped(23).attr("is_causal", 1) => close(tol::F32_SUM);
        causal_with_past: with_past().attr("is_causal", 1).outputs(3) => close(tol::F32_SUM);
        present_without_past: grouped(23).outputs(3) => close(tol::F32_SUM);
        scale: grouped(24).attr("scale", 0.3f32) => close(tol::F32_SUM);
        flat: case("Attention", 23).x(f32s([2, 3, 16])).x(f32s([2, 5, 8])).x(f32s([2, 5, 6])).attr("q_num_heads", 4).attr("kv_num_heads", 2).outputs(3) => close(tol::F32_SUM);
        mask: grouped(23).x(f32s([3, 5])) => close(tol::F32_SUM);
        mask_of_heads: grouped(23).x(f32s([1, 4, 3, 5])).attr("is_causal", 1) => close(tol::F32_SUM);
        boolean_mask_with_a_blind_query: grouped(23).x(visible()) => close(tol::F32_SUM);
        boolean_mask_causal: grouped(24).x(visible()).attr("is_causal", 1) => close(tol::F32_SUM);
        infinite_mask: grouped(23).x(tensor(E::Float, [3, 5], &[f64::NEG_INFINITY; 15])) => exact();
        softcap: grouped(23).x(f32s([3, 5])).attr("softcap", 0.7f32) => close(tol::F32_SUM);
        raw_scores: grouped(23).x(f32s([3, 5])).attr("softcap", 0.7f32).outputs(4) => close(tol::F32_SUM);
        capped_scores: grouped(23).x(f32s([3, 5])).attr("softcap", 0.7f32).attr("qk_matmul_output_mode", 1).outputs(4) => close(tol::F32_SUM);
        masked_scores: grouped(23).x(f32s([3, 5])).attr("softcap", 0.7f32).attr("qk_matmul_output_mode", 2).outputs(4) => close(tol::F32_SUM);
        softmax_scores: grouped(24).x(visible()).attr("qk_matmul_output_mode", 3).outputs(4) => close(tol::F32_SUM);
        lengths: grouped(24).none().none().none().x(i64s(&[4])) => close(tol::F32_SUM);
        lengths_causal: grouped(24).none().none().none().x(i64s(&[4])).attr("is_causal", 1) => close(tol::F32_SUM);
        lengths_below_queries: grouped(24).none().none().none().x(i64s(&[2])).attr("is_causal", 1) => close(tol::F32_SUM);
        half: square(E::Float16).attr("is_causal", 1) => close(tol::F16);
        half_capped: square(E::Float16).attr("softcap", 2f32) => close(tol::F16);
        bfloat: square(E::Bfloat16) => close(tol::BF16);
        window_before_opset_25: grouped(24).attr("left_window_size", 1) => declines();
        no_heads: case("Attention", 23).x(f32s([2, 3, 16])).x(f32s([2, 5, 8])).x(f32s([2, 5, 6])) => declines();
    }
}
