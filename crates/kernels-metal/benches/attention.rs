//! Attention forward and backward on the CPU, beside MLX's own attention and its VJP: medians of runs taken in turn.
//!
//! `cargo bench -p kernels-metal --bench attention -- [LENGTH...]`. B is 2, and 1 from 4096 on, where MLX takes gigabytes. On Linux it
//! also tells what the pullback takes at its peak, beyond inputs and outputs, at B, H, L, E = 1, 8, 8192, 64.

use std::time::Instant;

use kernels_metal::attention::{Attention, Inputs, Sizes, host};
use mlx_safe::fast::{Mask, scaled_dot_product_attention};
use mlx_safe::{Array, Device, Result, Stream, eval, random, vjp};

fn main() -> Result<()> {
    let mut lengths: Vec<i32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    if lengths.is_empty() {
        lengths = vec![1000, 1024, 2048];
    }
    Stream::default_on(Device::CPU)?.scope(|| -> Result<()> {
        println!("H, E = 16, 64, float32    B    L    ours ms    MLX ms    ratio");
        for length in lengths {
            for causal in [false, true] {
                let batch = if length < 4096 { 2 } else { 1 };
                let (ours, theirs) = medians(batch, length, causal)?;
                let kind = if causal { "causal" } else { "full" };
                println!(
                    "{kind:>16} {batch:>10} {length:>4} {ours:>10.1} {theirs:>9.1} {:>8.2}",
                    theirs / ours
                );
            }
        }
        Ok(())
    })?;
    if let Some(bytes) = peak() {
        println!("memory beyond inputs and outputs at 1, 8, 8192, 64: {:.1} MB", bytes as f64 / 1e6);
    }
    Ok(())
}

/// Bytes that a forward pass and a pullback take at their peak.
fn peak() -> Option<u64> {
    let sizes =
        Sizes { batch: 1, heads: 8, key_heads: 8, queries: 8192, keys: 8192, width: 64, value_width: 64 };
    let filled = |value| vec![value; 8 * 8192 * 64];
    let (q, k, v, dy) = (filled(0.1f32), filled(0.2), filled(0.3), filled(0.4));
    let (mut y, mut lse, mut dq, mut dk, mut dv) =
        (filled(1.0), vec![1.0; 8 * 8192], filled(1.0), filled(1.0), filled(1.0));
    // Makes the present use the peak so far.
    std::fs::write("/proc/self/clear_refs", "5").ok()?;
    let before = status("VmRSS:")?;
    let (attention, inputs) = (Attention::default(), host::Inputs { q: &q, k: &k, v: &v, mask: None });
    host::forward(&attention, sizes, &inputs, host::Outputs { y: &mut y, lse: &mut lse }).ok()?;
    let saved = Some(host::Saved { y: &y, lse: &lse });
    let grads = host::Grads { q: &mut dq, k: &mut dk, v: &mut dv };
    host::grad(&attention, sizes, &inputs, &dy, saved, grads).ok()?;
    Some(status("VmHWM:")?.saturating_sub(before))
}

/// A line of /proc/self/status, in bytes.
fn status(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// Milliseconds of ours and of MLX.
fn medians(batch: i32, length: i32, causal: bool) -> Result<(f64, f64)> {
    let array = || -> Result<Array> {
        let x = random::normal(&[batch, 16, length, 64], mlx_safe::Dtype::Float32, 0.0, 1.0, None)?;
        x.eval()?;
        Ok(x)
    };
    let primals = [array()?, array()?, array()?];
    let dy = [array()?];
    let ours = || {
        vjp(
            |x| {
                let inputs = Inputs { q: x[0].clone(), k: x[1].clone(), v: x[2].clone(), mask: None };
                Ok(vec![Attention { scale: None, causal }.apply(&inputs)?])
            },
            &primals,
            &dy,
        )
    };
    let mask = if causal { Mask::Causal } else { Mask::None };
    let theirs = || {
        let attention = |x: &[Array]| scaled_dot_product_attention(&x[0], &x[1], &x[2], 0.125, mask);
        vjp(|x| Ok(vec![attention(x)?]), &primals, &dy)
    };
    let runs = (5 * 1024 / length).max(1) as usize;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        times[0].push(time(&ours)?);
        times[1].push(time(&theirs)?);
    }
    let [ours, theirs] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[runs / 2]
    });
    Ok((ours, theirs))
}

fn time(work: &impl Fn() -> Result<(Vec<Array>, Vec<Array>)>) -> Result<f64> {
    let start = Instant::now();
    let (outputs, products) = work()?;
    eval(outputs.iter().chain(&products))?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
