//! Attention and its pullback on the host, against float64.
#![allow(clippy::unwrap_used)] // A test file: `allow-unwrap-in-tests` sees only `#[test]` functions.

mod arrays;
mod case;
mod reference;

use case::{Case, Kind, case};
use half::{bf16, f16};

fn all_types(case: Case) {
    case.check::<f32>();
    case.check::<f16>();
    case.check::<bf16>();
}

#[test]
fn widths() {
    for width in [32, 64, 80, 96, 128, 256] {
        all_types(case(70, 150, width).heads(2, 2));
    }
    case(5, 7, 1).check::<f32>();
    case(5, 7, 33).check::<f32>();
}

#[test]
fn value_widths() {
    all_types(case(33, 45, 64).value_width(24));
    case(33, 45, 24).value_width(129).check::<f32>();
}

#[test]
fn lengths() {
    let lengths = [1, 2, 7, 63, 64, 65, 127, 128, 129, 257];
    for queries in lengths {
        for keys in lengths {
            case(queries, keys, 16).check::<f32>();
            case(queries, keys, 16).causal().check::<f32>();
        }
    }
}

#[test]
fn long() {
    case(4095, 1, 32).check::<f32>();
    case(1, 4095, 32).check::<f32>();
    case(1001, 2049, 32).causal().check::<f32>();
    all_types(case(1023, 1025, 32));
}

#[test]
fn four_thousand_by_four_thousand() {
    case(4096, 4095, 32).compare::<f32>(true);
    case(4095, 4096, 32).causal().compare::<f32>(false);
}

#[test]
fn shared_key_heads() {
    for group in [1, 2, 7] {
        all_types(case(67, 130, 32).batch(2).heads(2 * group, 2));
        case(300, 700, 16).heads(group, 1).causal().check::<f32>();
    }
}

#[test]
fn masks_of_all_shapes() {
    let shapes = [
        [2, 4, 66, 135],
        [1, 4, 66, 135],
        [2, 1, 66, 135],
        [1, 1, 66, 135],
        [2, 1, 1, 135],
        [1, 1, 66, 1],
        [2, 4, 66, 1],
        [1, 1, 1, 1],
        [1, 1, 66, 130],
        [1, 4, 1, 3],
    ];
    for shape in shapes {
        for kind in [Kind::Bool, Kind::Float] {
            let case = case(66, 135, 24).batch(2).heads(4, 2).mask(shape, kind);
            case.check::<f32>();
            case.causal().check::<f32>();
        }
    }
    all_types(case(66, 135, 24).mask([1, 1, 66, 130], Kind::Float));
    all_types(case(66, 135, 24).mask([1, 1, 66, 130], Kind::Bool).causal());
}

#[test]
fn rows_that_see_nothing_are_zero() {
    // Rows of the mask hide every key for some queries.
    all_types(case(65, 9, 32).mask([1, 1, 65, 1], Kind::Bool));
    all_types(case(65, 9, 32).mask([1, 1, 65, 9], Kind::Nothing));
    let (_, found) = case(65, 9, 32).mask([1, 1, 1, 1], Kind::Nothing).both::<f32>(true);
    assert!(found.y.iter().chain(&found.dq).chain(&found.dk).chain(&found.dv).all(|&x| x == 0.0));
    assert!(found.lse.iter().all(|&x| x == f32::NEG_INFINITY));
    case(65, 9, 32).mask([1, 1, 65, 0], Kind::Bool).check::<f32>();
}

/// Rows of three keys: some see none, and are even. A log-sum-exp cannot tell of how many numbers as low as that it is.
#[test]
fn low_numbers_take_the_place_of_scores() {
    case(65, 3, 32).mask([1, 1, 65, 3], Kind::Low).compare::<f32>(false);
    case(66, 135, 24).batch(2).heads(4, 2).mask([2, 1, 66, 135], Kind::Low).compare::<f32>(false);
}

#[test]
fn scales() {
    for scale in [0.0, 1e-30, 1e-6, 0.3, -1.0, 3.0] {
        all_types(case(70, 140, 32).scale(scale));
    }
    // Saved results cannot be exact where scores reach hundreds: lse has 24 bits.
    case(70, 140, 16).scale(8.0).range(0.5).compare::<f32>(false);
    // Here products and scores are exact, and some are equal.
    case(70, 140, 8).scale(4096.0).step(0.5).compare::<f32>(false);
}

#[test]
fn huge_scales_pick_the_largest_score() {
    for scale in [1e6, 1e20, -1e20] {
        for save in [false, true] {
            let (wanted, found) = case(40, 30, 16).scale(scale).both::<f32>(save);
            for (found, wanted) in found.y.iter().zip(&wanted.y) {
                assert!((f64::from(*found) - wanted).abs() < 1e-5, "{found} for {wanted}");
            }
            // Each row sees one key alone, so that nothing depends on queries and keys.
            assert!(found.dq.iter().chain(&found.dk).all(|&x| x == 0.0));
        }
    }
}

