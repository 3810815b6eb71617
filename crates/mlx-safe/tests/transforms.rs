//! Derivatives, compilation and what happens when a closure fails. Expected values are closed forms in float64.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::rc::Rc;

use mlx_safe::{Array, Error, Result};
use mlx_safe::{checkpoint, compile, compile_shapeless, custom_vjp, grad, jvp, value_and_grad, vjp, vmap};

type Function = fn(&[Array]) -> Result<Vec<Array>>;
type Slope = fn(f64) -> f64;
type Transform<'a> = &'a dyn Fn(&Array) -> Result<Array>;

const X: [f32; 3] = [0.5, -1.25, 2.0];

fn x() -> Array {
    Array::from_slice(&X, &[3]).unwrap()
}

#[track_caller]
fn close(array: &Array, expected: impl IntoIterator<Item = f64>) {
    let found = array.to_vec::<f32>().unwrap();
    let expected: Vec<f64> = expected.into_iter().collect();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{found} {expected}");
    }
}

/// x sin x, elementwise.
fn wave(x: &[Array]) -> Result<Vec<Array>> {
    Ok(vec![x[0].multiply(&x[0].sin()?)?])
}

fn wave_at(x: f32) -> (f64, f64) {
    let x = f64::from(x);
    (x * x.sin(), x.sin() + x * x.cos())
}

#[test]
fn vjp_and_jvp_weigh_the_jacobian() {
    let weights = [1.0f32, 10.0, -2.0];
    let w = Array::from_slice(&weights, &[3]).unwrap();
    let expected = || X.iter().zip(weights).map(|(&x, w)| wave_at(x).1 * f64::from(w));
    let (values, products) = vjp(wave, &[x()], std::slice::from_ref(&w)).unwrap();
    close(&values[0], X.iter().map(|&x| wave_at(x).0));
    close(&products[0], expected());
    let (values, products) = jvp(wave, &[x()], &[w]).unwrap();
    close(&values[0], X.iter().map(|&x| wave_at(x).0));
    close(&products[0], expected());
}

#[test]
fn gradients_by_some_inputs_come_in_ascending_order() {
    // sum(a^2 b c) by c and a.
    let f = |p: &[Array]| {
        Ok(vec![p[0].square()?.multiply(&p[1])?.multiply(&p[2])?.sum(&[0], false)?, p[1].clone()])
    };
    let b = Array::from_slice(&[3.0f32, -1.0, 0.5], &[3]).unwrap();
    let c = Array::scalar(4.0f32);
    let (values, gradients) = value_and_grad(f, &[2, 0])(&[x(), b, c]).unwrap();
    let b = [3.0, -1.0, 0.5];
    let squares: Vec<f64> = X.iter().zip(b).map(|(&x, b)| f64::from(x * x) * b).collect();
    assert_eq!(gradients.len(), 2);
    close(&values[0], [4.0 * squares.iter().sum::<f64>()]);
    close(&values[1], b);
    close(&gradients[0], X.iter().zip(b).map(|(&x, b)| 8.0 * f64::from(x) * b));
    close(&gradients[1], [squares.iter().sum::<f64>()]);
}

#[test]
fn second_derivatives() {
    // (x^3)'' = 6x
    let slope = grad(|x| x[0].multiply(&x[0])?.multiply(&x[0]), &[0]);
    let curvature = grad(move |x| Ok(slope(x)?.remove(0)), &[0]);
    close(&curvature(&[Array::scalar(1.5f32)]).unwrap()[0], [9.0]);
}

#[test]
fn an_own_derivative_is_used() {
    let f = custom_vjp(wave, |primals, cotangents, outputs| {
        assert_eq!((primals.len(), cotangents.len(), outputs.len()), (1, 1, 1));
        Ok(vec![cotangents[0].multiply(&Array::scalar(7.0f32))?])
    })
    .unwrap();
    close(&f.apply(&[x()]).unwrap()[0], X.iter().map(|&x| wave_at(x).0));
    let slope = grad(|x| f.apply(x)?[0].sum(&[0], false), &[0]);
    close(&slope(&[x()]).unwrap()[0], [7.0; 3]);
}

