//! The definition in MLX's operations, some queries at a time: what runs on any device, in memory that does not grow with
//! the product of L and S.

use mlx_safe::{Array, Dtype, PadMode, arange, concatenate, depends, full, where_, zeros};

use super::{Attention, Grads, Inputs, Outputs, REPLACES, Sizes};
use crate::Result;

/// Scores that exist at a time, in bytes; several arrays of that size do.
const SCORES_BYTES: usize = 8 << 20;

pub(super) fn forward(attention: Attention, inputs: &Inputs, sizes: Sizes) -> Result<Outputs> {
    let [b, h, l, ev] = [sizes.batch, sizes.heads, sizes.queries, sizes.value_width].map(|n| n as i32);
    if sizes.is_empty() {
        let lse = full(&[b, h, l], &Array::scalar(f32::NEG_INFINITY))?;
        return Ok(Outputs { y: zeros(&[b, h, l, ev], inputs.q.dtype())?, lse });
    }
    let problem = Problem::new(attention, inputs, sizes)?;
    let (mut ys, mut lses) = (Vec::<Array>::new(), Vec::new());
    for rows in problem.parts() {
        let scores = problem.scores(rows, ys.last())?;
        let largest = shift(&scores.max(-1, true)?)?;
        let p = scores.subtract(&largest)?.exp()?;
        let sum = p.sum(-1, true)?;
        let blind = sum.equal(&Array::scalar(0.0f32))?;
        let sum_or_one = where_(&blind, &Array::scalar(1.0f32), &sum)?;
        ys.push(p.matmul(&problem.v)?.divide(&sum_or_one)?);
        lses.push(largest.add(&sum.log()?)?);
    }
    let y = concatenate(&ys, 3)?.reshape(&[b, h, l, ev])?.astype(inputs.q.dtype())?;
    Ok(Outputs { y, lse: concatenate(&lses, 3)?.reshape(&[b, h, l])? })
}

pub(super) fn grad(
    attention: Attention,
    inputs: &Inputs,
    sizes: Sizes,
    dy: &Array,
    saved: Option<&Outputs>,
) -> Result<Grads> {
    if sizes.is_empty() {
        let [q, k, v] = [&inputs.q, &inputs.k, &inputs.v].map(Array::zeros_like);
        return Ok(Grads { q: q?, k: k?, v: v? });
    }
    let problem = Problem::new(attention, inputs, sizes)?;
    let saved = saved.map_or_else(|| forward(attention, inputs, sizes), |saved| Ok(saved.clone()))?;
    let lse = shift(&problem.group(&saved.lse.expand_dims(-1)?)?)?;
    let (y, dy) = (problem.group(&saved.y)?, problem.group(dy)?);
    let delta = y.multiply(&dy)?.sum(-1, true)?;
    let scale = Array::scalar(problem.scale);
    let mut qs = Vec::<Array>::new();
    let mut sums = [problem.k.zeros_like()?, problem.v.zeros_like()?];
    for rows in problem.parts() {
        let p = problem.scores(rows, Some(&sums[1]))?.subtract(&rows.of(&lse)?)?.exp()?;
        let dy = rows.of(&dy)?;
        let dp = dy.matmul(&problem.v.swapaxes(-1, -2)?)?;
        let ds = p.multiply(&dp.subtract(&rows.of(&delta)?)?)?.multiply(&scale)?;
        qs.push(ds.matmul(&problem.k)?);
        // The query heads of a group share the key head.
        let add = |sum: &Array, left: &Array, right: &Array| {
            sum.add(&left.swapaxes(-1, -2)?.matmul(right)?.sum(2, true)?)
        };
        sums = [add(&sums[0], &ds, &rows.of(&problem.q)?)?, add(&sums[1], &p, &dy)?];
    }
    let like = |x: &Array, input: &Array| x.reshape(input.shape())?.astype(input.dtype());
    let q = like(&concatenate(&qs, 3)?, &inputs.q)?;
    Ok(Grads { q, k: like(&sums[0], &inputs.k)?, v: like(&sums[1], &inputs.v)? })
}

/// Minus infinity to 0: so that where nothing is seen, exp(score - this) is 0.
fn shift(x: &Array) -> Result<Array> {
    let nothing = x.equal(&hidden())?;
    Ok(where_(&nothing, &Array::scalar(0.0f32), x)?)
}

fn hidden() -> Array {
    Array::scalar(f32::NEG_INFINITY)
}

/// Some queries.
#[derive(Clone, Copy)]
struct Part {
    first: i32,
    last: i32,
}

