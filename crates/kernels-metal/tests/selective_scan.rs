//! The selective scan as an operation of MLX, against float64.
#![allow(clippy::unwrap_used)] // A test file: `allow-unwrap-in-tests` sees only `#[test]` functions.

mod reference;

use kernels_metal::selective_scan::{Grads, Inputs, SelectiveScan, Sizes};
use kernels_metal::{Error, Result};
use mlx_safe::{Array, DeviceType, Dtype, MetalKernel, Stream, grad, vjp};
use reference::{Problem, near};

const MILD: (f64, f64) = (-4.0, -0.01);
/// dt A reaches -129: exp of its opposite would be infinite in float32.
const STEEP: (f64, f64) = (-46.4, -1.0);

fn array(data: &[f32], shape: &[usize]) -> Array {
    Array::from_slice(data, &shape.iter().map(|&n| n as i32).collect::<Vec<_>>()).unwrap()
}

fn inputs(problem: &Problem) -> Inputs {
    let Sizes { steps, batch, channels, states } = problem.sizes;
    Inputs {
        dt: array(&problem.dt, &[steps, batch, channels]),
        x: array(&problem.x, &[steps, batch, channels]),
        b: array(&problem.b, &[steps, batch, states]),
        c: array(&problem.c, &[steps, batch, states]),
        a: array(&problem.a, &[channels, states]),
        h0: problem.h0.as_ref().map(|h0| array(h0, &[batch, channels, states])),
    }
}

fn incoming(problem: &Problem) -> (Array, Array) {
    let Sizes { steps, batch, channels, states } = problem.sizes;
    (array(&problem.dy, &[steps, batch, channels]), array(&problem.dh, &[batch, channels, states]))
}

fn list(grads: &Grads) -> [&Array; 6] {
    [&grads.dt, &grads.x, &grads.b, &grads.c, &grads.a, &grads.h0]
}

const NAMES: [&str; 6] = ["by dt", "by x", "by b", "by c", "by a", "by h0"];

fn check(sizes: [usize; 4], range: (f64, f64), h0: bool) {
    let problem = Problem::new(sizes, range, h0);
    let inputs = inputs(&problem);
    for reverse in [false, true] {
        let wanted = problem.solve(reverse);
        let scan = SelectiveScan { reverse };
        let what = format!("{sizes:?} reverse {reverse}");
        let got = scan.forward(&inputs).unwrap();
        assert_eq!(got.y.shape(), inputs.x.shape());
        near(&format!("{what} y"), &got.y.to_vec().unwrap(), &wanted.y, 1e-5);
        near(&format!("{what} h"), &got.h.to_vec().unwrap(), &wanted.h, 1e-5);
        let (dy, dh) = incoming(&problem);
        let grads = scan.grad(&inputs, &dy, Some(&dh)).unwrap();
        for ((name, got), wanted) in NAMES.iter().zip(list(&grads)).zip(&wanted.grads) {
            near(&format!("{what} {name}"), &got.to_vec().unwrap(), wanted, 2e-5);
        }
    }
}

#[test]
fn agrees_with_float64() {
    check([1, 1, 1, 1], MILD, true);
    check([37, 3, 5, 16], MILD, false);
    check([64, 2, 33, 7], MILD, true);
}

#[test]
fn decays_past_the_range_of_exp_underflow_to_zero() {
    check([24, 2, 3, 7], STEEP, true);
}

/// Every form that a GPU's kernels take, few and many channels, and steps in several segments.
#[test]
fn all_forms() {
    for states in [1, 2, 3, 7, 16, 32, 64, 100, 250] {
        check([70, 2, 35, states], MILD, states % 2 == 0);
    }
    check([9, 3, 2801, 16], MILD, true);
    check([8192, 1, 3, 16], MILD, true);
    check([1024, 1, 2, 7], STEEP, false);
}

#[test]
fn sizes_of_zero() {
    for sizes in [[0, 2, 3, 4], [3, 0, 3, 4], [3, 2, 0, 4], [3, 2, 3, 0]] {
        check(sizes, MILD, true);
        check(sizes, MILD, false);
    }
}

#[test]
fn the_composed_form_agrees_with_float64() {
    for (sizes, range) in [([0, 2, 3, 4], MILD), ([37, 3, 5, 16], MILD), ([24, 2, 3, 7], STEEP)] {
        let problem = Problem::new(sizes, range, true);
        for reverse in [false, true] {
            let wanted = problem.solve(reverse);
            let got = SelectiveScan { reverse }.composed(&inputs(&problem)).unwrap();
            near("y", &got.y.to_vec().unwrap(), &wanted.y, 1e-5);
            near("h", &got.h.to_vec().unwrap(), &wanted.h, 1e-5);
        }
    }
}