#[test]
fn wrong_own_derivatives_are_errors() {
    let cases: [(&str, Function); 3] = [
        ("0 arrays", |_| Ok(Vec::new())),
        ("shape [2]", |_| Ok(vec![Array::from_slice(&[1.0f32; 2], &[2])?])),
        ("on purpose", |_| panic!("on purpose")),
    ];
    for (word, wrong) in cases {
        let f = custom_vjp(wave, move |_, cotangents, _| wrong(cotangents)).unwrap();
        let slope = grad(|x| f.apply(x)?[0].sum(&[0], false), &[0]);
        let error = slope(&[x()]).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_checkpoint_computes_again() {
    let calls = Rc::new(Cell::new(0));
    let f = checkpoint(counting(&calls)).unwrap();
    let slope = grad(|x| f.apply(x)?[0].sum(&[0], false), &[0]);
    close(&slope(&[x()]).unwrap()[0], X.iter().map(|&x| wave_at(x).1));
    assert_eq!(calls.get(), 2);
}

/// [`wave`] that counts its calls.
fn counting(calls: &Rc<Cell<i32>>) -> impl Fn(&[Array]) -> Result<Vec<Array>> + use<> {
    let calls = calls.clone();
    move |x| {
        calls.set(calls.get() + 1);
        wave(x)
    }
}

#[test]
fn compiled_functions_trace_once_for_every_shape() {
    let calls = Rc::new(Cell::new(0));
    let f = compile(counting(&calls)).unwrap();
    for n in [3, 3, 2, 3, 2, 0] {
        let x = Array::from_slice(&X[..n], &[n as i32]).unwrap();
        close(&f.apply(&[x]).unwrap()[0], X[..n].iter().map(|&x| wave_at(x).0));
    }
    assert_eq!(calls.get(), 3);
}

#[test]
fn shapeless_functions_trace_once() {
    let calls = Rc::new(Cell::new(0));
    let f = compile_shapeless(counting(&calls)).unwrap();
    for n in [3, 2, 0, 1] {
        let x = Array::from_slice(&X[..n], &[n as i32]).unwrap();
        close(&f.apply(&[x]).unwrap()[0], X[..n].iter().map(|&x| wave_at(x).0));
    }
    assert_eq!(calls.get(), 1);
}

#[test]
fn compiling_and_differentiating_mix() {
    let f = Rc::new(compile(wave).unwrap());
    let slope = grad(|x| f.apply(x)?[0].sum(&[0], false), &[0]);
    close(&slope(&[x()]).unwrap()[0], X.iter().map(|&x| wave_at(x).1));
    let inner = f.clone();
    let compiled = compile(move |x| {
        let slope = grad(|x| inner.apply(x)?[0].sum(&[0], false), &[0]);
        slope(x)
    });
    close(&compiled.unwrap().apply(&[x()]).unwrap()[0], X.iter().map(|&x| wave_at(x).1));
}

#[test]
fn a_failed_trace_is_tried_again() {
    let calls = Cell::new(0);
    let f = compile(move |x| {
        calls.set(calls.get() + 1);
        match calls.get() {
            1 => Err(Error::Closure("not yet".into())),
            2 => panic!("nor yet"),
            3 => Ok(vec![x[0].reshape(&[7])?]),
            4 => Ok(vec![Array::scalar(x[0].to_vec::<f32>()?[0])]),
            _ => wave(x),
        }
    })
    .unwrap();
    for word in ["not yet", "nor yet", "reshape", "eval"] {
        let error = f.apply(&[x()]).unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
    close(&f.apply(&[x()]).unwrap()[0], X.iter().map(|&x| wave_at(x).0));
}

#[test]
fn vmap_applies_a_function_to_every_item() {
    // Columns of x against one matrix: y_j = M x_j + 1.
    let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    let m = Array::from_slice(&[1.0f32, 0.0, 2.0, -1.0], &[2, 2]).unwrap();
    let calls = Cell::new(0);
    let f = |p: &[Array]| {
        calls.set(calls.get() + 1);
        assert_eq!(p[0].shape(), [2]);
        Ok(vec![
            p[1].matmul(&p[0])?.add(&Array::scalar(1.0f32))?,
            p[0].sum(&[0], false)?,
            Array::scalar(7.0f32),
        ])
    };
    let y = vmap(f, &[x, m], &[Some(-1), None]).unwrap();
    assert_eq!(calls.get(), 1);
    assert_eq!(y[0].shape(), [3, 2]);
    close(&y[0], [2.0, -1.0, 3.0, 0.0, 4.0, 1.0]);
    close(&y[1], [5.0, 7.0, 9.0]);
    close(&y[2], [7.0; 3]);
}

#[test]
fn vmap_reports_what_it_cannot_do() {
    let error = |f: Function, axes: &[Option<i32>]| vmap(f, &[x()], axes).unwrap_err().to_string();
    assert!(error(wave, &[]).contains("axes"));
    assert!(error(wave, &[None]).contains("no input"));
    assert!(error(wave, &[Some(1)]).contains("axis 1"));
    assert!(vmap(wave, &[Array::scalar(1.0f32)], &[Some(0)]).is_err());
    let two = [x(), Array::from_slice(&[1.0f32; 2], &[2]).unwrap()];
    assert!(vmap(wave, &two, &[Some(0), Some(0)]).unwrap_err().to_string().contains("items"));
    let read: Function = |x| Ok(vec![Array::scalar(x[0].item::<f32>()?)]);
    assert!(error(read, &[Some(0)]).contains("eval"));
    assert!(vmap(|_| Ok(Vec::new()), &[x()], &[Some(0)]).unwrap().is_empty());
    close(&vmap(wave, &[x()], &[Some(0)]).unwrap()[0], X.iter().map(|&x| wave_at(x).0));
}

#[test]
fn failures_of_every_transformation_reach_the_caller() {
    let failures: [(&str, Function); 3] = [
        ("my own", |_| Err(Error::Closure("my own".into()))),
        ("on purpose", |_| panic!("on purpose")),
        ("matmul", |x| Ok(vec![x[0].matmul(&Array::from_slice(&[1.0f32; 2], &[2])?)?])),
    ];
    for (word, f) in failures {
        let errors = [
            vjp(f, &[x()], &[x()]).unwrap_err(),
            jvp(f, &[x()], &[x()]).unwrap_err(),
            value_and_grad(f, &[0])(&[x()]).unwrap_err(),
            grad(move |x| Ok(f(x)?.remove(0)), &[0])(&[x()]).unwrap_err(),
            compile(f).unwrap().apply(&[x()]).unwrap_err(),
            vmap(f, &[Array::from_slice(&X, &[1, 3]).unwrap()], &[Some(0)]).unwrap_err(),
            compile_shapeless(f).unwrap().apply(&[x()]).unwrap_err(),
            checkpoint(f).unwrap().apply(&[x()]).unwrap_err(),
            custom_vjp(f, |_, c, _| Ok(c.to_vec())).unwrap().apply(&[x()]).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    }
    close(&wave(&[x()]).unwrap()[0], X.iter().map(|&x| wave_at(x).0));
}

#[test]
fn misuse_is_an_error() {
    let sum = |x: &[Array]| x[0].sum(&[0], false);
    let both = |x: &[Array]| Ok(vec![x[0].sum(&[0], false)?]);
    let none = |_: &[Array]| Ok(Vec::new());
    assert!(value_and_grad(none, &[0])(&[x()]).is_err());
    assert!(value_and_grad(wave, &[0])(&[x()]).unwrap_err().to_string().contains("scalar"));
    assert!(grad(sum, &[])(&[x()]).is_err());
    assert!(grad(sum, &[0, 0])(&[x()]).is_err());
    assert!(grad(sum, &[1])(&[x()]).is_err());
    assert!(grad(sum, &[-1])(&[x()]).is_err());
    assert!(grad(|_| Ok(Array::scalar(1.0f32)), &[0])(&[]).is_err());
    assert!(vjp(both, &[x()], &[]).is_err());
    assert!(vjp(both, &[x()], &[x()]).is_err());
    assert!(vjp(none, &[x()], &[x()]).is_err());
    assert!(vjp(none, &[], &[]).unwrap().1.is_empty());
    assert!(jvp(both, &[x()], &[]).is_err());
    assert!(jvp(both, &[x()], &[Array::scalar(1.0f32)]).is_err());
    assert!(compile(none).unwrap().apply(&[]).unwrap().is_empty());
}

#[test]
fn per_cent_signs_in_messages_are_text() {
    let f = compile(|_| Err(Error::Closure("%s%n%d".into()))).unwrap();
    assert!(f.apply(&[]).unwrap_err().to_string().contains("%s%n%d"));
    assert!(mlx_safe::einsum("%s%s%n%n", &[x()]).is_err());
}

/// Outputs that no gradient flows through, that are an input, or that are one array take their own cotangents.
#[test]
fn every_output_has_its_cotangent() {
    let (one, ten) = (Array::scalar(1.0f32), Array::scalar(10.0f32));
    let cotangents = [one, ten].map(|c| c.broadcast_to(&[3]).unwrap());
    let cases: [(Function, Slope); 4] = [
        (|x| Ok(vec![x[0].stop_gradient()?, x[0].square()?]), |x| 20.0 * x),
        (|x| Ok(vec![x[0].square()?, x[0].stop_gradient()?]), |x| 2.0 * x),
        (|x| x[0].square().map(|y| vec![y.clone(), y]), |x| 22.0 * x),
        (|x| Ok(vec![x[0].clone(), x[0].clone()]), |_| 11.0),
    ];
    for (function, slope) in cases {
        let again = checkpoint(function).unwrap();
        let plain = vjp(function, &[x()], &cotangents).unwrap().1;
        let checkpointed = vjp(|x| again.apply(x), &[x()], &cotangents).unwrap().1;
        for product in [&plain[0], &checkpointed[0]] {
            close(product, X.iter().map(|&x| slope(f64::from(x))));
        }
    }
}

#[test]
fn functions_without_an_output_or_with_another_number_later_are_errors() {
    let none = |x: &[Array]| Ok(x[..0].to_vec());
    let error = custom_vjp(none, |x, _, _| Ok(x.to_vec())).unwrap().apply(&[x()]).unwrap_err().to_string();
    assert!(error.contains("no output"), "{error}");
    assert!(checkpoint(none).unwrap().apply(&[x()]).is_err());
    let calls = Cell::new(0);
    let fickle = checkpoint(move |x| {
        calls.set(calls.get() + 1);
        Ok(vec![x[0].square()?; if calls.get() == 1 { 1 } else { 2 }])
    });
    let fickle = fickle.unwrap();
    assert!(grad(|x| fickle.apply(x)?[0].sum(.., false), &[0])(&[x()]).is_err());
}

/// What MLX's own rules get wrong: items along another axis than the first, factors of `addmm`, triangles.
#[test]
fn rules_of_single_operations() {
    let numbers = |shape: &[i32]| {
        let n: i32 = shape.iter().product();
        Array::from_slice(&(0..n).map(|i| 1.0 + (i * 7 % 5) as f32).collect::<Vec<_>>(), shape).unwrap()
    };
    let at = Array::from_slice(&[3i32, 1], &[2]).unwrap();
    let put = |x: &[Array]| {
        Ok(vec![x[0].scatter(mlx_safe::ScatterMode::Set, std::slice::from_ref(&at), &x[1], &[0])?])
    };
    let (base, updates) = (numbers(&[4, 2, 3]), numbers(&[2, 1, 2, 3]));
    let found = vmap(put, &[base.clone(), updates.clone()], &[Some(2), Some(3)]).unwrap().remove(0);
    for item in 0..3 {
        let one = put(&[base.index((.., .., item)).unwrap(), updates.slice_axis(-1, item).unwrap()]);
        assert_eq!(
            found.index(item).unwrap().to_vec::<f32>().unwrap(),
            one.unwrap()[0].to_vec::<f32>().unwrap()
        );
    }

    // 3 (A B) + 2 C, for directions that are the arrays themselves: 6 (A B) + 2 C.
    let [c, a, b] = [[2, 2], [2, 3], [3, 2]].map(|shape| numbers(&shape));
    let addmm = |x: &[Array]| Ok(vec![x[0].addmm(&x[1], &x[2], 3.0, 2.0)?]);
    let inputs = [c.clone(), a.clone(), b.clone()];
    let (value, slope) = jvp(addmm, &inputs, &inputs).unwrap();
    let (product, c) = (a.matmul(&b).unwrap().to_vec::<f32>().unwrap(), c.to_vec::<f32>().unwrap());
    let sums =
        |factor: f64| product.iter().zip(&c).map(move |(p, c)| factor * f64::from(*p) + 2.0 * f64::from(*c));
    close(&value[0], sums(3.0));
    close(&slope[0], sums(6.0));

    // The upper triangle is ((1, 2), (0, 4)), its inverse ((1, -1/2), (0, 1/4)).
    let matrix = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[1, 2, 2]).unwrap();
    let cpu = mlx_safe::Stream::default_on(mlx_safe::Device::CPU).unwrap();
    let inverse = |x: &[Array]| Ok(vec![mlx_safe::linalg::tri_inv(&x[0], true)?]);
    let inverse =
        cpu.scope(|| vmap(inverse, &[matrix], &[Some(0)]).unwrap().remove(0).to_vec::<f32>().unwrap());
    assert_eq!(inverse, [1.0, -0.5, 0.0, 0.25]);
}

/// A transform is linear: its `jvp` is itself, and so is every item of its `vmap`.
#[test]
fn real_transforms_of_any_size_under_jvp_and_vmap() {
    use mlx_safe::fft::{FftNorm, irfft, irfft2, irfftn};
    let signal =
        Array::from_slice(&[1.0f32, -2.0, 0.5, 3.0, 2.0, -1.0, 4.0, 0.0, 1.5, 2.5], &[2, 5]).unwrap();
    let back = mlx_safe::fft::rfft(&signal, None, 1, FftNorm::Ortho).unwrap();
    let back = irfft(&back, Some(5), 1, FftNorm::Ortho).unwrap().to_vec::<f32>().unwrap();
    let signal = signal.to_vec::<f32>().unwrap();
    assert!(back.iter().zip(&signal).all(|(a, b)| (a - b).abs() < 1e-5), "{back:?}");

    let x = (0..24).map(|i| num_complex::Complex32::new((i * 7 % 5) as f32, (i * 5 % 3) as f32));
    let x = Array::from_slice(&x.collect::<Vec<_>>(), &[2, 3, 4]).unwrap();
    for n in [3, 4, 5, 7, 9] {
        let transforms: [Transform; 3] = [
            &|x| irfft(x, Some(n), -1, FftNorm::Ortho),
            &|x| irfft2(x, Some(&[2, n]), [-2, -1], FftNorm::Forward),
            &|x| irfftn(x, Some(&[n]), &[-2], FftNorm::Backward),
        ];
        for transform in transforms {
            let f = |x: &[Array]| Ok(vec![transform(&x[0])?]);
            let expected = transform(&x).unwrap();
            let found = [
                jvp(f, std::slice::from_ref(&x), std::slice::from_ref(&x)).unwrap().1.remove(0),
                vmap(f, std::slice::from_ref(&x), &[Some(0)]).unwrap().remove(0),
            ];
            for found in found {
                assert_eq!(found.shape(), expected.shape());
                close(&found, expected.to_vec::<f32>().unwrap().into_iter().map(f64::from));
            }
        }
    }
    let huge = Array::scalar(1.0f32).broadcast_to(&[i32::MAX]).unwrap();
    assert!(irfft(&huge, None, 0, FftNorm::Backward).is_err());
    assert!(irfft2(&x, Some(&[3, 3]), [1, 1], FftNorm::Backward).is_err());
}

/// Slices of one element have derivatives and items as others do.
#[test]
fn slices_of_one_element_under_transformations() {
    let x = Array::from_slice(&(0..12).map(|i| i as f32).collect::<Vec<_>>(), &[1, 3, 4]).unwrap();
    let cases: [(Function, &[usize]); 5] = [
        (|x| Ok(vec![x[0].slice(&[0, 1, 0], &[1, 2, 4], &[1, 1, 100])?]), &[4]),
        (|x| Ok(vec![x[0].slice(&[0, 2, 3], &[-2, 1, -5], &[-1, -1, -100])?]), &[11]),
        (|x| Ok(vec![x[0].slice(&[0, 0, 1], &[1, 1, -6], &[1, 1, -2])?]), &[1]),
        (|x| Ok(vec![x[0].slice(&[0, 0, 3], &[1, 1, 0], &[1, 1, -2])?]), &[3, 1]),
        (|x| Ok(vec![x[0].index((.., 1..2, ..2))?.flip(..)?]), &[5, 4]),
    ];
    for (function, taken) in cases {
        let expected: Vec<f64> = taken.iter().map(|&i| i as f64).collect();
        let value = function(std::slice::from_ref(&x)).unwrap().remove(0);
        close(&value, expected.iter().copied());
        let inputs = std::slice::from_ref(&x);
        close(&jvp(function, inputs, inputs).unwrap().1[0], expected.iter().copied());
        let slopes = vjp(function, inputs, std::slice::from_ref(&value)).unwrap().1.remove(0);
        close(&slopes, (0..12).map(|i| if taken.contains(&i) { i as f64 } else { 0.0 }));
        let both = mlx_safe::stack(&[x.clone(), x.clone()], 0).unwrap();
        let items = vmap(function, &[both], &[Some(0)]).unwrap().remove(0);
        close(&items, expected.iter().chain(&expected).copied());
    }
}
