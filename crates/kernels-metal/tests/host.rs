//! The selective scan over slices, at the extremes of its sizes and values, against float64.
#![allow(clippy::unwrap_used)] // A test file: `allow-unwrap-in-tests` sees only `#[test]` functions.

mod reference;

use kernels_metal::Error;
use kernels_metal::sample::Sample;
use kernels_metal::selective_scan::Sizes;
use kernels_metal::selective_scan::host::{Grads, Inputs, Outputs, forward, grad};
use reference::{Problem, near};

const MILD: (f64, f64) = (-4.0, -0.01);
/// dt A reaches -129: exp of its opposite would be infinite in float32.
const STEEP: (f64, f64) = (-46.4, -1.0);

fn solve<T: Sample>(problem: &Problem, reverse: bool) -> (Vec<f32>, Vec<f32>, [Vec<f32>; 6]) {
    let Sizes { steps, batch, channels, states } = problem.sizes;
    let (wide, rows, state) = (steps * batch * channels, steps * batch * states, batch * channels * states);
    let round = |from: &[f32]| {
        let mut to = vec![T::ZERO; from.len()];
        T::store(from, &mut to);
        to
    };
    let nan = |n| round(&vec![f32::NAN; n]);
    let (dt, x, b, c) = (round(&problem.dt), round(&problem.x), round(&problem.b), round(&problem.c));
    let inputs = Inputs { dt: &dt, x: &x, b: &b, c: &c, a: &problem.a, h0: problem.h0.as_deref() };
    // What was there must not matter.
    let (mut y, mut h) = (nan(wide), vec![f32::NAN; state]);
    forward(problem.sizes, &inputs, Outputs { y: &mut y, h: &mut h }, reverse).unwrap();
    let mut typed = [wide, wide, rows, rows].map(nan);
    let (mut by_a, mut by_h0) = (vec![f32::NAN; channels * states], vec![f32::NAN; state]);
    let [by_dt, by_x, by_b, by_c] = &mut typed;
    let grads = Grads { dt: by_dt, x: by_x, b: by_b, c: by_c, a: &mut by_a, h0: &mut by_h0 };
    grad(problem.sizes, &inputs, &round(&problem.dy), Some(&problem.dh), grads, reverse).unwrap();
    let wide = |from: &[T]| {
        let mut to = vec![0.0; from.len()];
        T::load(from, &mut to);
        to
    };
    let [by_dt, by_x, by_b, by_c] = typed.map(|list| wide(&list));
    (wide(&y), h, [by_dt, by_x, by_b, by_c, by_a, by_h0])
}

fn check(sizes: [usize; 4], range: (f64, f64), h0: bool) {
    let problem = Problem::new(sizes, range, h0);
    for reverse in [false, true] {
        let what = format!("{sizes:?} reverse {reverse}");
        let wanted = problem.solve(reverse);
        let (y, h, grads) = solve::<f32>(&problem, reverse);
        near(&format!("{what} y"), &y, &wanted.y, 1e-5);
        near(&format!("{what} h"), &h, &wanted.h, 1e-5);
        for (i, (got, wanted)) in grads.iter().zip(&wanted.grads).enumerate() {
            near(&format!("{what} gradient {i}"), got, wanted, 1e-5);
        }
    }
}

#[test]
fn lengths_around_those_of_chunks() {
    for steps in [0, 1, 2, 31, 32, 33, 63, 64, 65, 442] {
        check([steps, 3, 5, 16], MILD, steps % 2 == 0);
    }
    check([8192, 1, 3, 4], MILD, true);
    check([8192, 1, 2, 7], STEEP, false);
}

#[test]
fn numbers_of_channels_around_those_of_vectors_and_blocks() {
    for channels in [1, 7, 8, 15, 16, 17, 127, 129, 257, 300] {
        check([37, 3, channels, 5], MILD, true);
    }
}

#[test]
fn numbers_of_states() {
    for states in [1, 2, 3, 7, 8, 15, 16, 32, 64, 256] {
        check([33, 2, 19, states], MILD, states % 2 == 0);
        check([5, 1, 3, states], STEEP, true);
    }
}

#[test]
fn many_sequences() {
    check([40, 37, 18, 3], MILD, true);
    check([1, 100, 5, 2], MILD, true);
}

