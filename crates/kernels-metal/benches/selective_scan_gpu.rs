//! The selective scan on a GPU through MLX, beside the machine's floor: `cargo bench -p kernels-metal --bench
//! selective_scan_gpu`. A call's time is what a longer chain of calls takes more than a shorter one, so that what an
//! evaluation costs once does not count. Each call starts from the state that the one before it left: they do not overlap.
//! Calls are compiled, and use inputs of their own where a set would fit into a cache. Memory is MLX's peak beyond inputs and
//! outputs, as a share of T B D N floats.
#![allow(clippy::unwrap_used)] // A bench: it stops where something fails.

mod measure;

use kernels_metal::Emitter;
use kernels_metal::selective_scan::{Inputs, SelectiveScan};
use measure::{extra_bytes, one_more_ms};
use mlx_safe::{Array, DeviceType, Dtype, Stream, compile, eval, random, zeros};

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

/// Milliseconds of a call in a chain: the last output of each goes into the next one.
fn time(few: usize, state: &Array, call: impl Fn(usize, &Array) -> Vec<Array>) -> f64 {
    one_more_ms(few, 15, |count| {
        let mut outputs = vec![state.clone()];
        for i in 0..count {
            let more = call(i, &outputs[outputs.len() - 1]);
            outputs.extend(more);
        }
        outputs
    })
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
            h0: Some(list[6].clone()),
        };
        let forward = compile(move |list| {
            let outputs = scan.forward(&of(list))?;
            Ok(vec![outputs.y, outputs.h])
        })
        .unwrap();
        let gradient = compile(move |list| {
            let grads = scan.grad(&of(list), &list[5], Some(&list[7]))?;
            Ok(vec![grads.dt, grads.x, grads.b, grads.c, grads.a, grads.h0])
        })
        .unwrap();
        let with = |i: usize, states: &[&Array]| -> Vec<Array> {
            sets[i % sets.len()].iter().chain(states.iter().copied()).cloned().collect()
        };
        let state = zeros(&[row[1], row[2], row[3]], Dtype::Float32).unwrap();
        eval([&state]).unwrap();
        let forward = |i: usize, h0: &Array| forward.apply(&with(i, &[h0])).unwrap();
        let gradient = |i: usize, dh: &Array| gradient.apply(&with(i, &[&state, dh])).unwrap();
        let share = extra_bytes(|| gradient(0, &state)) / (4.0 * t * b * d * n) * 100.0;
        let few = if small { 64 } else { 8 };
        let (fast, slow) = (time(few, &state, forward), time(few, &state, gradient));
        println!(
            "| {row:?} | {floor:.3} | {fast:.4} | {:.2} | {slow:.4} | {:.2} | {share:.1} |",
            fast / floor,
            slow / fast
        );
    }
}
