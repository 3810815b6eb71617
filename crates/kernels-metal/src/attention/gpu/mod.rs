//! The dialects for GPUs: one text, `source/`, that walks over tiles of the scores in threadgroup memory.
//!
//! Forward: a group for some queries of a head, which walks over keys. Gradient: what rows need to know, then dQ the same way,
//! then dK and dV by groups that each have some keys and walk over the queries of all heads that share them. No group adds to
//! what another one wrote, so results are the same in every run.

mod layout;
#[cfg(test)]
mod tests;

use mlx_safe::{Array, Dtype, Spec, TemplateArg};

use self::layout::{Form, Step, WIDEST};
use super::{Attention, Grads, Inputs, Outputs, Sizes};
use crate::Result;
use crate::gpu::{Call, Dialect, Kernel, Run};

const TILES: &str = include_str!("source/tiles.h");
const SCORES: &str = include_str!("source/scores.h");
const GRADIENT: &str = include_str!("source/gradient.h");

static FORWARD: Kernel = Kernel {
    name: "attention",
    functions: &[TILES, SCORES, include_str!("source/forward.h")],
    body: include_str!("source/forward.body.h"),
    inputs: &["sizes", "scale", "q", "k", "v", "mask"],
    outputs: &["y", "lse", "stats"],
};

static ROWS: Kernel = Kernel {
    name: "attention_grad_rows",
    functions: &[SCORES, include_str!("source/rows.h")],
    body: include_str!("source/rows.body.h"),
    inputs: &["sizes", "y", "dy", "saved"],
    outputs: &["rows"],
};

static GRAD_Q: Kernel = Kernel {
    name: "attention_grad_q",
    functions: &[TILES, SCORES, GRADIENT],
    body: include_str!("source/grad_q.body.h"),
    inputs: &["sizes", "scale", "q", "k", "v", "dy", "mask", "rows"],
    outputs: &["dq"],
};

static GRAD_KV: Kernel = Kernel {
    name: "attention_grad_kv",
    functions: &[TILES, SCORES, GRADIENT],
    body: include_str!("source/grad_kv.body.h"),
    inputs: &["sizes", "scale", "q", "k", "v", "dy", "mask", "rows"],
    outputs: &["dk", "dv"],
};

const ROW_THREADS: usize = 128;

/// Whether these kernels take the sizes: none is 0, widths are 256 at most, and numbers of threads have 32 bits.
pub(super) fn takes(sizes: &Sizes) -> bool {
    let &Sizes { batch, heads, key_heads, queries, keys, width, value_width } = sizes;
    let all = [batch, heads, key_heads, queries, keys, width, value_width];
    let most = i32::MAX as usize;
    // No form has more threads than 64 for a query or a key, or groups of more than 256.
    let threads = [heads, key_heads].map(|heads| {
        batch.saturating_mul(heads).saturating_mul(queries.max(keys).next_multiple_of(128).saturating_mul(64))
    });
    all.iter().all(|&n| n > 0 && n <= most)
        && width.max(value_width) <= WIDEST
        && threads.iter().all(|&n| n <= most)
}

/// What all launches of one attention know.
struct Problem<'a> {
    inputs: &'a Inputs,
    sizes: Sizes,
    causal: bool,
    dialect: Dialect,
    run: Run<'a>,
    header: Array,
    scale: Array,
    /// With four axes, or something in its place that is not read.
    mask: Array,
}

impl<'a> Problem<'a> {
    fn new(attention: Attention, inputs: &'a Inputs, dialect: Dialect, run: Run<'a>) -> Result<Self> {
        let sizes = inputs.sizes()?;
        let Sizes { batch, heads, key_heads, queries, keys, width, value_width } = sizes;
        let mut mask_sizes = [1; 4];
        if let Some(given) = &inputs.mask {
            mask_sizes[4 - given.shape().len()..].copy_from_slice(given.shape());
        }
        let numbers = [batch, heads, key_heads, queries, keys, width, value_width, attention.causal.into()];
        let numbers: Vec<i32> = numbers.iter().map(|&n| n as i32).chain(mask_sizes).collect();
        let header = Array::from_slice(&numbers, &[12])?;
        let scale = Array::from_slice(&[attention.scale_for(width)], &[1])?;
        let mask = match &inputs.mask {
            Some(mask) => mask.reshape(&mask_sizes)?,
            None => scale.clone(),
        };
        Ok(Self { inputs, sizes, causal: attention.causal, dialect, run, header, scale, mask })
    }

