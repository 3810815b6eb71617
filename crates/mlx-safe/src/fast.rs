//! MLX's fused operations (`mlx.core.fast`).

mod pullback;

use crate::Array;
use crate::Result;
use crate::error::argument;
use crate::handle::optional_float;
use crate::ops::bounds::bounded;
use crate::ops::{functions, op};

pub use pullback::{lean_attention, sdpa_vjp};

functions! {
    /// Layer normalisation over the last axis of `x` (..., D); `weight` and `bias` are (D).
    layer_norm(x: &Array, weight: Option<&Array>, bias: Option<&Array>, eps: f32)
        => mlx_fast_layer_norm(x.raw(), Array::raw_or_null(weight), Array::raw_or_null(bias), eps);
    /// Root mean square normalisation over the last axis of `x` (..., D); `weight` is (D).
    rms_norm(x: &Array, weight: Option<&Array>, eps: f32)
        => mlx_fast_rms_norm(x.raw(), Array::raw_or_null(weight), eps);
    /// Rotary positions of `x` (..., L, E): the first `dims` of E turn by (position + `offset`) `scale` times `base`^(-2i/dims),
    /// or 1 / `freqs[i]` (dims / 2) instead of `base`. Pairs are neighbours if `traditional`, else half of `dims` apart.
    rope(x: &Array, dims: i32, traditional: bool, base: Option<f32>, scale: f32, offset: i32, freqs: Option<&Array>)
        => mlx_fast_rope(x.raw(), dims, traditional, optional_float(base), scale, offset, Array::raw_or_null(freqs));
    /// [`rope`] with an offset that is an array: a scalar, or one for each of the first axis.
    rope_dynamic(x: &Array, dims: i32, traditional: bool, base: Option<f32>, scale: f32, offset: &Array, freqs: Option<&Array>)
        => mlx_fast_rope_dynamic(x.raw(), dims, traditional, optional_float(base), scale, offset.raw(), Array::raw_or_null(freqs));
}

/// Cross entropy of `logits` (..., C) with class indices `targets` (...): (...). Indices out of range are treated as by
/// [`Array::take`].
///
/// # Errors
/// If shapes do not fit, or there are no classes.
pub fn cross_entropy(logits: &Array, targets: &Array) -> Result<Array> {
    let targets = bounded("cross_entropy", targets, logits, &[-1], 1)?;
    op!("cross_entropy", mlx_fast_cross_entropy(logits.raw(), targets.raw()))
}

/// The mask of an attention.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a> {
    /// Every query sees every key.
    None,
    /// Query i sees keys up to i + S - L: aligned bottom right.
    Causal,
    /// Boolean (true keeps) or additive, broadcastable to (B, H, L, S).
    Array(&'a Array),
}

/// softmax(`scale` Q K^T + mask) V for Q (B, H, L, E), K (B, Hk, S, E), V (B, Hk, S, Ev); H is a multiple of Hk.
///
/// # Errors
/// If shapes do not fit or an array is empty.
pub fn scaled_dot_product_attention(
    queries: &Array,
    keys: &Array,
    values: &Array,
    scale: f32,
    mask: Mask<'_>,
) -> Result<Array> {
    scaled_dot_product_attention_with_sinks(queries, keys, values, scale, mask, None)
}

/// The same with one more logit a head, `sinks` (H), that takes part in the softmax and has no value.
///
/// # Errors
/// If shapes do not fit or an array is empty.
pub fn scaled_dot_product_attention_with_sinks(
    queries: &Array,
    keys: &Array,
    values: &Array,
    scale: f32,
    mask: Mask<'_>,
    sinks: Option<&Array>,
) -> Result<Array> {
    // MLX divides by the number of key heads, and by sizes of its blocks.
    if [queries, keys, values].iter().any(|x| x.size() == 0) {
        let shapes = format!("{queries:?}, {keys:?}, {values:?} hold nothing to attend to");
        return argument("scaled_dot_product_attention", shapes);
    }
    let (mode, array) = match mask {
        Mask::None => (c"", None),
        Mask::Causal => (c"causal", None),
        Mask::Array(array) => (c"array", Some(array)),
    };
    let (q, k, v, mode) = (queries.raw(), keys.raw(), values.raw(), mode.as_ptr());
    let (mask, sinks) = (Array::raw_or_null(array), Array::raw_or_null(sinks));
    op!(
        "scaled_dot_product_attention",
        mlx_fast_scaled_dot_product_attention(q, k, v, scale, mode, mask, sinks, false)
    )
}
