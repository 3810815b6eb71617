//! Host ops: what they compute, when, and how they fail. Expected values are computed in Rust.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mlx_safe::{Array, Device, Dtype, HostOp, Spec, Stream};
use mlx_safe::{compile, compile_shapeless, eval, grad, jvp, vmap, zeros};

/// Running sums along the last axis of a float32 array, with their derivative.
fn running_sum() -> HostOp {
    fn sums(name: &str, backward: bool) -> HostOp {
        HostOp::new(
            name,
            |inputs| Ok(inputs.to_vec()),
            move |inputs, outputs| {
                let width = inputs[0].shape().last().copied().ok_or("a scalar has no last axis")? as usize;
                let x = inputs[0].as_slice::<f32>()?;
                let y = outputs[0].as_mut_slice::<f32>()?;
                for (x, y) in x.chunks(width.max(1)).zip(y.chunks_mut(width.max(1))) {
                    let mut sum = 0.0;
                    for i in 0..width {
                        let i = if backward { width - 1 - i } else { i };
                        sum += x[i];
                        y[i] = sum;
                    }
                }
                Ok(())
            },
        )
    }
    let back = sums("running sum backwards", true);
    sums("running sum", false).with_vjp(move |_, cotangents, _| back.call(&[&cotangents[0]])).unwrap()
}

fn array(values: &[f32], shape: &[i32]) -> Array {
    Array::from_slice(values, shape).unwrap()
}

/// An op of one float32 input that fails as told.
fn failing(how: fn() -> Result<(), &'static str>) -> HostOp {
    HostOp::new("failing", |inputs| Ok(inputs.to_vec()), move |_, _| Ok(how()?))
}

#[test]
fn inputs_are_dense_and_outputs_lazy() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let op = HostOp::new(
        "double",
        |inputs| Ok(vec![inputs[0].clone(), Spec::new(&[], Dtype::Int64)]),
        move |inputs, outputs| {
            counted.fetch_add(1, Ordering::Relaxed);
            let x = inputs[0].as_slice::<f32>()?;
            for (y, x) in outputs[0].as_mut_slice::<f32>()?.iter_mut().zip(x) {
                *y = 2.0 * x;
            }
            outputs[1].as_mut_slice::<i64>()?[0] = x.len() as i64;
            Ok(())
        },
    );
    let x = array(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    for (view, expected) in [
        (x.clone(), vec![2.0, 4.0, 6.0, 8.0, 10.0, 12.0]),
        (x.transpose(&[1, 0]).unwrap(), vec![2.0, 8.0, 4.0, 10.0, 6.0, 12.0]),
        (x.flip(&[1]).unwrap(), vec![6.0, 4.0, 2.0, 12.0, 10.0, 8.0]),
        (array(&[7.0], &[1]).broadcast_to(&[3]).unwrap(), vec![14.0; 3]),
        (Array::scalar(1.5f32), vec![3.0]),
        (zeros(&[3, 0], Dtype::Float32).unwrap(), vec![]),
    ] {
        let before = calls.load(Ordering::Relaxed);
        let outputs = op.call(&[&view]).unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), before);
        assert_eq!(outputs[0].shape(), view.shape());
        assert_eq!(outputs[0].to_vec::<f32>().unwrap(), expected);
        assert_eq!(outputs[1].item::<i64>().unwrap(), expected.len() as i64);
        assert_eq!(calls.load(Ordering::Relaxed), before + 1);
    }
}

#[test]
fn works_without_inputs_and_in_the_midst_of_a_graph() {
    let three = HostOp::new(
        "three",
        |_| Ok(vec![Spec::new(&[2], Dtype::Float32)]),
        |_, outputs| {
            outputs[0].as_mut_slice::<f32>()?.fill(3.0);
            Ok(())
        },
    );
    let three = three.call(&[]).unwrap().remove(0);
    let y = running_sum().call(&[&three.add(&three).unwrap()]).unwrap().remove(0);
    assert_eq!(y.square().unwrap().to_vec::<f32>().unwrap(), [36.0, 144.0]);
}

#[test]
fn differentiates_through_its_vjp() {
    let op = running_sum();
    let weights = array(&[1.0, 10.0, 100.0], &[3]);
    let slope = grad(|x| op.call(&[&x[0]])?[0].multiply(&weights)?.sum(&[0], false), &[0]);
    assert_eq!(slope(&[array(&[5.0; 3], &[3])]).unwrap()[0].to_vec::<f32>().unwrap(), [111.0, 110.0, 100.0]);
}

