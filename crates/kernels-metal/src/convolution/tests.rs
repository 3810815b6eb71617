//! Convolutions against sums in float64, over geometries of every kind.

use mlx_safe::{Device, Stream, vmap};

use super::*;

fn wave(length: usize, seed: usize) -> Vec<f32> {
    (0..length).map(|i| ((i * 7919 + i / 13 + seed) % 1009) as f32 / 500.0 - 1.0).collect()
}

fn reference(p: &Problem, x: &[f32], w: &[f32], bias: &[f32]) -> Vec<f64> {
    let Problem { rows, columns, .. } = *p;
    let at = |axis: Axis, window: usize, element: usize| {
        let at = (window * axis.stride + element * axis.dilation) as isize - axis.low;
        usize::try_from(at).ok().filter(|&at| at < axis.size)
    };
    let mut y = Vec::new();
    for n in 0..p.batch {
        for o in 0..p.groups * p.outputs {
            for (row, column) in (0..rows.output).flat_map(|r| (0..columns.output).map(move |c| (r, c))) {
                let mut sum = f64::from(bias[o]);
                for c in 0..p.channels {
                    let plane = (n * p.groups + o / p.outputs) * p.channels + c;
                    for (i, j) in (0..rows.kernel).flat_map(|i| (0..columns.kernel).map(move |j| (i, j))) {
                        if let (Some(r), Some(q)) = (at(rows, row, i), at(columns, column, j)) {
                            let weight = w[((o * p.channels + c) * rows.kernel + i) * columns.kernel + j];
                            let value = x[(plane * rows.size + r) * columns.size + q];
                            sum += f64::from(weight) * f64::from(value);
                        }
                    }
                }
                y.push(sum);
            }
        }
    }
    y
}

fn axis(size: usize, kernel: usize, stride: usize, dilation: usize, low: isize, output: usize) -> Axis {
    Axis { size, kernel, stride, dilation, low, output }
}

#[test]
fn sums_are_those_of_float64() {
    let axes = [
        (axis(9, 3, 1, 1, 1, 9), axis(40, 3, 1, 1, 1, 40)),
        (axis(9, 3, 2, 1, 1, 5), axis(41, 5, 2, 1, 2, 21)),
        (axis(9, 2, 3, 2, 0, 3), axis(70, 3, 3, 2, 4, 24)),
        (axis(5, 3, 1, 1, -1, 2), axis(23, 4, 2, 3, -2, 7)),
        (axis(1, 1, 1, 1, 0, 1), axis(300, 1, 1, 1, 0, 300)),
        (axis(2, 3, 1, 1, 3, 6), axis(2, 3, 1, 1, 40, 80)),
        (axis(17, 1, 2, 1, 0, 9), axis(17, 1, 2, 1, 0, 9)),
    ];
    for (rows, columns) in axes {
        for (groups, channels, outputs) in
            [(1, 1, 1), (1, 40, 11), (3, 1, 2), (20, 1, 1), (2, 3, 9), (1, 3, 33)]
        {
            let p = Problem { batch: 2, groups, channels, outputs, rows, columns };
            let x = wave(p.batch * groups * channels * p.rows.size * p.columns.size, 1);
            let w = wave(groups * outputs * channels * rows.kernel * columns.kernel, 2);
            let bias = wave(groups * outputs, 3);
            let mut y = vec![0.0; p.batch * groups * outputs * rows.output * columns.output];
            host::forward(&p, &x, &w, Some(&bias), &mut y).unwrap();
            for (y, wanted) in y.iter().zip(reference(&p, &x, &w, &bias)) {
                assert!((f64::from(*y) - wanted).abs() < 2e-5, "{p:?}: {y}, not {wanted}");
            }
        }
    }
}

#[test]
fn deep_windows_are_added_up_in_parts() {
    let (rows, columns) = (axis(6, 3, 1, 1, 1, 6), axis(6, 3, 1, 1, 1, 6));
    let p = Problem { batch: 1, groups: 1, channels: 70, outputs: 19, rows, columns };
    let (x, w) = (wave(70 * 36, 1), wave(19 * 70 * 9, 2));
    let mut y = vec![1.0; 19 * 36];
    host::forward(&p, &x, &w, None, &mut y).unwrap();
    for (y, wanted) in y.iter().zip(reference(&p, &x, &w, &[0.0; 19])) {
        assert!((f64::from(*y) - wanted).abs() < 1e-4, "{y}, not {wanted}");
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let window = Window { stride: 1, dilation: 1, low: 0, output: 2 };
    let of = |groups, x: &[i32], w: &[i32]| {
        let zeros = |shape: &[i32]| mlx_safe::zeros(shape, Dtype::Float32).unwrap();
        Convolution { windows: [window; 2], groups }
            .forward(&zeros(x), &zeros(w), None)
            .map(|y| y.shape().to_vec())
    };
    assert_eq!(of(2, &[1, 4, 3, 3], &[6, 2, 2, 2]).unwrap(), [1, 6, 2, 2]);
    assert_eq!(of(2, &[0, 4, 3, 3], &[6, 2, 2, 2]).unwrap(), [0, 6, 2, 2]);
    assert!(of(2, &[1, 4, 3, 3], &[6, 4, 2, 2]).is_err());
    assert!(of(2, &[1, 4, 3, 3], &[5, 2, 2, 2]).is_err());
    assert!(of(1, &[3, 3], &[5, 2, 2, 2]).is_err());
}

#[test]
fn images_are_vectorised() {
    let work = || {
        let window = Window { stride: 1, dilation: 1, low: 1, output: 4 };
        let convolution = Convolution { windows: [window; 2], groups: 1 };
        let array = |shape: &[i32], seed| {
            Array::from_slice(&wave(shape.iter().product::<i32>() as usize, seed), shape).unwrap()
        };
        let (x, w) = (array(&[2, 3, 4, 4, 5], 1), array(&[2, 3, 3, 3], 2));
        let f = |x: &[Array]| Ok(vec![convolution.forward(&x[0], &x[1], None)?]);
        let first = |x: &Array| x.moveaxis(4, 0).unwrap();
        let each = vmap(f, &[x.clone(), w.clone()], &[Some(4), None]).unwrap().remove(0);
        let whole = convolution.forward(&first(&x), &w, None).unwrap();
        assert_eq!(each.shape(), [5, 2, 2, 4, 4]);
        assert_eq!(each.to_vec::<f32>().unwrap(), whole.to_vec::<f32>().unwrap());
    };
    Stream::default_on(Device::CPU).unwrap().scope(work);
}
