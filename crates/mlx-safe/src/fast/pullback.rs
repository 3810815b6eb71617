//! The pullback of attention without the scores of all queries at once.

use super::{Mask, scaled_dot_product_attention};
use crate::error::argument;
use crate::{Array, DeviceType, Dtype, PadMode, Result, Stream};
use crate::{arange, concatenate, cuda, custom_vjp, depends, vjp};

/// Scores that exist at a time.
const SCORES_BYTES: usize = 8 << 20;

/// The pullback of [`scaled_dot_product_attention`]: from the derivative of a loss by its result, `cotangent` (B, H, L, Ev),
/// those by queries (B, H, L, E), keys (B, Hk, S, E) and values (B, Hk, S, Ev).
///
/// Where MLX has a fused backward pass (16-bit types on CUDA, no array as mask) it is that, with widths and lengths filled up
/// to what it takes. Elsewhere MLX would store B H L S scores several times over: here the queries are taken some at a time,
/// and their scores made again.
///
/// # Errors
/// If shapes do not fit or an array is empty.
pub fn sdpa_vjp(
    queries: &Array,
    keys: &Array,
    values: &Array,
    scale: f32,
    mask: Mask<'_>,
    cotangent: &Array,
) -> Result<(Array, Array, Array)> {
    let call = Call { q: queries, k: keys, v: values, scale, dy: cotangent };
    let [l, s] = call.lengths()?;
    // MLX shows everything to a query that a causal mask shows nothing.
    let explicit;
    let mask = match mask {
        Mask::Causal if l > s => {
            explicit = bottom_right(l, s)?;
            Mask::Array(&explicit)
        }
        mask => mask,
    };
    let [q, k, v] = if call.is_fused(mask)? { call.padded(mask)? } else { call.by_rows(mask, SCORES_BYTES)? };
    Ok((q, k, v))
}

/// [`scaled_dot_product_attention`] with [`sdpa_vjp`] for its derivative: queries, keys and values are kept for it, and no
/// scores. The mask has no derivative.
///
/// # Errors
/// If shapes do not fit or an array is empty.
pub fn lean_attention(
    queries: &Array,
    keys: &Array,
    values: &Array,
    scale: f32,
    mask: Mask<'_>,
) -> Result<Array> {
    let causal = matches!(mask, Mask::Causal);
    let mut inputs = vec![queries.clone(), keys.clone(), values.clone()];
    if let Mask::Array(mask) = mask {
        inputs.push(mask.clone());
    }
    let function = custom_vjp(
        move |x| Ok(vec![scaled_dot_product_attention(&x[0], &x[1], &x[2], scale, mask_of(x, causal))?]),
        move |x, cotangents, _| {
            let (q, k, v) = sdpa_vjp(&x[0], &x[1], &x[2], scale, mask_of(x, causal), &cotangents[0])?;
            let mask = x.get(3).map(Array::zeros_like).transpose()?;
            Ok([q, k, v].into_iter().chain(mask).collect())
        },
    )?;
    Ok(function.apply(&inputs)?.remove(0))
}

fn mask_of(inputs: &[Array], causal: bool) -> Mask<'_> {
    match inputs.get(3) {
        Some(mask) => Mask::Array(mask),
        None if causal => Mask::Causal,
        None => Mask::None,
    }
}

/// (L, S): true where query i sees key j, j <= i + S - L.
fn bottom_right(l: i32, s: i32) -> Result<Array> {
    let queries = arange(f64::from(s - l), f64::from(s), 1.0, Dtype::Int32)?.expand_dims(&[1])?;
    queries.greater_equal(&arange(0.0, f64::from(s), 1.0, Dtype::Int32)?)
}

struct Call<'a> {
    q: &'a Array,
    k: &'a Array,
    v: &'a Array,
    scale: f32,
    dy: &'a Array,
}