#[test]
fn runs_inside_compiled_functions() {
    let (op, again) = (running_sum(), running_sum());
    let f = compile(move |x| Ok(vec![op.call(&[&x[0].add(&x[0])?])?[0].square()?])).unwrap();
    let g = compile_shapeless(move |x| Ok(vec![again.call(&[&x[0].add(&x[0])?])?[0].square()?])).unwrap();
    for f in [f, g] {
        for n in [3usize, 2, 3, 0] {
            let y = f.apply(&[array(&vec![1.0; n], &[n as i32])]).unwrap();
            let expected: Vec<f32> = (1..=n).map(|i| (2.0 * i as f32).powi(2)).collect();
            assert_eq!(y[0].to_vec::<f32>().unwrap(), expected);
        }
    }
    let op = running_sum();
    let slope = compile(move |x| grad(|x| op.call(&[&x[0]])?[0].sum(&[0], false), &[0])(x)).unwrap();
    let x = array(&[0.0; 3], &[3]);
    assert_eq!(slope.apply(&[x]).unwrap()[0].to_vec::<f32>().unwrap(), [3.0, 2.0, 1.0]);
}

#[test]
fn errors_and_panics_surface_at_eval_and_leave_the_stream_usable() {
    // Often: MLX itself stops for ever after about a hundred tasks that throw.
    for _ in 0..200 {
        for (how, word) in [
            ((|| Err("own %s error")) as fn() -> Result<(), &'static str>, "own %s error"),
            (|| std::panic::resume_unwind(Box::new("on purpose")), "on purpose"),
        ] {
            let y = failing(how).call(&[&array(&[1.0], &[1])]).unwrap().remove(0);
            let error = y.add(&y).unwrap().eval().unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("failing"), "{error}");
            let fine = running_sum().call(&[&array(&[1.0, 2.0], &[2])]).unwrap();
            assert_eq!(fine[0].to_vec::<f32>().unwrap(), [1.0, 3.0]);
            Stream::default_on(Device::CPU).unwrap().synchronize().unwrap();
        }
    }
}

#[test]
fn errors_of_work_in_the_background_come_at_the_next_wait() {
    let y = failing(|| Err("late")).call(&[&array(&[1.0], &[1])]).unwrap().remove(0);
    mlx_safe::async_eval([&y]).unwrap();
    let error = Stream::default_on(Device::CPU).unwrap().synchronize().unwrap_err().to_string();
    assert!(error.contains("late"), "{error}");
    array(&[1.0], &[1]).square().unwrap().eval().unwrap();
}

#[test]
fn wrong_promises_are_errors_of_the_call() {
    let op = |outputs: Vec<Spec>| HostOp::new("promises", move |_| Ok(outputs.clone()), |_, _| Ok(()));
    let message = |op: HostOp| op.call(&[]).unwrap_err().to_string();
    assert!(message(op(vec![])).contains("at least one output"));
    assert!(message(op(vec![Spec::new(&[-1], Dtype::Bool)])).contains("not possible"));
    assert!(message(op(vec![Spec::new(&[i32::MAX; 3], Dtype::Int64)])).contains("not possible"));
    assert!(message(HostOp::new("x", |_| Err("no %s".into()), |_, _| Ok(()))).contains("no %s"));
    assert!(message(HostOp::new("x", |_| panic!("on purpose"), |_, _| Ok(()))).contains("on purpose"));
}

#[test]
fn elements_of_another_type_are_refused() {
    let wrong = HostOp::new(
        "wrong",
        |inputs| Ok(inputs.to_vec()),
        |inputs, _| {
            inputs[0].as_slice::<i32>()?;
            Ok(())
        },
    );
    let error = wrong.call(&[&array(&[1.0], &[1])]).unwrap()[0].eval().unwrap_err().to_string();
    assert!(error.contains("Float32"), "{error}");
    let bools = HostOp::new(
        "bools",
        |_| Ok(vec![Spec::new(&[1], Dtype::Bool)]),
        |_, outputs| {
            outputs[0].bytes_mut()?[0] = 7;
            Ok(())
        },
    );
    assert!(bools.call(&[]).unwrap()[0].eval().is_err());
}

#[test]
fn what_it_has_not_is_said() {
    let op = failing(|| Ok(()));
    let error = grad(|x| op.call(&[&x[0]])?[0].sum(&[0], false), &[0])(&[array(&[1.0], &[1])]).unwrap_err();
    assert!(error.to_string().contains("has no vjp"), "{error}");
    let x = array(&[1.0], &[1]);
    let error = jvp(|x| op.call(&[&x[0]]), std::slice::from_ref(&x), std::slice::from_ref(&x)).unwrap_err();
    assert!(error.to_string().contains("has no jvp"), "{error}");
    assert!(op.clone().with_vjp(|_, c, _| Ok(c.to_vec())).is_err());
    let wrong = failing(|| Ok(())).with_vjp(|_, _, _| Ok(Vec::new())).unwrap();
    let error = grad(|x| wrong.call(&[&x[0]])?[0].sum(&[0], false), &[0])(&[x]).unwrap_err();
    assert!(error.to_string().contains("0 arrays"), "{error}");
}

