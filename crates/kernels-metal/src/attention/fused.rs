//! MLX's own attention, with sizes filled up to those for which it has kernels.
//!
//! On CUDA these want 16-bit types, widths in multiples of 8 and, for the backward pass, query lengths in multiples of 128.
//! Zeros in a width change no product; queries that are added are cut off again, and keys that are added under a causal mask
//! are seen by those queries only. MLX aligns causal masks bottom right: with as many keys as queries that is top left.

use mlx_safe::fast::{Mask, scaled_dot_product_attention, sdpa_vjp};
use mlx_safe::{Array, PadMode};

use super::{Attention, Grads, Inputs, Sizes};
use crate::Result;

/// Y. Its derivative is MLX's.
pub(super) fn forward(attention: Attention, inputs: &Inputs, sizes: Sizes) -> Result<Array> {
    let seen = seen(attention, inputs, sizes)?;
    let more = sizes.queries.next_multiple_of(128) - sizes.queries;
    let more_keys = if attention.causal { more } else { 0 };
    let q = fill(&inputs.q, more)?;
    let (k, v) = (fill(&seen.k, more_keys)?, fill(&seen.v, more_keys)?);
    let y = scaled_dot_product_attention(&q, &k, &v, attention.scale_for(sizes.width), mask(attention))?;
    let shape = [sizes.batch, sizes.heads, sizes.queries, sizes.value_width].map(|n| n as i32);
    if y.shape() == shape {
        return Ok(y);
    }
    Ok(y.slice(&[0; 4], &shape, &[1; 4])?)
}

pub(super) fn grad(attention: Attention, inputs: &Inputs, sizes: Sizes, dy: &Array) -> Result<Grads> {
    let seen = seen(attention, inputs, sizes)?;
    let scale = attention.scale_for(sizes.width);
    let (q, k, v) = sdpa_vjp(&seen.q, &seen.k, &seen.v, scale, mask(attention), dy)?;
    let hidden = sizes.keys as i32 - k.dim(2)?;
    Ok(Grads { q, k: more_rows(&k, hidden)?, v: more_rows(&v, hidden)? })
}

fn mask(attention: Attention) -> Mask<'static> {
    if attention.causal { Mask::Causal } else { Mask::None }
}

/// Without the keys that no query sees.
fn seen(attention: Attention, inputs: &Inputs, sizes: Sizes) -> Result<Inputs> {
    if !attention.causal {
        return Ok(inputs.clone());
    }
    let first = |x: &Array| {
        let mut stop = x.shape().to_vec();
        stop[2] = sizes.queries as i32;
        x.slice(&[0; 4], &stop, &[1; 4])
    };
    Ok(Inputs { q: inputs.q.clone(), k: first(&inputs.k)?, v: first(&inputs.v)?, mask: None })
}

/// `more` rows of zeros, and zeros up to a multiple of 8 in the width.
fn fill(x: &Array, more: usize) -> Result<Array> {
    let width = x.dim(3)?;
    if more == 0 && width % 8 == 0 {
        return Ok(x.clone());
    }
    let zero = Array::scalar_of(0.0, x.dtype())?;
    let more_width = (width as usize).next_multiple_of(8) as i32 - width;
    Ok(x.pad(&[2, 3], &[0, 0], &[more as i32, more_width], &zero, PadMode::Constant)?)
}

fn more_rows(x: &Array, more: i32) -> Result<Array> {
    Ok(x.pad(&[2], &[0], &[more], &Array::scalar_of(0.0, x.dtype())?, PadMode::Constant)?)
}