#[test]
fn zero_sizes() {
    for sizes in [[0, 2, 3, 4], [3, 0, 3, 4], [3, 2, 0, 4], [3, 2, 3, 0]] {
        check(sizes, MILD, true);
        check(sizes, MILD, false);
    }
}

#[test]
fn half_types_are_rounded_where_they_are_written_only() {
    fn of<T: Sample>(unit: f64) {
        let mut problem = Problem::new([70, 3, 133, 9], MILD, true);
        for list in [&mut problem.dt, &mut problem.x, &mut problem.b, &mut problem.c, &mut problem.dy] {
            let mut typed = vec![T::ZERO; list.len()];
            T::store(list, &mut typed);
            T::load(&typed, list);
        }
        let wanted = problem.solve(false);
        let (y, h, grads) = solve::<T>(&problem, false);
        near("y", &y, &wanted.y, unit);
        near("h", &h, &wanted.h, 1e-5);
        for (i, (got, wanted)) in grads.iter().zip(&wanted.grads).enumerate() {
            near(&format!("gradient {i}"), got, wanted, if i < 4 { unit } else { 1e-5 });
        }
    }
    // Half of the distance between neighbours, relative to the largest.
    of::<half::f16>(1.0 / 2048.0);
    of::<half::bf16>(1.0 / 256.0);
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let problem = Problem::new([130, 5, 300, 16], MILD, true);
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| solve::<f32>(&problem, true))
    };
    assert!(with(1) == with(5));
}

#[test]
fn positive_exponents_grow_to_infinity() {
    let mut problem = Problem::new([4, 1, 1, 1], MILD, true);
    (problem.a, problem.dt) = (vec![50.0], vec![2.0; 4]);
    problem.h0 = Some(vec![1.0]);
    let (_, h, _) = solve::<f32>(&problem, false);
    assert_eq!(h, [f32::INFINITY]);
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let sizes = Sizes { steps: 2, batch: 1, channels: 3, states: 2 };
    let (wide, rows, few) = ([0.0f32; 6], [0.0f32; 4], [0.0f32; 3]);
    let good = Inputs { dt: &wide[..], x: &wide, b: &rows, c: &rows, a: &wide, h0: None };
    let run = |inputs: &Inputs<'_, f32>, h: usize| {
        let (mut y, mut h) = ([0.0; 6], vec![0.0; h]);
        forward(sizes, inputs, Outputs { y: &mut y, h: &mut h }, false)
    };
    assert!(run(&good, 6).is_ok());
    let refused = |result| match result {
        Err(Error::Length { array, .. }) => array,
        _ => "nothing",
    };
    assert_eq!(refused(run(&good, 5)), "h");
    assert_eq!(refused(run(&Inputs { c: &few, ..good }, 6)), "c");
    assert_eq!(refused(run(&Inputs { h0: Some(&few), ..good }, 6)), "h0");
}

#[test]
fn the_reference_has_the_derivative_of_central_differences() {
    let problem = || Problem::new([5, 2, 3, 2], MILD, true);
    let loss = |p: &Problem| {
        let r = p.solve(false);
        let by_y: f64 = r.y.iter().zip(&p.dy).map(|(y, dy)| y * f64::from(*dy)).sum();
        by_y + r.h.iter().zip(&p.dh).map(|(h, dh)| h * f64::from(*dh)).sum::<f64>()
    };
    let grads = problem().solve(false).grads;
    for (which, grads) in grads.iter().enumerate() {
        for (i, wanted) in grads.iter().enumerate() {
            let (mut up, mut down) = (problem(), problem());
            let step = |p: &mut Problem, by: f32| {
                let list = match which {
                    0 => &mut p.dt,
                    1 => &mut p.x,
                    2 => &mut p.b,
                    3 => &mut p.c,
                    4 => &mut p.a,
                    _ => p.h0.as_mut().unwrap(),
                };
                list[i] += by;
                f64::from(list[i])
            };
            // Powers of two: the steps themselves are hardly rounded.
            let width = step(&mut up, 1.0 / 1024.0) - step(&mut down, -1.0 / 1024.0);
            let slope = (loss(&up) - loss(&down)) / width;
            assert!(
                (slope - wanted).abs() < 2e-4 * wanted.abs().max(1.0),
                "{which} {i}: {slope} for {wanted}"
            );
        }
    }
}