#[test]
fn mlx_differentiates_it_as_the_composed_form() {
    let problem = Problem::new([9, 2, 3, 4], MILD, true);
    let (dy, dh) = incoming(&problem);
    let all = inputs(&problem);
    let primals = [&all.dt, &all.x, &all.b, &all.c, &all.a, all.h0.as_ref().unwrap()].map(Clone::clone);
    for reverse in [false, true] {
        let scan = SelectiveScan { reverse };
        let of = |p: &[Array]| Inputs {
            dt: p[0].clone(),
            x: p[1].clone(),
            b: p[2].clone(),
            c: p[3].clone(),
            a: p[4].clone(),
            h0: Some(p[5].clone()),
        };
        let cotangents = [dy.clone(), dh.clone()];
        let (_, fused) = vjp(
            |p| {
                let out = scan.forward(&of(p))?;
                Ok(vec![out.y, out.h])
            },
            &primals,
            &cotangents,
        )
        .unwrap();
        let (_, plain) = vjp(
            |p| {
                let out = scan.composed(&of(p))?;
                Ok(vec![out.y, out.h])
            },
            &primals,
            &cotangents,
        )
        .unwrap();
        for ((name, fused), plain) in NAMES.iter().zip(&fused).zip(&plain) {
            let wanted: Vec<f64> = plain.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect();
            near(name, &fused.to_vec().unwrap(), &wanted, 2e-5);
        }
    }
}

#[test]
fn a_gradient_without_an_initial_state() {
    let problem = Problem::new([5, 2, 3, 4], MILD, false);
    let given = inputs(&problem);
    let with = given.clone();
    let by_a = grad(
        move |p| {
            let out = SelectiveScan::default().forward(&Inputs { a: p[0].clone(), ..with.clone() })?;
            out.y.sum(&[0, 1, 2], false)
        },
        &[0],
    );
    let got = by_a(std::slice::from_ref(&given.a)).unwrap()[0].to_vec::<f32>().unwrap();
    let ones = Problem { dy: vec![1.0; problem.dy.len()], dh: vec![0.0; problem.dh.len()], ..problem };
    near("by a", &got, &ones.solve(false).grads[4], 2e-5);
}

#[test]
fn half_types() {
    for (dtype, tolerance) in [(Dtype::Float16, 2e-3), (Dtype::Bfloat16, 2e-2)] {
        let mut problem = Problem::new([65, 3, 17, 7], MILD, true);
        let given = inputs(&problem);
        let cast = |x: &Array| x.astype(dtype).unwrap();
        let half = Inputs {
            dt: cast(&given.dt),
            x: cast(&given.x),
            b: cast(&given.b),
            c: cast(&given.c),
            ..given.clone()
        };
        // The reference sees what the kernel sees.
        let rounded = |x: &Array| x.astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap();
        problem.dt = rounded(&half.dt);
        problem.x = rounded(&half.x);
        problem.b = rounded(&half.b);
        problem.c = rounded(&half.c);
        let (dy, dh) = incoming(&problem);
        problem.dy = rounded(&cast(&dy));
        let wanted = problem.solve(false);
        let got = SelectiveScan::default().forward(&half).unwrap();
        assert_eq!((got.y.dtype(), got.h.dtype()), (dtype, Dtype::Float32));
        near("y", &rounded(&got.y), &wanted.y, tolerance);
        near("h", &rounded(&got.h), &wanted.h, 1e-5);
        let grads = SelectiveScan::default().grad(&half, &cast(&dy), Some(&dh)).unwrap();
        assert_eq!((grads.dt.dtype(), grads.a.dtype()), (dtype, Dtype::Float32));
        for ((name, got), wanted) in NAMES.iter().zip(list(&grads)).zip(&wanted.grads) {
            near(name, &rounded(got), wanted, tolerance);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let problem = Problem::new([2, 3, 4, 5], MILD, true);
    let good = inputs(&problem);
    let refused = |inputs: Inputs| -> Result<()> { SelectiveScan::default().forward(&inputs).map(drop) };
    assert!(refused(good.clone()).is_ok());
    let swapped = Inputs { b: good.dt.clone(), ..good.clone() };
    assert!(matches!(refused(swapped), Err(Error::Shape { array: "b", .. })));
    let flat = Inputs { x: array(&[0.0; 6], &[6]), ..good.clone() };
    assert!(matches!(refused(flat), Err(Error::Axes { array: "x", .. })));
    let mixed = Inputs { c: good.c.astype(Dtype::Float16).unwrap(), ..good.clone() };
    assert!(matches!(refused(mixed), Err(Error::Dtype { array: "c", .. })));
    let whole = Inputs { a: good.a.astype(Dtype::Int32).unwrap(), ..good.clone() };
    assert!(matches!(refused(whole), Err(Error::Dtype { array: "a", .. })));
    let state = Inputs { h0: Some(good.a.clone()), ..good.clone() };
    assert!(matches!(refused(state), Err(Error::Shape { array: "h0", .. })));
    let dy = SelectiveScan::default().grad(&good, &good.b, None);
    assert!(matches!(dy, Err(Error::Shape { array: "dy", .. })));
}

#[test]
fn the_kernel_has_a_name() {
    let wanted = match (Stream::current_device().unwrap(), MetalKernel::is_available()) {
        (DeviceType::Cpu, _) => "selective_scan/host",
        (DeviceType::Gpu, true) => "selective_scan/metal",
        (DeviceType::Gpu, false) => "selective_scan/cuda",
    };
    assert_eq!(SelectiveScan::default().kernel().unwrap(), wanted);
}
