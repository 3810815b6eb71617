//! MLX's fused operations (`mlx.core.fast`).

use std::ffi::CString;

use mlx_sys as sys;

use crate::error::argument;
use crate::{Array, Result, Stream};

/// Layer normalisation over the last axis of `x` (..., D); `weight` and `bias` are (D).
pub fn layer_norm(x: &Array, weight: Option<&Array>, bias: Option<&Array>, eps: f32) -> Result<Array> {
    let (w, b) = (Array::raw_or_null(weight), Array::raw_or_null(bias));
    Stream::with_current(|s| {
        Array::from_op("layer_norm", |out| {
            // SAFETY: every handle is live or the null that mlx-c allows there; `out` is empty.
            unsafe { sys::mlx_fast_layer_norm(out, x.raw(), w, b, eps, s) }
        })
    })
}

/// Root mean square normalisation over the last axis of `x` (..., D); `weight` is (D).
pub fn rms_norm(x: &Array, weight: Option<&Array>, eps: f32) -> Result<Array> {
    let w = Array::raw_or_null(weight);
    Stream::with_current(|s| {
        Array::from_op("rms_norm", |out| {
            // SAFETY: every handle is live or the null that mlx-c allows there; `out` is empty.
            unsafe { sys::mlx_fast_rms_norm(out, x.raw(), w, eps, s) }
        })
    })
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
pub fn scaled_dot_product_attention(
    queries: &Array,
    keys: &Array,
    values: &Array,
    scale: f32,
    mask: Mask<'_>,
) -> Result<Array> {
    let (mode, array) = match mask {
        Mask::None => ("", None),
        Mask::Causal => ("causal", None),
        Mask::Array(array) => ("array", Some(array)),
    };
    let Ok(mode) = CString::new(mode) else {
        return argument("scaled_dot_product_attention", "bad mask mode");
    };
    let null = Array::raw_or_null(None);
    Stream::with_current(|s| {
        Array::from_op("scaled_dot_product_attention", |out| {
            // SAFETY: every handle is live or the null that mlx-c allows there; `mode` outlives the call.
            unsafe {
                sys::mlx_fast_scaled_dot_product_attention(
                    out,
                    queries.raw(),
                    keys.raw(),
                    values.raw(),
                    scale,
                    mode.as_ptr(),
                    Array::raw_or_null(array),
                    null,
                    false,
                    s,
                )
            }
        })
    })
}