#[test]
fn nothing_gives_nothing() {
    case(0, 5, 8).batch(2).heads(4, 2).check::<f32>();
    case(5, 0, 8).batch(2).heads(4, 2).check::<f32>();
    case(5, 5, 8).batch(0).check::<f32>();
    case(0, 0, 8).causal().check::<f32>();
    case(5, 7, 8).value_width(0).check::<f32>();
}

#[test]
fn nan_stays_nan_and_in_its_rows() {
    use kernels_metal::attention::host::Inputs;
    let case = case(3, 5, 8);
    let mut q = case::values::<f32>(24, 1, 1.0);
    let (k, v, dy) = (case::values::<f32>(40, 2, 1.0), case::values::<f32>(40, 3, 1.0), vec![1.0; 24]);
    q[8] = f32::NAN;
    let found = case::Found::new(case, &Inputs { q: &q, k: &k, v: &v, mask: None }, &dy, true);
    for row in 0..3 {
        assert_eq!(found.y[row * 8..][..8].iter().all(|x| x.is_nan()), row == 1);
        assert_eq!(found.dq[row * 8..][..8].iter().any(|x| x.is_nan()), row == 1);
    }
    assert!(found.dk.iter().chain(&found.dv).all(|x| x.is_nan()));
}

#[test]
fn the_same_at_every_run() {
    let case = case(500, 1000, 32).heads(2, 1).causal();
    let (_, first) = case.both::<f32>(true);
    for _ in 0..3 {
        let (_, again) = case.both::<f32>(true);
        assert_eq!(first.dq, again.dq);
        assert_eq!(first.dk, again.dk);
        assert_eq!(first.dv, again.dv);
    }
}

#[test]
fn gradients_are_central_differences() {
    use kernels_metal::attention::{Attention, Sizes};
    let sizes = Sizes { batch: 1, heads: 2, key_heads: 1, queries: 5, keys: 7, width: 6, value_width: 4 };
    let attention = Attention { scale: Some(0.7), causal: true };
    let case = Case { attention, sizes, mask: Some(([1, 2, 5, 6], Kind::Float)), range: 1.0, step: 0.0 };
    let (_, found) = case.both::<f32>(true);
    let found = [found.dq, found.dk, found.dv];
    let double = |salt, count| -> Vec<f64> {
        case::values::<f32>(count, salt, 1.0).into_iter().map(f64::from).collect()
    };
    let mut inputs = [double(1, 60), double(2, 42), double(3, 28)];
    let dy = double(4, 40);
    let bias = |[_, h, l, s]: [usize; 4]| match case::random((h * 5 + l) * 6 + s, 9) {
        x if s < 6 && x < 0.875 => f64::from((2.0 * x) as f32),
        _ => f64::NEG_INFINITY,
    };
    let loss = |inputs: &[Vec<f64>; 3]| -> f64 {
        let [q, k, v] = inputs;
        let inputs = reference::Inputs { q, k, v, bias: &bias };
        let y = reference::attention(attention, sizes, &inputs, &dy).y;
        y.iter().zip(&dy).map(|(y, dy)| y * dy).sum()
    };
    for (which, found) in found.iter().enumerate() {
        for (i, found) in found.iter().enumerate() {
            let step = 1e-5;
            let x = inputs[which][i];
            inputs[which][i] = x + step;
            let above = loss(&inputs);
            inputs[which][i] = x - step;
            let slope = (above - loss(&inputs)) / (2.0 * step);
            inputs[which][i] = x;
            assert!((f64::from(*found) - slope).abs() < 1e-5, "{found} for {slope}, input {which} at {i}");
        }
    }
}

#[test]
fn wrong_sizes_are_errors() {
    use kernels_metal::attention::host::{Inputs, Mask, MaskValues, Outputs, forward};
    let wrong = |case: Case, mask: Option<Mask>, keys: usize| {
        let (q, k, v) = (vec![0f32; 32], vec![0f32; keys], vec![0f32; 32]);
        let (mut y, mut lse) = (vec![0f32; 32], vec![0f32; 4]);
        let outputs = Outputs { y: &mut y, lse: &mut lse };
        let inputs = Inputs { q: &q, k: &k, v: &v, mask };
        forward(&case.attention, case.sizes, &inputs, outputs).unwrap_err().to_string()
    };
    let four = case(4, 4, 8);
    assert_eq!(wrong(four, None, 31), "attention: k has 31 elements, not 32");
    assert_eq!(wrong(four.heads(3, 2), None, 32), "attention: 3 query heads are no multiple of 2 key heads");
    let mask = Mask { sizes: [1, 1, 3, 4], values: MaskValues::Float32(&[0.0; 12]) };
    assert!(wrong(four, Some(mask), 32).contains("mask of shape [1, 1, 3, 4] does not fit"));
    let mask = Mask { sizes: [1, 1, 4, 5], values: MaskValues::Float32(&[0.0; 20]) };
    assert!(wrong(four, Some(mask), 32).contains("mask of shape [1, 1, 4, 5] does not fit"));
    let mask = Mask { sizes: [1, 1, 4, 4], values: MaskValues::Bool(&[true; 15]) };
    assert_eq!(wrong(four, Some(mask), 32), "attention: mask has 15 elements, not 16");
}
