//! The selective scan on a GPU through MLX, beside the machine's floor: `cargo bench -p kernels-metal --bench
//! selective_scan_gpu`. A call's time is what a longer batch of calls takes more than a shorter one, so that what an
//! evaluation costs once does not count; calls are compiled, and use inputs of their own where a set would fit into a cache.
//! Memory is MLX's peak beyond inputs and outputs, as a share of T B D N floats.
#![allow(clippy::unwrap_used)] // A bench: it stops where something fails.

use std::time::Instant;

use kernels_metal::Emitter;
use kernels_metal::selective_scan::{Inputs, SelectiveScan};
use mlx_safe::{Array, DeviceType, Dtype, Stream, compile, eval, memory, random};

/// Bytes per second and exponentials per second of an NVIDIA H200, measured there by copies and by a loop of `ex2`.
const H200: (f64, f64) = (4.3e12, 4.2e12);

const ROWS: [[i32; 4]; 5] =
    [[442, 16, 256, 16], [256, 442, 256, 16], [2048, 1, 1536, 16], [4096, 1, 5120, 16], [2048, 8, 2048, 16]];

/// dt, x, b, c, a and dy.
fn inputs([t, b, d, n]: [i32; 4]) -> Vec<Array> {
    let value = |low: f32, high: f32, shape: &[i32]| {
        let array = random::uniform(&Array::scalar(low), &Array::scalar(high), shape, Dtype::Float32, None);
        array.unwrap()
    };
    let list = vec![
        value(0.001, 0.1, &[t, b, d]),
        value(-1.0, 1.0, &[t, b, d]),
        value(-1.0, 1.0, &[t, b, n]),
        value(-1.0, 1.0, &[t, b, n]),
        value(-16.0, -0.05, &[d, n]),
        value(-1.0, 1.0, &[t, b, d]),
    ];
    eval(&list).unwrap();
    list
}

/// Milliseconds of one more call, from the medians of batches of `few` and of three times as many.
fn time(few: usize, call: impl Fn(usize) -> Vec<Array>) -> f64 {
    let batch = |calls: usize| {
        let mut times: Vec<f64> = (0..16)
            .map(|_| {
                let start = Instant::now();
                let outputs: Vec<Array> = (0..calls).flat_map(&call).collect();
                eval(&outputs).unwrap();
                start.elapsed().as_secs_f64() * 1e3
            })
            .skip(1)
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let short = batch(few);
    (batch(3 * few) - short) / (2 * few) as f64
}

/// Peak bytes of one call beyond what was there and what it gives.
fn extra(call: impl Fn() -> Vec<Array>) -> f64 {
    memory::clear_cache().unwrap();
    let before = memory::active().unwrap();
    memory::reset_peak().unwrap();
    let outputs = call();
    eval(&outputs).unwrap();
    let kept: usize = outputs.iter().map(Array::nbytes).sum();
    memory::peak().unwrap().saturating_sub(before + kept) as f64
}

fn main() {
    if Stream::current_device().unwrap() != DeviceType::Gpu {
        println!("no GPU: nothing to measure");
        return;
    }
    println!("kernels for {}", Emitter::current().unwrap());
    println!("| T, B, D, N | floor ms | forward ms | x floor | gradient ms | x forward | memory % |");
    println!("|---|---|---|---|---|---|---|");
    for row in ROWS {
        let [t, b, d, n] = row.map(f64::from);
        let bytes = 4.0 * (3.0 * t * b * d + 2.0 * t * b * n + 2.0 * b * d * n + d * n);
        let floor = (bytes / H200.0).max(t * b * d * n / H200.1) * 1e3;
        let small = t * b * d < 1e7;
        let sets: Vec<_> = (0..if small { 8 } else { 2 }).map(|_| inputs(row)).collect();
        let scan = SelectiveScan { reverse: false };
        let of = |list: &[Array]| Inputs {
            dt: list[0].clone(),
            x: list[1].clone(),
            b: list[2].clone(),
            c: list[3].clone(),
            a: list[4].clone(),
            h0: None,
        };
        let forward = compile(move |list| {
            let outputs = scan.forward(&of(list))?;
            Ok(vec![outputs.y, outputs.h])
        })
        .unwrap();
        let gradient = compile(move |list| {
            let grads = scan.grad(&of(list), &list[5], None)?;
            Ok(vec![grads.dt, grads.x, grads.b, grads.c, grads.a, grads.h0])
        })
        .unwrap();
        let forward = |i: usize| forward.apply(&sets[i % sets.len()]).unwrap();
        let gradient = |i: usize| gradient.apply(&sets[i % sets.len()]).unwrap();
        let share = extra(|| gradient(0)) / (4.0 * t * b * d * n) * 100.0;
        let few = if small { 64 } else { 8 };
        let (fast, slow) = (time(few, forward), time(few, gradient));
        println!(
            "| {row:?} | {floor:.3} | {fast:.4} | {:.2} | {slow:.4} | {:.2} | {share:.1} |",
            fast / floor,
            slow / fast
        );
    }
}