impl Call<'_> {
    /// L and S.
    fn lengths(&self) -> Result<[i32; 2]> {
        let all = [self.q, self.k, self.v, self.dy];
        if all.iter().any(|x| x.ndim() != 4) {
            return argument("sdpa_vjp", format!("{all:?} must have four axes each"));
        }
        if all.iter().any(|x| x.size() == 0) {
            return argument("sdpa_vjp", format!("{all:?} hold nothing to attend to"));
        }
        Ok([self.q.dim(2)?, self.k.dim(2)?])
    }

    /// Whether MLX has one kernel for the backward pass, once sizes are filled up.
    fn is_fused(&self, mask: Mask<'_>) -> Result<bool> {
        let half =
            |x: &Array| x.dtype() == self.q.dtype() && matches!(x.dtype(), Dtype::Float16 | Dtype::Bfloat16);
        Ok(Stream::current_device()? == DeviceType::Gpu
            && cuda::is_available()?
            && [self.q, self.k, self.v].into_iter().all(half)
            && self.q.dim(3)? <= 128
            && self.v.dim(3)? <= 128
            && !matches!(mask, Mask::Array(_)))
    }

    /// MLX's derivatives by q, k and v.
    fn plain(&self, mask: Mask<'_>) -> Result<[Array; 3]> {
        let primals = [self.q, self.k, self.v].map(Clone::clone);
        let attention = |x: &[Array]| scaled_dot_product_attention(&x[0], &x[1], &x[2], self.scale, mask);
        let (_, products) = vjp(|x| Ok(vec![attention(x)?]), &primals, std::slice::from_ref(self.dy))?;
        let [q, k, v] = &products[..] else { return argument("sdpa_vjp", "three derivatives were expected") };
        Ok([q.clone(), k.clone(), v.clone()])
    }

    /// All at once, with L a multiple of 128 and widths of 8. Zeros change no product, and rows without a derivative give
    /// none. Under a causal mask as many keys are added as queries: they are seen by those only.
    fn padded(&self, mask: Mask<'_>) -> Result<[Array; 3]> {
        let [l, s] = self.lengths()?;
        let more = fill(l, 128) - l;
        let more_keys = if matches!(mask, Mask::Causal) { more } else { 0 };
        let (e, ev) = (fill(self.q.dim(3)?, 8), fill(self.v.dim(3)?, 8));
        let q = resize(self.q, l + more, e)?;
        let k = resize(self.k, s + more_keys, e)?;
        let v = resize(self.v, s + more_keys, ev)?;
        let dy = resize(self.dy, l + more, ev)?;
        let [dq, dk, dv] = Call { q: &q, k: &k, v: &v, scale: self.scale, dy: &dy }.plain(mask)?;
        let (e, ev) = (self.q.dim(3)?, self.v.dim(3)?);
        Ok([resize(&dq, l, e)?, resize(&dk, s, e)?, resize(&dv, s, ev)?])
    }

    /// Some queries at a time, one after the other: as many as have `bytes` of scores in float32.
    fn by_rows(&self, mask: Mask<'_>, bytes: usize) -> Result<[Array; 3]> {
        let [l, s] = self.lengths()?;
        let row_bytes = 4 * s as usize * (self.q.dim(0)? * self.q.dim(1)?) as usize;
        let rows = i32::try_from(bytes / row_bytes).unwrap_or(l).clamp(1, l);
        if rows == l {
            return self.plain(mask);
        }
        let sum_of = |x: &Array| x.zeros_like_dtype(Dtype::Float32);
        let mut sums = [sum_of(self.k)?, sum_of(self.v)?];
        let mut qs = Vec::new();
        for first in (0..l).step_by(rows as usize) {
            let last = l.min(first + rows);
            // What an earlier part needs is freed before the next begins.
            let q = depends(&[rows_of(self.q, first, last)?], &sums)?.remove(0);
            let dy = rows_of(self.dy, first, last)?;
            let seen = if matches!(mask, Mask::Causal) { last + s - l } else { s };
            let (k, v) = (rows_of(self.k, 0, seen)?, rows_of(self.v, 0, seen)?);
            let part = Call { q: &q, k: &k, v: &v, scale: self.scale, dy: &dy };
            let [dq, dk, dv] = match mask {
                Mask::Array(mask) if mask.ndim() >= 2 && mask.dim(-2)? == l => {
                    part.plain(Mask::Array(&rows_of(mask, first, last)?))?
                }
                mask => part.plain(mask)?,
            };
            qs.push(dq);
            let add = |sum: &Array, x: &Array| sum.add(&resize(&x.astype(Dtype::Float32)?, s, x.dim(3)?)?);
            sums = [add(&sums[0], &dk)?, add(&sums[1], &dv)?];
        }
        let q = concatenate(&qs, 2)?;
        Ok([q, sums[0].astype(self.k.dtype())?, sums[1].astype(self.v.dtype())?])
    }
}

/// Entries `first` to `last` of the last axis but one.
fn rows_of(x: &Array, first: i32, last: i32) -> Result<Array> {
    let (mut start, mut stop) = (vec![0; x.ndim()], x.shape().to_vec());
    let axis = x.ndim() - 2;
    (start[axis], stop[axis]) = (first, last);
    x.slice(&start, &stop, &vec![1; x.ndim()])
}

