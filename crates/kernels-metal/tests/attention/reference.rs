//! Attention by its definition, in float64.

use kernels_metal::attention::{Attention, Sizes};

pub struct Inputs<'a> {
    pub q: &'a [f64],
    pub k: &'a [f64],
    pub v: &'a [f64],
    /// (B, Hq, L, S) in full: what is added to scores.
    pub bias: &'a dyn Fn([usize; 4]) -> f64,
}

pub struct Results {
    pub y: Vec<f64>,
    pub lse: Vec<f64>,
    pub dq: Vec<f64>,
    pub dk: Vec<f64>,
    pub dv: Vec<f64>,
}

/// Y and lse, and derivatives of the sum of Y * `dy`.
pub fn attention(attention: Attention, sizes: Sizes, inputs: &Inputs, dy: &[f64]) -> Results {
    let Sizes { batch, heads, key_heads, queries, keys, width, value_width } = sizes;
    let scale = attention.scale.map_or(1.0 / (width as f64).sqrt(), f64::from);
    let mut results = Results {
        y: vec![0.0; batch * heads * queries * value_width],
        lse: vec![f64::NEG_INFINITY; batch * heads * queries],
        dq: vec![0.0; inputs.q.len()],
        dk: vec![0.0; inputs.k.len()],
        dv: vec![0.0; inputs.v.len()],
    };
    for b in 0..batch {
        for h in 0..heads {
            let key_head = b * key_heads + h / (heads / key_heads);
            for l in 0..queries {
                let row = (b * heads + h) * queries + l;
                let q = &inputs.q[row * width..][..width];
                let seen = if attention.causal { keys.min(l + 1) } else { keys };
                let at = |s: usize| (key_head * keys + s) * width..(key_head * keys + s + 1) * width;
                let value =
                    |s: usize| (key_head * keys + s) * value_width..(key_head * keys + s + 1) * value_width;
                let scores: Vec<f64> = (0..seen)
                    .map(|s| match (inputs.bias)([b, h, l, s]) {
                        f64::NEG_INFINITY => f64::NEG_INFINITY,
                        bias => scale * dot(q, &inputs.k[at(s)]) + bias,
                    })
                    .collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                if largest == f64::NEG_INFINITY {
                    continue;
                }
                let sum: f64 = scores.iter().map(|x| (x - largest).exp()).sum();
                results.lse[row] = largest + sum.ln();
                let p: Vec<f64> = scores.iter().map(|x| (x - largest).exp() / sum).collect();
                let dy = &dy[row * value_width..][..value_width];
                let mut delta = 0.0;
                for (s, p) in p.iter().enumerate() {
                    let v = &inputs.v[value(s)];
                    delta += p * dot(dy, v);
                    add(&mut results.y[row * value_width..][..value_width], *p, v);
                    add(&mut results.dv[value(s)], *p, dy);
                }
                for (s, p) in p.iter().enumerate() {
                    let ds = scale * p * (dot(dy, &inputs.v[value(s)]) - delta);
                    add(&mut results.dq[row * width..][..width], ds, &inputs.k[at(s)]);
                    add(&mut results.dk[at(s)], ds, q);
                }
            }
        }
    }
    results
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += factor * from;
    }
}
