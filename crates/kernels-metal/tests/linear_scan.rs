//! The diagonal recurrence as an operation of MLX, against float64 and MLX's own derivative of the plain loop.
#![allow(clippy::unwrap_used)] // A test file: `allow-unwrap-in-tests` sees only `#[test]` functions.

mod reference;

use kernels_metal::linear_scan::{Inputs, LinearScan, Outputs};
use kernels_metal::{Error, Result};
use mlx_safe::{Array, Dtype, stack, vjp};
use reference::{near, values};

/// The recurrence, in float64: all states and the last one. `a` has (T, M) elements.
fn solve(width: usize, a: &[f32], u: &[f32], h0: &[f32], reverse: bool) -> (Vec<f64>, Vec<f64>) {
    let steps = u.len() / width;
    let mut h: Vec<f64> = h0.iter().map(|&h| h.into()).collect();
    let mut states = vec![0.0; u.len()];
    for step in 0..steps {
        let t = if reverse { steps - 1 - step } else { step };
        for m in 0..width {
            h[m] = f64::from(a[t * width + m]) * h[m] + f64::from(u[t * width + m]);
            states[t * width + m] = h[m];
        }
    }
    (states, h)
}

fn array(data: &[f32], shape: &[i32]) -> Array {
    Array::from_slice(data, shape).unwrap()
}

#[test]
fn agrees_with_float64() {
    for (steps, inner) in [(0, [2, 3]), (1, [1, 1]), (77, [3, 5]), (1000, [1, 1]), (33, [16, 257])] {
        let width = (inner[0] * inner[1]) as usize;
        let shape = [steps, inner[0], inner[1]];
        let count = steps as usize * width;
        let (a, u) = (values(count, -1.0, 1.0, 1), values(count, -1.0, 1.0, 2));
        let h0 = values(width, -1.0, 1.0, 3);
        for reverse in [false, true] {
            let inputs = Inputs { a: array(&a, &shape), u: array(&u, &shape), h0: Some(array(&h0, &inner)) };
            let got = LinearScan { reverse }.forward(&inputs).unwrap();
            let (states, last) = solve(width, &a, &u, &h0, reverse);
            near("states", &got.states.to_vec().unwrap(), &states, 1e-5);
            near("last", &got.last.to_vec().unwrap(), &last, 1e-5);
        }
    }
}

#[test]
fn factors_broadcast() {
    let (steps, width) = (9, 6);
    let u = values(steps * width, -1.0, 1.0, 2);
    let forms: [(&[i32], usize, usize, usize); 5] =
        [(&[], 0, 0, 0), (&[3], 0, 0, 1), (&[2, 1], 0, 1, 0), (&[9, 1, 1], 1, 0, 0), (&[9, 1, 3], 3, 0, 1)];
    for (shape, by_step, by_row, by_column) in forms {
        let count = shape.iter().product::<i32>() as usize;
        let a = values(count, -1.0, 1.0, 1);
        let full: Vec<f32> = (0..steps * width)
            .map(|i| a[i / width * by_step + i % width / 3 * by_row + i % 3 * by_column])
            .collect();
        let inputs = Inputs { a: array(&a, shape), u: array(&u, &[9, 2, 3]), h0: None };
        let got = LinearScan::default().forward(&inputs).unwrap();
        let (states, _) = solve(width, &full, &u, &[0.0; 6], false);
        near(&format!("{shape:?}"), &got.states.to_vec().unwrap(), &states, 1e-5);
    }
}

fn plain(scan: LinearScan, a: &Array, u: &Array, h0: &Array) -> mlx_safe::Result<Outputs> {
    let a = a.broadcast_to(u.shape())?;
    let steps = u.dim(0)?;
    let at = |x: &Array, t: i32| x.slice(&[t, 0], &[t + 1, x.dim(1)?], &[1, 1])?.squeeze(&[0]);
    let (mut h, mut states) = (h0.clone(), Vec::new());
    for step in 0..steps {
        let t = if scan.reverse { steps - 1 - step } else { step };
        h = at(&a, t)?.multiply(&h)?.add(&at(u, t)?)?;
        states.push(h.clone());
    }
    if scan.reverse {
        states.reverse();
    }
    Ok(Outputs { states: stack(&states, 0)?, last: h })
}

#[test]
fn mlx_differentiates_it_as_the_plain_loop() {
    for (a_steps, steps) in [(7, 7), (1, 7), (1, 1)] {
        let a = array(&values(a_steps * 3, -1.0, 1.0, 1), &[a_steps as i32, 3]);
        let u = array(&values(steps * 3, -1.0, 1.0, 2), &[steps as i32, 3]);
        let h0 = array(&values(3, -1.0, 1.0, 3), &[3]);
        let cotangents =
            [array(&values(steps * 3, -1.0, 1.0, 4), &[steps as i32, 3]), array(&[1.0, -2.0, 0.5], &[3])];
        for reverse in [false, true] {
            let scan = LinearScan { reverse };
            let primals = [a.clone(), u.clone(), h0.clone()];
            let (_, fused) = vjp(
                |p| {
                    let inputs = Inputs { a: p[0].clone(), u: p[1].clone(), h0: Some(p[2].clone()) };
                    let out = scan.forward(&inputs)?;
                    Ok(vec![out.states, out.last])
                },
                &primals,
                &cotangents,
            )
            .unwrap();
            let (_, plain) = vjp(
                |p| {
                    let out = plain(scan, &p[0], &p[1], &p[2])?;
                    Ok(vec![out.states, out.last])
                },
                &primals,
                &cotangents,
            )
            .unwrap();
            for ((name, fused), plain) in ["by a", "by u", "by h0"].iter().zip(&fused).zip(&plain) {
                let wanted: Vec<f64> = plain.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect();
                near(name, &fused.to_vec().unwrap(), &wanted, 1e-5);
            }
        }
    }
}

#[test]
fn half_types_keep_the_state_in_float32() {
    // 1 + 1/4096 is 1 in bfloat16: a state of that type would never grow.
    let inputs = Inputs {
        a: Array::scalar_of(1.0, Dtype::Bfloat16).unwrap(),
        u: array(&[1.0 / 4096.0; 2048], &[2048, 1]).astype(Dtype::Bfloat16).unwrap(),
        h0: Some(array(&[1.0], &[1])),
    };
    let got = LinearScan::default().forward(&inputs).unwrap();
    assert_eq!(got.states.dtype(), Dtype::Bfloat16);
    near("last", &got.last.to_vec().unwrap(), &[1.5], 1e-6);
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |a: &[i32], u: &[i32], h0: &[i32]| -> Result<()> {
        let zeros = |shape: &[i32]| mlx_safe::zeros(shape, Dtype::Float32).unwrap();
        let inputs = Inputs { a: zeros(a), u: zeros(u), h0: Some(zeros(h0)) };
        LinearScan::default().forward(&inputs).map(drop)
    };
    assert!(refused(&[4, 3], &[4, 3], &[3]).is_ok());
    assert!(matches!(refused(&[4, 2], &[4, 3], &[3]), Err(Error::Shape { array: "a", .. })));
    assert!(matches!(refused(&[4, 4, 3], &[4, 3], &[3]), Err(Error::Shape { array: "a", .. })));
    assert!(matches!(refused(&[4, 3], &[4, 3], &[4]), Err(Error::Shape { array: "h0", .. })));
    assert!(matches!(refused(&[], &[], &[]), Err(Error::Axes { array: "u", .. })));
}