/// `size` rounded up to a multiple of `step`.
fn fill(size: i32, step: i32) -> i32 {
    (size + step - 1) / step * step
}

/// `x` (B, H, n, m) with its last two sizes cut or filled up with zeros to `rows` and `width`.
fn resize(x: &Array, rows: i32, width: i32) -> Result<Array> {
    let [b, h, n, m] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
    let cut = match (rows < n, width < m) {
        (false, false) => x.clone(),
        _ => x.slice(&[0; 4], &[b, h, rows.min(n), width.min(m)], &[1; 4])?,
    };
    let (more_rows, more_width) = ((rows - n).max(0), (width - m).max(0));
    if more_rows == 0 && more_width == 0 {
        return Ok(cut);
    }
    let zero = Array::scalar_of(0.0, x.dtype())?;
    cut.pad(&[2, 3], &[0, 0], &[more_rows, more_width], &zero, PadMode::Constant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(salt: i32, shape: &[i32]) -> Array {
        let count = shape.iter().product::<i32>();
        let values: Vec<f32> =
            (0..count).map(|i| ((i * 37 + salt * 101) % 199) as f32 / 100.0 - 1.0).collect();
        Array::from_slice(&values, shape).unwrap()
    }

    /// All ways agree with MLX's own derivatives, which are tested against float64 elsewhere.
    fn check(l: i32, s: i32, mask: Mask<'_>) {
        let (q, k) = (array(1, &[2, 4, l, 6]), array(2, &[2, 2, s, 6]));
        let (v, dy) = (array(3, &[2, 2, s, 5]), array(4, &[2, 4, l, 5]));
        let call = Call { q: &q, k: &k, v: &v, scale: 0.7, dy: &dy };
        let wanted = call.plain(mask).unwrap();
        let (a, b, c) = sdpa_vjp(&q, &k, &v, 0.7, mask, &dy).unwrap();
        let mut ways = vec![[a, b, c]];
        if l <= s || !matches!(mask, Mask::Causal) {
            ways.push(call.by_rows(mask, 10_000).unwrap());
            if !matches!(mask, Mask::Array(_)) {
                ways.push(call.padded(mask).unwrap());
            }
        }
        for found in ways.iter().flatten().zip(wanted.iter().cycle()) {
            let (found, wanted) = found;
            assert_eq!(found.shape(), wanted.shape());
            for (x, y) in found.to_vec::<f32>().unwrap().iter().zip(wanted.to_vec::<f32>().unwrap()) {
                assert!((x - y).abs() < 2e-5 * (1.0 + y.abs()), "{x} for {y}");
            }
        }
    }

    #[test]
    fn parts_make_the_whole() {
        for (l, s) in [(5, 7), (7, 5), (60, 70), (70, 60)] {
            check(l, s, Mask::None);
            check(l, s, Mask::Causal);
            check(l, s, Mask::Array(&array(6, &[l, s])));
            check(l, s, Mask::Array(&array(6, &[2, 1, 1, s])));
        }
    }

    #[test]
    fn lean_attention_is_attention() {
        let inputs = [array(1, &[1, 2, 9, 8]), array(2, &[1, 2, 9, 8]), array(3, &[1, 2, 9, 8])];
        let mask = array(6, &[9, 9]);
        for mask in [Mask::None, Mask::Causal, Mask::Array(&mask)] {
            let lean = |x: &[Array]| lean_attention(&x[0], &x[1], &x[2], 0.3, mask)?.square()?.sum(.., false);
            let plain = |x: &[Array]| {
                scaled_dot_product_attention(&x[0], &x[1], &x[2], 0.3, mask)?.square()?.sum(.., false)
            };
            let (found, wanted) = (crate::grad(lean, &[0, 1, 2]), crate::grad(plain, &[0, 1, 2]));
            for (found, wanted) in found(&inputs).unwrap().iter().zip(wanted(&inputs).unwrap()) {
                let close = found.allclose(&wanted, 1e-5, 1e-5, false).unwrap();
                assert!(close.item::<bool>().unwrap());
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let x = array(1, &[1, 1, 2, 4]);
        assert!(sdpa_vjp(&x, &x, &x, 1.0, Mask::None, &array(1, &[1, 1, 3, 4])).is_err());
        assert!(sdpa_vjp(&x, &x, &x, 1.0, Mask::None, &array(1, &[2, 4])).is_err());
        assert!(sdpa_vjp(&x, &array(1, &[1, 1, 0, 4]), &x, 1.0, Mask::None, &x).is_err());
    }
}
