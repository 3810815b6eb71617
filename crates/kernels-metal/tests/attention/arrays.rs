//! The operation over MLX's arrays, against the definition in MLX's operations.

use kernels_metal::attention::{Attention, Inputs, Outputs};
use mlx_safe::{Array, Dtype, grad, where_};

use crate::case::{random, values};

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