#[test]
fn one_operation_serves_several_threads() {
    let op = running_sum();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let op = &op;
            scope.spawn(move || {
                let stream = Stream::new_on(Device::CPU).unwrap();
                stream.scope(|| {
                    for round in 0..50 {
                        let start = (thread * 100 + round) as f32;
                        let x = array(&[start, 1.0, 1.0], &[3]);
                        let y = op.call(&[&x]).unwrap().remove(0);
                        let z = op.call(&[&y]).unwrap().remove(0);
                        eval([&y, &z]).unwrap();
                        assert_eq!(y.to_vec::<f32>().unwrap(), [start, start + 1.0, start + 2.0]);
                        assert_eq!(z.to_vec::<f32>().unwrap()[2], 3.0 * start + 3.0);
                    }
                });
            });
        }
    });
}

#[test]
fn evaluating_inside_is_no_crash() {
    let op = HostOp::new(
        "nested",
        |inputs| Ok(inputs.to_vec()),
        |inputs, outputs| {
            let x = Array::from_slice(inputs[0].as_slice::<f32>()?, inputs[0].shape())?;
            outputs[0].as_mut_slice::<f32>()?.copy_from_slice(&x.add(&x)?.to_vec::<f32>()?);
            Ok(())
        },
    );
    let y = op.call(&[&array(&[2.0], &[1])]).unwrap().remove(0);
    if let Ok(values) = y.to_vec::<f32>() {
        assert_eq!(values, [4.0]);
    }
}

#[test]
fn what_it_captures_is_freed() {
    let held = Arc::new(());
    {
        let inside = held.clone();
        let op = HostOp::new(
            "holds",
            |inputs| Ok(inputs.to_vec()),
            move |_, _| {
                let _ = &inside;
                Ok(())
            },
        );
        let y = op.call(&[&array(&[1.0], &[1])]).unwrap();
        let unused = op.call(&[&array(&[1.0], &[1])]).unwrap();
        y[0].eval().unwrap();
        drop((y, unused));
        // Nothing tells when the stream's thread has let go of its task.
        Stream::default_on(Device::CPU).unwrap().synchronize().unwrap();
    }
    for _ in 0..1000 {
        if Arc::strong_count(&held) == 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{} references", Arc::strong_count(&held));
}

/// Adds the second input, one row, to the rows of the first.
fn add_row() -> HostOp {
    HostOp::in_place("add a row", |others, values| {
        let row = others[0].as_slice::<f32>()?;
        for (x, y) in values.as_mut_slice::<f32>()?.iter_mut().zip(row.iter().cycle()) {
            *x += y;
        }
        Ok(())
    })
}

#[test]
fn what_works_in_place_changes_nothing_that_is_held() {
    let (op, row) = (add_row(), array(&[10.0, 20.0], &[2]));
    let x = array(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    let y = op.call(&[&x, &row]).unwrap().remove(0);
    let z = op.call(&[&x.transpose(&[1, 0]).unwrap(), &row]).unwrap().remove(0);
    let w = op.call(&[&op.call(&[&x.add(&x).unwrap(), &row]).unwrap()[0], &row]).unwrap().remove(0);
    let broad = op.call(&[&Array::scalar(1.0f32).broadcast_to(&[2, 2]).unwrap(), &row]).unwrap().remove(0);
    eval([&y, &z, &w, &broad]).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(y.to_vec::<f32>().unwrap(), [11.0, 22.0, 13.0, 24.0]);
    assert_eq!(z.to_vec::<f32>().unwrap(), [11.0, 23.0, 12.0, 24.0]);
    assert_eq!(w.to_vec::<f32>().unwrap(), [22.0, 44.0, 26.0, 48.0]);
    assert_eq!(broad.to_vec::<f32>().unwrap(), [11.0, 21.0, 11.0, 21.0]);
}

#[test]
fn what_works_in_place_is_vectorised_by_its_first_input() {
    let (op, row) = (add_row(), array(&[10.0, 20.0], &[2]));
    let x = array(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    let f = |x: &[Array]| op.call(&[&x[0], &x[1]]);
    let y = vmap(f, &[x.clone(), row], &[Some(1), None]).unwrap();
    assert_eq!(y[0].shape(), [3, 2]);
    assert_eq!(y[0].to_vec::<f32>().unwrap(), [11.0, 24.0, 12.0, 25.0, 13.0, 26.0]);
    let error = vmap(f, &[x.clone(), x], &[Some(0), Some(0)]).unwrap_err().to_string();
    assert!(error.contains("cannot be vectorised"), "{error}");
}
