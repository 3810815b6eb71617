//! The host's selective scan beside what bounds it: the exponentials that all threads together can compute.
//! `cargo bench -p kernels-metal`.
//!
//! The floor is measured with the scan's own 2^x, by every thread at once, over data that stays in the first-level cache.
//! Every time is the best of several runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use kernels_metal::selective_scan::{Sizes, host};
use kernels_metal::simd::{Exp2, Work, dispatch};
use pulp::Simd;
use rayon::prelude::*;

const SIZES: [[usize; 4]; 5] =
    [[442, 16, 256, 16], [256, 442, 256, 16], [2048, 1, 1536, 16], [442, 16, 255, 7], [4096, 1, 16, 16]];

fn best(runs: usize, mut work: impl FnMut()) -> Duration {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .min()
        .unwrap_or_default()
}

/// Exponentials of a cache's worth of numbers, again and again.
struct Exponentials<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
    rounds: usize,
}

impl Work for Exponentials<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, E: Exp2<S>>(self, simd: S, exp: E) {
        let ((x, _), (y, _)) = (S::as_simd_f32s(self.x), S::as_mut_simd_f32s(self.y));
        for _ in 0..self.rounds {
            for (x, y) in black_box(x).iter().zip(&mut *y) {
                *y = exp.exp2(simd, *x);
            }
        }
    }
}

/// Exponentials per second of all threads.
fn exponentials() -> f64 {
    const SIZE: usize = 2048;
    const ROUNDS: usize = 5000;
    let threads = rayon::current_num_threads();
    let x: Vec<f32> = (0..SIZE).map(|i| -0.01 * i as f32).collect();
    let mut y = vec![0.0; SIZE * threads];
    let time = best(20, || {
        y.par_chunks_mut(SIZE).for_each(|y| dispatch(Exponentials { x: &x, y, rounds: ROUNDS }));
    });
    (SIZE * ROUNDS * threads) as f64 / time.as_secs_f64()
}

fn values(count: usize, low: f32, high: f32) -> Vec<f32> {
    (0..count).map(|i| low + (high - low) * (i as f64 * 0.754_877_666).fract() as f32).collect()
}

fn main() {
    let rate = exponentials();
    println!("{} threads: {:.2}e9 exponentials a second", rayon::current_num_threads(), rate / 1e9);
    println!(
        "{:>22} {:>9} {:>11} {:>7} {:>11} {:>7}",
        "T, B, D, N", "floor ms", "forward ms", "/floor", "gradient ms", "/floor"
    );
    for [steps, batch, channels, states] in SIZES {
        let sizes = Sizes { steps, batch, channels, states };
        let (wide, rows, state) =
            (steps * batch * channels, steps * batch * states, batch * channels * states);
        let (dt, x) = (values(wide, 0.001, 0.1), values(wide, -1.0, 1.0));
        let (b, c) = (values(rows, -1.0, 1.0), values(rows, -1.0, 1.0));
        let a = values(channels * states, -16.0, -1.0);
        let inputs = host::Inputs { dt: &dt, x: &x, b: &b, c: &c, a: &a, h0: None };
        let (mut y, mut h) = (vec![0.0f32; wide], vec![0.0; state]);
        let forward = best(10, || {
            let outputs = host::Outputs { y: &mut y, h: &mut h };
            host::forward(sizes, &inputs, outputs, false).expect("the lengths fit");
        });
        let mut grads = [wide, wide, rows, rows, channels * states, state].map(|n| vec![0.0f32; n]);
        let gradient = best(4, || {
            let [dt, x, b, c, a, h0] = &mut grads;
            let grads = host::Grads { dt, x, b, c, a, h0 };
            host::grad(sizes, &inputs, &y, None, grads, false).expect("the lengths fit");
        });
        let floor = (wide * states) as f64 / rate * 1e3;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "{:>22} {floor:>9.3} {:>11.3} {:>7.2} {:>11.3} {:>7.2}",
            format!("{steps}, {batch}, {channels}, {states}"),
            ms(forward),
            ms(forward) / floor,
            ms(gradient),
            ms(gradient) / floor
        );
    }
}
