//! The operation over MLX's arrays, against the definition in MLX's operations.

use half::{bf16, f16};
use kernels_metal::attention::host::{self, MaskValues};
use kernels_metal::attention::{Attention, Inputs, Kernel, Outputs, REPLACES};
use mlx_safe::{Array, Dtype, grad, vjp, where_};

use crate::case::{Case, Found, Kind, Real, case, random, values};

fn array(salt: usize, shape: &[i32]) -> Array {
    let count = shape.iter().product::<i32>() as usize;
    Array::from_slice(&values::<f32>(count, salt, 1.0), shape).unwrap()
}

fn inputs() -> Inputs {
    let flags: Vec<bool> = (0..6 * 9).map(|i| random(i, 9) < 0.8).collect();
    Inputs {
        q: array(1, &[2, 4, 6, 8]),
        k: array(2, &[2, 2, 9, 8]),
        v: array(3, &[2, 2, 9, 5]),
        mask: Some(Array::from_slice(&flags, &[6, 9]).unwrap()),
    }
}

/// The definition; every row sees something.
fn composed(inputs: &Inputs, scale: f32) -> mlx_safe::Result<Array> {
    let (k, v) = (inputs.k.repeat(2, 1)?, inputs.v.repeat(2, 1)?);
    let scores = inputs.q.matmul(&k.swapaxes(2, 3)?)?.multiply(&Array::scalar(scale))?;
    let scores = match &inputs.mask {
        Some(mask) => where_(mask, &scores, &Array::scalar(f32::NEG_INFINITY))?,
        None => scores,
    };
    scores.softmax(-1, true)?.matmul(&v)
}

fn near(found: &Array, wanted: &Array) {
    assert_eq!(found.shape(), wanted.shape());
    for (found, wanted) in found.to_vec::<f32>().unwrap().iter().zip(wanted.to_vec::<f32>().unwrap()) {
        assert!((found - wanted).abs() < 1e-5, "{found} for {wanted}");
    }
}

#[test]
fn grad_goes_through_the_pullback() {
    let inputs = inputs();
    let attention = Attention { scale: Some(0.6), causal: false };
    let weights = array(5, &[2, 4, 6, 5]);
    let with =
        |x: &[Array]| Inputs { q: x[0].clone(), k: x[1].clone(), v: x[2].clone(), mask: inputs.mask.clone() };
    let primals = [inputs.q.clone(), inputs.k.clone(), inputs.v.clone()];
    let ours =
        grad(|x| attention.forward(&with(x))?.y.square()?.multiply(&weights)?.sum(.., false), &[0, 1, 2]);
    let theirs = grad(|x| composed(&with(x), 0.6)?.square()?.multiply(&weights)?.sum(.., false), &[0, 1, 2]);
    near(&attention.forward(&inputs).unwrap().y, &composed(&inputs, 0.6).unwrap());
    for (ours, theirs) in ours(&primals).unwrap().iter().zip(theirs(&primals).unwrap()) {
        near(ours, &theirs);
    }
}

/// A key that is hidden may be anything.
#[test]
fn what_is_hidden_may_be_no_number() {
    let with = inputs();
    let hidden = Array::from_slice(&(0..9).map(|s| s == 4).collect::<Vec<_>>(), &[9, 1]).unwrap();
    let filled = |x: f32| where_(&hidden, &Array::scalar(x), &with.k).unwrap();
    let sees = hidden.swapaxes(0, 1).unwrap().logical_not().unwrap();
    let expected = Inputs { k: filled(0.0), mask: Some(sees.clone()), ..with.clone() };
    let expected = composed(&expected, 0.6).unwrap();
    for low in [REPLACES, f32::MIN, f32::NEG_INFINITY] {
        let mask = where_(&sees, &Array::scalar(0f32), &Array::scalar(low)).unwrap();
        for no_number in [f32::NAN, f32::INFINITY] {
            let inputs = Inputs { k: filled(no_number), mask: Some(mask.clone()), ..with.clone() };
            let attention = Attention { scale: Some(0.6), causal: false };
            near(&attention.forward(&inputs).unwrap().y, &expected);
        }
    }
}

#[test]
fn grad_with_and_without_saved_results() {
    let (inputs, dy) = (inputs(), array(4, &[2, 4, 6, 5]));
    let attention = Attention { scale: None, causal: true };
    let saved = attention.forward(&inputs).unwrap();
    assert_eq!((saved.lse.shape(), saved.lse.dtype()), (&[2, 4, 6][..], Dtype::Float32));
    let with = attention.grad(&inputs, &dy, Some(&saved)).unwrap();
    let without = attention.grad(&inputs, &dy, None).unwrap();
    near(&with.q, &without.q);
    near(&with.k, &without.k);
    near(&with.v, &without.v);
}

#[test]
fn transposed_inputs_are_read_as_they_are_meant() {
    let plain = inputs();
    let turn = |x: &Array| x.swapaxes(1, 2).unwrap().contiguous().unwrap().swapaxes(1, 2).unwrap();
    let turned = Inputs { q: turn(&plain.q), k: turn(&plain.k), v: turn(&plain.v), mask: plain.mask.clone() };
    let attention = Attention::default();
    near(&attention.forward(&turned).unwrap().y, &attention.forward(&plain).unwrap().y);
}