impl Part {
    /// These queries of `x`, whose last axis but one is theirs, or broadcasts.
    fn of(self, x: &Array) -> Result<Array> {
        let axis = x.ndim() - 2;
        if x.shape()[axis] == 1 {
            return Ok(x.clone());
        }
        let (mut start, mut stop) = (vec![0; x.ndim()], x.shape().to_vec());
        (start[axis], stop[axis]) = (self.first, self.last);
        Ok(x.slice(&start, &stop, &vec![1; x.ndim()])?)
    }
}

/// The inputs in float32, heads in groups: q (B, Hk, G, L, E), k (B, Hk, 1, S, E), v (B, Hk, 1, S, Ev), and a mask that
/// broadcasts to (B, Hk, G, L, S).
struct Problem {
    q: Array,
    k: Array,
    v: Array,
    mask: Option<Array>,
    scale: f32,
    causal: bool,
    sizes: Sizes,
}

impl Problem {
    fn new(attention: Attention, inputs: &Inputs, sizes: Sizes) -> Result<Self> {
        let (group, keys) = (sizes.group() as i32, sizes.keys as i32);
        let mask = match &inputs.mask {
            None => None,
            Some(mask) => {
                let mut shape = vec![1; 4 - mask.ndim()];
                shape.extend(mask.shape());
                let mask = whole(&mask.reshape(&shape)?, keys)?;
                let [b, h, l, s] = [0, 1, 2, 3].map(|axis| mask.shape()[axis]);
                let heads = if h == 1 { [1, 1] } else { [h / group, group] };
                Some(mask.reshape(&[b, heads[0], heads[1], l, s])?)
            }
        };
        let problem = Self {
            q: inputs.q.clone(),
            k: inputs.k.astype(Dtype::Float32)?.expand_dims(2)?,
            v: inputs.v.astype(Dtype::Float32)?.expand_dims(2)?,
            mask,
            scale: attention.scale_for(sizes.width),
            causal: attention.causal,
            sizes,
        };
        Ok(Self { q: problem.group(&inputs.q)?, ..problem })
    }

    /// `x` (B, Hq, L, n) as (B, Hk, G, L, n) in float32.
    fn group(&self, x: &Array) -> Result<Array> {
        let Sizes { batch, key_heads, queries, .. } = self.sizes;
        let [b, hk, g, l] = [batch, key_heads, self.sizes.group(), queries].map(|n| n as i32);
        Ok(x.astype(Dtype::Float32)?.reshape(&[b, hk, g, l, x.dim(3)?])?)
    }

    fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        let Sizes { batch, heads, queries, keys, .. } = self.sizes;
        let rows = (SCORES_BYTES / (4 * batch * heads * keys)).clamp(1, queries);
        let part = move |first| Part { first: first as i32, last: queries.min(first + rows) as i32 };
        (0..queries).step_by(rows).map(part)
    }

    /// Scores of some queries, minus infinity where a key is hidden; not before `earlier` is there, so that only one part's
    /// exist at a time.
    fn scores(&self, rows: Part, earlier: Option<&Array>) -> Result<Array> {
        let mut q = rows.of(&self.q)?;
        if let Some(earlier) = earlier {
            q = depends(&[q], std::slice::from_ref(earlier))?.remove(0);
        }
        let mut scores = q.matmul(&self.k.swapaxes(-1, -2)?)?.multiply(&Array::scalar(self.scale))?;
        if let Some(mask) = &self.mask {
            let mask = rows.of(mask)?;
            scores = if mask.dtype() == Dtype::Bool {
                where_(&mask, &scores, &hidden())?
            } else {
                let mask = mask.astype(Dtype::Float32)?;
                where_(&mask.less_equal(&Array::scalar(REPLACES))?, &mask, &scores.add(&mask)?)?
            };
        }
        if self.causal {
            let numbers = |first: i32, last: i32| arange(first.into(), last.into(), 1.0, Dtype::Int32);
            let queries = numbers(rows.first, rows.last)?.expand_dims(-1)?;
            let seen = queries.greater_equal(&numbers(0, self.sizes.keys as i32)?)?;
            scores = where_(&seen, &scores, &hidden())?;
        }
        Ok(scores)
    }
}

/// `mask` with a last size of `keys`, or 1.
fn whole(mask: &Array, keys: i32) -> Result<Array> {
    let last = mask.dim(-1)?;
    if last == 1 || last == keys {
        return Ok(mask.clone());
    }
    let fill = match mask.dtype() {
        Dtype::Bool => Array::scalar(false),
        dtype => Array::scalar_of(f64::NEG_INFINITY, dtype)?,
    };
    Ok(mask.pad(&[-1], &[0], &[keys - last], &fill, PadMode::Constant)?)
}
