//! Random numbers: types, shapes, ranges and moments, each within six standard errors of what the distribution has.
#![allow(clippy::unwrap_used)]

use mlx_safe::{Array, Device, Dtype, Stream, random};

const N: i32 = 40_000;

/// Mean and variance.
fn moments(x: &Array) -> (f64, f64) {
    let values = x.astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap();
    let n = values.len() as f64;
    let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
    (mean, values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n)
}

#[test]
fn distributions_have_their_moments() {
    let key = random::key(7).unwrap();
    let key = Some(&key);
    let s = |v: f32| Array::scalar(v);
    let (f, n) = (Dtype::Float32, &[N][..]);
    let euler = 0.577_215_664_9;
    let pi = std::f64::consts::PI;
    // Truncated to [-1, 1], the normal distribution has this variance.
    let truncated = 1.0 - 2.0 * 0.241_970_724_5 / 0.682_689_492_1;
    let low = Array::scalar(-2i32);
    let logits = Array::from_slice(&[0.0f32, 3.0f32.ln()], &[2]).unwrap();
    let draws = [
        ("uniform", random::uniform(&s(-1.0), &s(3.0), n, f, key), 1.0, 16.0 / 12.0),
        ("normal", random::normal(n, f, 2.0, 3.0, key), 2.0, 9.0),
        ("normal_broadcast", random::normal_broadcast(n, f, Some(&s(2.0)), Some(&s(0.5)), key), 2.0, 0.25),
        ("truncated_normal", random::truncated_normal(&s(-1.0), &s(1.0), n, f, key), 0.0, truncated),
        ("gumbel", random::gumbel(n, f, key), euler, pi * pi / 6.0),
        ("laplace", random::laplace(n, f, 1.0, 2.0, key), 1.0, 8.0),
        ("bernoulli", random::bernoulli(&s(0.25), n, key), 0.25, 0.1875),
        ("randint", random::randint(&low, &Array::scalar(3i32), n, Dtype::Int32, key), 0.0, 2.0),
        ("categorical_shape", random::categorical_shape(&logits, -1, n, key), 0.75, 0.1875),
        ("categorical_num_samples", random::categorical_num_samples(&logits, -1, N, key), 0.75, 0.1875),
        ("bits", random::bits(n, 1, key), 127.5, 65535.0 / 12.0),
    ];
    for (name, draw, mean, variance) in draws {
        let draw = draw.unwrap();
        assert_eq!(draw.shape(), n, "{name}");
        let (m, v) = moments(&draw);
        assert!((m - mean).abs() < 6.0 * (variance / f64::from(N)).sqrt(), "{name}: mean {m}, not {mean}");
        assert!((v - variance).abs() < 0.08 * variance, "{name}: variance {v}, not {variance}");
    }
}

#[test]
fn many_variables_keep_their_covariance() {
    let mean = Array::from_slice(&[1.0f32, -1.0], &[2]).unwrap();
    let covariance = Array::from_slice(&[2.0f32, 0.6, 0.6, 0.5], &[2, 2]).unwrap();
    let key = random::key(3).unwrap();
    let draw = || random::multivariate_normal(&mean, &covariance, &[N], Dtype::Float32, Some(&key));
    if Device::GPU.is_available().unwrap() {
        let error = Stream::default_on(Device::GPU).unwrap().scope(draw).unwrap_err().to_string();
        assert!(error.contains("[linalg::svd] This op is not yet"), "{error}");
    }
    let x = Stream::default_on(Device::CPU).unwrap().scope(draw).unwrap();
    assert_eq!(x.shape(), [N, 2]);
    let centred = x.subtract(&mean).unwrap();
    let got = centred.t().unwrap().matmul(&centred).unwrap().divide(&Array::scalar(N as f32)).unwrap();
    assert!(
        got.allclose(&covariance, 0.05, 0.02, false).unwrap().item::<bool>().unwrap(),
        "{:?}",
        got.to_vec::<f32>()
    );
}

#[test]
fn keys_and_seeds_repeat() {
    let key = random::key(11).unwrap();
    assert_eq!((key.shape(), key.dtype()), (&[2][..], Dtype::Uint32));
    let draw = |key: Option<&Array>| random::bits(&[8], 4, key).unwrap().to_vec::<u32>().unwrap();
    assert_eq!(draw(Some(&key)), draw(Some(&key)));
    let (first, second) = random::split(&key).unwrap();
    assert_ne!(draw(Some(&first)), draw(Some(&second)));
    assert_eq!(random::split_num(&key, 5).unwrap().shape(), [5, 2]);

    random::seed(5).unwrap();
    let (one, two) = (draw(None), draw(None));
    assert_ne!(one, two);
    random::seed(5).unwrap();
    assert_eq!([draw(None), draw(None)], [one, two]);
}

#[test]
fn permutations_keep_every_part() {
    let key = random::key(1).unwrap();
    let order = random::permutation_arange(100, Some(&key)).unwrap();
    let expected: Vec<u32> = (0..100).collect();
    assert_ne!(order.to_vec::<u32>().unwrap(), expected);
    assert_eq!(order.sort(-1).unwrap().to_vec::<u32>().unwrap(), expected);

    let x = mlx_safe::arange(0.0, 60.0, 1.0, Dtype::Int32).unwrap().reshape(&[2, 30]).unwrap();
    let mixed = random::permutation(&x, 1, Some(&key)).unwrap();
    assert_eq!(mixed.sort(1).unwrap().to_vec::<i32>().unwrap(), x.to_vec::<i32>().unwrap());
    // Columns move whole.
    let difference = mixed.index(1).unwrap().subtract(&mixed.index(0).unwrap()).unwrap();
    assert_eq!(difference.to_vec::<i32>().unwrap(), [30; 30]);

    let logits = Array::from_slice(&[0.0f32, 90.0, 0.0, 90.0, 0.0, 0.0], &[2, 3]).unwrap();
    let drawn = random::categorical(&logits, -1, Some(&key)).unwrap();
    assert_eq!(drawn.to_vec::<u32>().unwrap(), [1, 0]);
}