#[test]
fn empty_arrays_give_zeros() {
    let attention = Attention::default();
    let empty = |q: &[i32], k: &[i32]| Inputs { q: array(1, q), k: array(2, k), v: array(3, k), mask: None };
    let Outputs { y, lse } = attention.forward(&empty(&[1, 2, 3, 4], &[1, 2, 0, 4])).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [0.0; 24]);
    assert_eq!(lse.to_vec::<f32>().unwrap(), [f32::NEG_INFINITY; 6]);
    let no_queries = empty(&[1, 2, 0, 4], &[1, 2, 3, 4]);
    let grads = attention.grad(&no_queries, &array(1, &[1, 2, 0, 4]), None).unwrap();
    assert_eq!(grads.k.to_vec::<f32>().unwrap(), [0.0; 24]);
    assert_eq!(grads.q.shape(), [1, 2, 0, 4]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let message = |change: &dyn Fn(&mut Inputs)| {
        let mut inputs = inputs();
        change(&mut inputs);
        Attention::default().forward(&inputs).unwrap_err().to_string()
    };
    assert!(message(&|i| i.q = array(1, &[4, 6, 8])).contains("q of shape [4, 6, 8] is not (B, Hq, L, E)"));
    assert!(message(&|i| i.q = array(1, &[2, 3, 6, 8])).contains("3 query heads are no multiple of 2"));
    assert!(message(&|i| i.k = array(1, &[2, 2, 9, 7])).contains("k of shape [2, 2, 9, 7] does not fit"));
    assert!(message(&|i| i.v = i.v.astype(Dtype::Float16).unwrap()).contains("the type of q"));
    assert!(message(&|i| i.mask = Some(array(1, &[5, 9]))).contains("mask of shape [5, 9]"));
    assert!(message(&|i| i.mask = Some(Array::scalar(1i32))).contains("mask holds Int32"));
    let dy = array(1, &[2, 4, 6, 4]);
    assert!(Attention::default().grad(&inputs(), &dy, None).is_err());
}

/// Runs `case` through MLX's graph by `kernel`.
fn run<T: Real>(case: Case, kernel: Kernel, save: bool, inputs: &host::Inputs<'_, T>, dy: &[T]) -> Found<T> {
    let s = case.sizes;
    let array = |data: &[T], shape: [usize; 4]| Array::from_slice(data, &shape.map(|n| n as i32)).unwrap();
    let mask = inputs.mask.map(|mask| {
        let shape = mask.sizes.map(|n| n as i32);
        match mask.values {
            MaskValues::Bool(values) => Array::from_slice(values, &shape).unwrap(),
            MaskValues::Float32(values) => Array::from_slice(values, &shape).unwrap(),
            _ => panic!("cases have no other masks"),
        }
    });
    let inputs = Inputs {
        q: array(inputs.q, [s.batch, s.heads, s.queries, s.width]),
        k: array(inputs.k, [s.batch, s.key_heads, s.keys, s.width]),
        v: array(inputs.v, [s.batch, s.key_heads, s.keys, s.value_width]),
        mask,
    };
    let dy = array(dy, [s.batch, s.heads, s.queries, s.value_width]);
    let outputs = match kernel {
        // Its log-sum-exp is another's.
        Kernel::MlxFused => Outputs {
            y: case.attention.apply_by(kernel, &inputs).unwrap(),
            lse: case.attention.forward(&inputs).unwrap().lse,
        },
        _ => case.attention.forward_by(kernel, &inputs).unwrap(),
    };
    let saved = save.then_some(&outputs);
    let grads = case.attention.grad_by(kernel, &inputs, &dy, saved).unwrap();
    let list = |x: &Array| x.to_vec::<T>().unwrap();
    let (dq, dk, dv) = (list(&grads.q), list(&grads.k), list(&grads.v));
    Found { y: list(&outputs.y), lse: outputs.lse.to_vec().unwrap(), dq, dk, dv }
}

fn check<T: Real>(case: Case, kernel: Kernel) {
    for save in [false, true] {
        let (wanted, found) = case.with::<T>(|inputs, dy| run(case, kernel, save, inputs, dy));
        case.compare_with(&wanted, &found, &format!("{kernel}, saved {save}"));
    }
}