    fn call(&self, kernel: &'static Kernel, step: Step) -> Call<'_> {
        let Sizes { batch, heads, key_heads, queries, keys, .. } = self.sizes;
        let form = Form::new(step, &self.sizes, self.causal, self.dialect);
        let groups = match step {
            Step::Forward | Step::GradQ => batch * heads * queries.div_ceil(form.queries),
            Step::GradKv => batch * key_heads * keys.div_ceil(form.keys),
        };
        let kind = self.inputs.mask.as_ref().map_or(0, |mask| 1 + i32::from(mask.dtype() != Dtype::Bool));
        let numbers = [
            ("BM", form.queries),
            ("BN", form.keys),
            ("EP", form.width),
            ("TX", form.across),
            ("W", form.threads),
        ];
        let mut template: Vec<(_, TemplateArg)> =
            vec![("T", self.inputs.q.dtype().into()), ("MASK", kind.into())];
        template.extend(numbers.map(|(name, n)| (name, (n as i32).into())));
        if step == Step::GradKv {
            template.push(("TX2", (form.across_keys as i32).into()));
        }
        let Inputs { q, k, v, .. } = self.inputs;
        Call {
            kernel,
            groups,
            threads: form.threads,
            resident: form.resident,
            memory: form.memory(step),
            template,
            inputs: vec![&self.header, &self.scale, q, k, v],
            outputs: Vec::new(),
        }
    }

    /// Y, the log-sum-exp, and the exact numbers that it is of.
    fn forward(&self) -> Result<[Array; 3]> {
        let Sizes { batch, heads, queries, value_width, .. } = self.sizes;
        let [b, h, l] = [batch, heads, queries].map(|n| n as i32);
        let mut call = self.call(&FORWARD, Step::Forward);
        call.inputs.push(&self.mask);
        call.outputs = vec![
            Spec::new(&[b, h, l, value_width as i32], self.inputs.q.dtype()),
            Spec::new(&[b, h, l], Dtype::Float32),
            Spec::new(&[b, h, l, 2], Dtype::Float32),
        ];
        let outputs = (self.run)(call)?;
        let [y, lse, stats] = &outputs[..] else { unreachable!("the kernel gives three") };
        Ok([y.clone(), lse.clone(), stats.clone()])
    }

    /// Shift, factor and rowsum(dY * Y) of every row: (3, B, Hq, L).
    fn rows(&self, dy: &Array, saved: Option<&Outputs>) -> Result<Array> {
        let Sizes { batch, heads, queries, .. } = self.sizes;
        let [y, from] = match saved {
            Some(Outputs { y, lse }) => [y.clone(), lse.clone()],
            None => {
                let [y, _, stats] = self.forward()?;
                [y, stats]
            }
        };
        let outputs = (self.run)(Call {
            kernel: &ROWS,
            groups: (batch * heads * queries).div_ceil(ROW_THREADS),
            threads: ROW_THREADS,
            resident: 1,
            memory: 0,
            template: vec![("SAVED", i32::from(saved.is_some()).into()), ("W", (ROW_THREADS as i32).into())],
            inputs: vec![&self.header, &y, dy, &from],
            outputs: vec![Spec::new(&[3, batch as i32, heads as i32, queries as i32], Dtype::Float32)],
        })?;
        Ok(outputs[0].clone())
    }
}

/// Y and the log-sum-exp. The sizes must be [`taken`](takes).
pub(super) fn forward(attention: Attention, inputs: &Inputs, dialect: Dialect, run: Run) -> Result<Outputs> {
    let [y, lse, _] = Problem::new(attention, inputs, dialect, run)?.forward()?;
    Ok(Outputs { y, lse })
}

/// The pullback. The sizes must be [`taken`](takes).
pub(super) fn grad(
    attention: Attention,
    inputs: &Inputs,
    dy: &Array,
    saved: Option<&Outputs>,
    dialect: Dialect,
    run: Run,
) -> Result<Grads> {
    let problem = Problem::new(attention, inputs, dialect, run)?;
    let rows = problem.rows(dy, saved)?;
    let behind = [dy, &problem.mask, &rows];
    let mut call = problem.call(&GRAD_Q, Step::GradQ);
    call.inputs.extend(behind);
    call.outputs.push((&inputs.q).into());
    let by_query = run(call)?;
    let mut call = problem.call(&GRAD_KV, Step::GradKv);
    call.inputs.extend(behind);
    call.outputs.extend([(&inputs.k).into(), (&inputs.v).into()]);
    let by_key = run(call)?;
    let ([q], [k, v]) = (&by_query[..], &by_key[..]) else {
        unreachable!("kernels give what they are asked for")
    };
    Ok(Grads { q: q.clone(), k: k.clone(), v: v.clone() })
}
