//! How the benches of GPU kernels measure time and memory.

use std::time::Instant;

use mlx_safe::{Array, eval, memory};

/// Milliseconds of one more call, from the medians of so many batches of `few` calls and of three times as many: what an
/// evaluation costs once does not count. `calls` gives all that so many calls give, to be evaluated together; the first
/// batch of a size warms up.
pub fn one_more_ms(few: usize, batches: usize, calls: impl Fn(usize) -> Vec<Array>) -> f64 {
    let median = |count: usize| {
        let mut times: Vec<f64> = (0..=batches)
            .map(|_| {
                let start = Instant::now();
                let outputs = calls(count);
                eval(&outputs).unwrap();
                start.elapsed().as_secs_f64() * 1e3
            })
            .skip(1)
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let short = median(few);
    (median(3 * few) - short) / (2 * few) as f64
}

/// Peak bytes of one call beyond what was there and what it gives.
pub fn extra_bytes(call: impl Fn() -> Vec<Array>) -> f64 {
    memory::clear_cache().unwrap();
    let before = memory::active().unwrap();
    memory::reset_peak().unwrap();
    let outputs = call();
    eval(&outputs).unwrap();
    let kept: usize = outputs.iter().map(Array::nbytes).sum();
    memory::peak().unwrap().saturating_sub(before + kept) as f64
}