#[test]
fn mlx_operations_give_the_same() {
    let plain = case(66, 75, 24).batch(2).heads(4, 2).value_width(16);
    for case in [plain, plain.causal(), plain.heads(3, 1), plain.scale(-0.7)] {
        check::<f32>(case, Kernel::Mlx);
        check::<f16>(case, Kernel::Mlx);
        check::<bf16>(case, Kernel::Mlx);
    }
    for shape in [[2, 4, 66, 75], [1, 1, 66, 75], [2, 1, 1, 75], [1, 1, 66, 1], [1, 4, 66, 70]] {
        check::<f32>(plain.mask(shape, Kind::Bool), Kernel::Mlx);
        check::<f32>(plain.mask(shape, Kind::Float).causal(), Kernel::Mlx);
    }
    check::<f32>(plain.mask([1, 1, 66, 75], Kind::Nothing), Kernel::Mlx);
    // So many scores that queries come in parts.
    check::<f32>(case(600, 1100, 16).heads(4, 2), Kernel::Mlx);
    check::<f32>(case(1100, 600, 16).heads(4, 2).causal(), Kernel::Mlx);
    for empty in [case(0, 5, 8), case(5, 0, 8), case(5, 5, 8).batch(0), case(5, 7, 8).value_width(0)] {
        check::<f32>(empty, Kernel::Mlx);
    }
}

#[test]
fn sizes_filled_up_for_mlx_change_nothing() {
    for case in [case(66, 75, 20), case(128, 75, 24), case(5, 7, 3)] {
        let case = case.batch(2).heads(4, 2).value_width(13);
        check::<f32>(case, Kernel::MlxFused);
    }
    check::<f32>(case(66, 75, 20).heads(2, 1).causal(), Kernel::MlxFused);
    check::<f32>(case(66, 66, 20).heads(2, 1).causal(), Kernel::MlxFused);
}

#[test]
fn every_kernel_has_its_derivative() {
    let x = Inputs { mask: None, ..inputs() };
    let dy = array(4, &[2, 4, 6, 5]);
    for causal in [false, true] {
        let attention = Attention { scale: None, causal };
        let wanted = attention.grad_by(Kernel::Host, &x, &dy, None).unwrap();
        for kernel in [Kernel::Host, Kernel::Mlx, Kernel::MlxFused] {
            let y = |x: &[Array]| {
                let inputs = Inputs { q: x[0].clone(), k: x[1].clone(), v: x[2].clone(), mask: None };
                Ok(vec![attention.apply_by(kernel, &inputs)?])
            };
            let primals = [x.q.clone(), x.k.clone(), x.v.clone()];
            let (_, found) = vjp(y, &primals, std::slice::from_ref(&dy)).unwrap();
            for (found, wanted) in found.iter().zip([&wanted.q, &wanted.k, &wanted.v]) {
                near(found, wanted);
            }
        }
    }
}

/// The kernels that the current device has for `case`.
fn check_chosen<T: Real>(case: Case) {
    let [saved, alone] = chosen(case, T::of(0.0));
    check::<T>(case, saved);
    if alone != saved {
        check::<T>(case, alone);
    }
}

fn chosen<T: Real>(case: Case, zero: T) -> [Kernel; 2] {
    let s = case.sizes;
    let zeros = |shape: [usize; 4]| {
        Array::from_slice(&vec![zero; shape.iter().product()], &shape.map(|n| n as i32)).unwrap()
    };
    let inputs = Inputs {
        q: zeros([s.batch, s.heads, s.queries, s.width]),
        k: zeros([s.batch, s.key_heads, s.keys, s.width]),
        v: zeros([s.batch, s.key_heads, s.keys, s.value_width]),
        mask: case.mask.map(|(shape, _)| {
            Array::from_slice(&[true], &[1; 4]).unwrap().broadcast_to(&shape.map(|n| n as i32)).unwrap()
        }),
    };
    [case.attention.kernel_with_lse(&inputs).unwrap(), case.attention.kernel(&inputs).unwrap()]
}

#[test]
fn the_kernels_of_the_device_agree_with_float64() {
    let of_all_types = |case: Case| {
        check_chosen::<f32>(case);
        check_chosen::<f16>(case);
        check_chosen::<bf16>(case);
    };
    for width in [7, 64, 80, 128, 256] {
        check_chosen::<f32>(case(90, 133, width).heads(2, 2));
        check_chosen::<f32>(case(133, 90, width).heads(2, 1).causal());
    }
    for case in [case(65, 67, 40).value_width(64), case(130, 257, 64).batch(2).heads(14, 2).causal()] {
        of_all_types(case);
    }
    for length in [1, 63, 64, 65, 129] {
        check_chosen::<f32>(case(length, 130, 64));
        check_chosen::<f32>(case(130, length, 64).causal());
        check_chosen::<bf16>(case(length, 130, 64));
    }
    for shape in [[2, 4, 66, 135], [2, 1, 1, 135], [1, 1, 66, 1], [1, 1, 66, 130], [1, 4, 1, 3]] {
        for kind in [Kind::Bool, Kind::Float, Kind::Nothing] {
            let case = case(66, 135, 48).batch(2).heads(4, 2).mask(shape, kind);
            check_chosen::<f32>(case);
            check_chosen::<f32>(case.causal());
        }
    }
    of_all_types(case(66, 135, 48).mask([1, 1, 66, 135], Kind::Float));
    for scale in [0.0, 1e-30, 1e-6, -1.0] {
        check_chosen::<f32>(case(70, 140, 48).scale(scale));
    }
    for empty in [case(0, 5, 8), case(5, 0, 8), case(5, 5, 8).batch(0), case(5, 7, 8).value_width(0)] {
        check_chosen::<f32>(empty);
    }
}
