//! Convolutions of any geometry and their derivatives, against sums written out in float64. Elements are small whole
//! numbers, so that results are exact.
#![allow(clippy::unwrap_used)]

use mlx_safe::{Array, ConvGeometry, Dtype, vjp};

/// Whole numbers that do not repeat soon.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> i32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n) as i32
    }

    fn array(&mut self, shape: &[i32]) -> Array {
        let count = shape.iter().product::<i32>();
        let values: Vec<f32> = (0..count).map(|_| self.below(7) as f32 - 3.0).collect();
        Array::from_slice(&values, shape).unwrap()
    }
}

fn read(array: &Array) -> Vec<f64> {
    array.astype(Dtype::Float64).unwrap().to_vec().unwrap()
}

/// Every product that a convolution of (N, L, C) with (O, K, C / groups) sums: indices of input, weight and output.
fn products(x: &[i32], w: &[i32], g: &ConvGeometry) -> Option<(i32, Vec<[usize; 3]>)> {
    let (step, stride, low) = (g.input_dilation[0], g.stride[0], g.padding_low[0]);
    let (reach, kernel) = ((x[1] - 1) * step + 1, (w[1] - 1) * g.kernel_dilation[0] + 1);
    let length = reach + low + g.padding_high[0];
    if length < kernel {
        return None;
    }
    let windows = (length - kernel) / stride + 1;
    let mut all = Vec::new();
    for ((n, t), (o, i)) in pairs(x[0], windows).flat_map(|nt| pairs(w[0], w[1]).map(move |oi| (nt, oi))) {
        let at = t * stride + i * g.kernel_dilation[0] - low;
        if at < 0 || at >= reach || at % step != 0 {
            continue;
        }
        let tap = if g.flip { w[1] - 1 - i } else { i };
        let first = o / (w[0] / g.groups) * w[2];
        all.extend((0..w[2]).map(|c| {
            let input = (n * x[1] + at / step) * x[2] + first + c;
            [input, (o * w[1] + tap) * w[2] + c, (n * windows + t) * w[0] + o].map(|i| i as usize)
        }));
    }
    Some((windows, all))
}

fn pairs(m: i32, n: i32) -> impl Iterator<Item = (i32, i32)> {
    (0..m).flat_map(move |i| (0..n).map(move |j| (i, j)))
}

#[test]
fn convolutions_and_their_derivatives_of_any_geometry() {
    let mut numbers = Numbers(1);
    let mut fitting = 0;
    for _ in 0..400 {
        let mut up_to = |n| 1 + numbers.below(n);
        let groups = up_to(2);
        let x = [up_to(2), up_to(7), groups * up_to(2)];
        let w = [groups * up_to(2), up_to(3), x[2] / groups];
        let g = ConvGeometry {
            stride: vec![up_to(3)],
            padding_low: vec![up_to(6) - 3],
            padding_high: vec![up_to(6) - 3],
            kernel_dilation: vec![up_to(3)],
            input_dilation: vec![up_to(3)],
            groups,
            flip: up_to(2) == 1,
        };
        let inputs = [numbers.array(&x), numbers.array(&w)];
        let convolve = |i: &[Array]| Ok(vec![i[0].conv_general(&i[1], &g)?]);
        let Some((windows, products)) = products(&x, &w, &g) else {
            assert!(convolve(&inputs).is_err(), "{g:?}");
            continue;
        };
        let cotangent = numbers.array(&[x[0], windows, w[0]]);
        let (y, derivatives) = vjp(convolve, &inputs, std::slice::from_ref(&cotangent)).unwrap();
        let found = [&y[0], &derivatives[0], &derivatives[1]].map(read);
        let (x, w, c) = (read(&inputs[0]), read(&inputs[1]), read(&cotangent));
        let mut expected = [vec![0.0; c.len()], vec![0.0; x.len()], vec![0.0; w.len()]];
        for [i, j, k] in products {
            expected[0][k] += x[i] * w[j];
            expected[1][i] += c[k] * w[j];
            expected[2][j] += c[k] * x[i];
        }
        assert_eq!(found, expected, "{inputs:?} {g:?}");
        fitting += 1;
    }
    assert!(fitting > 200, "{fitting}");
}

/// The transpose of a linear map is its derivative.
#[test]
fn transposed_convolutions_are_derivatives() {
    let mut numbers = Numbers(2);
    for _ in 0..100 {
        let (length, kernel, stride, dilation) =
            (1 + numbers.below(5), 1 + numbers.below(4), 1 + numbers.below(3), 1 + numbers.below(2));
        let padding = numbers.below(kernel as u64 + 1);
        let more = numbers.below(stride as u64);
        let spread = (length - 1) * stride - 2 * padding + (kernel - 1) * dilation + 1 + more;
        let (small, weight) = (numbers.array(&[1, length, 1]), numbers.array(&[1, kernel, 1]));
        let found = small.conv_transpose1d(&weight, stride, padding, dilation, more, 1);
        if spread < 1 {
            assert!(found.is_err());
            continue;
        }
        let wide = numbers.array(&[1, spread, 1]);
        let gathered = wide.conv1d(&weight, stride, padding, dilation, 1).unwrap();
        let (found, expected) = (read(&found.unwrap()), read(&wide));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        assert_eq!(dot(&found, &expected), dot(&read(&small), &read(&gathered)));
    }
}
