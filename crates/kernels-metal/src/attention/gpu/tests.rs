//! The very text that ships, as Metal on the host, against float64.

use mlx_safe::{Array, Dtype};

use super::*;

#[path = "../../../tests/attention/reference.rs"]
mod reference;
use reference::Results;

/// In [0, 1): the multiplicative sequence of the plastic number, one for every `salt`.
fn random(index: usize, salt: usize) -> f64 {
    let x = (index as f64 + 1.0) * 0.754_877_666_246_693 + (salt as f64) * 0.569_840_290_998_053;
    (x.fract() * 9973.0).fract()
}

fn checked(checks: metal_host::Checks) -> impl Fn(Call) -> Result<Vec<Array>> {
    move |call| {
        let (source, launch) = (call.source(Dialect::Metal), call.launch()?);
        Ok(metal_host::launch(&source, &launch, &call.inputs, checks).unwrap())
    }
}

/// The elements of a mask.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Shows three keys in four.
    Bool,
    /// Adds up to 2, and minus infinity to one key in eight.
    Float(Dtype),
    /// Puts a low number in the place of three scores in four.
    Low,
    /// Hides everything from one query in two.
    Rows,
}

struct Case {
    attention: Attention,
    sizes: Sizes,
    mask: Option<(Vec<i32>, Kind)>,
    dtype: Dtype,
    checks: metal_host::Checks,
}

fn case(queries: usize, keys: usize, width: usize) -> Case {
    let sizes = Sizes { batch: 1, heads: 1, key_heads: 1, queries, keys, width, value_width: width };
    let checks = metal_host::Checks::Memory;
    Case { attention: Attention::default(), sizes, mask: None, dtype: Dtype::Float32, checks }
}

impl Case {
    fn heads(mut self, batch: usize, heads: usize, key_heads: usize) -> Self {
        (self.sizes.batch, self.sizes.heads, self.sizes.key_heads) = (batch, heads, key_heads);
        self
    }

    fn causal(mut self) -> Self {
        self.attention.causal = true;
        self
    }

    fn scale(mut self, scale: f32) -> Self {
        self.attention.scale = Some(scale);
        self
    }

    fn value_width(mut self, width: usize) -> Self {
        self.sizes.value_width = width;
        self
    }

    fn mask(mut self, shape: &[i32], kind: Kind) -> Self {
        self.mask = Some((shape.to_vec(), kind));
        self
    }

    fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = dtype;
        self
    }

    /// Forward and gradients, with and without saved results.
    fn check(&self) {
        self.compare(true);
        self.compare(false);
    }

    fn compare(&self, save: bool) {
        let Sizes { batch, heads, key_heads, queries, keys, width, value_width } = self.sizes;
        let array = |salt, shape: [usize; 4]| {
            let values: Vec<f32> =
                (0..shape.iter().product()).map(|i| 2.0 * random(i, salt) as f32 - 1.0).collect();
            Array::from_slice(&values, &shape.map(|n| n as i32)).unwrap().astype(self.dtype).unwrap()
        };
        let inputs = Inputs {
            q: array(1, [batch, heads, queries, width]),
            k: array(2, [batch, key_heads, keys, width]),
            v: array(3, [batch, key_heads, keys, value_width]),
            mask: self.mask.as_ref().map(|(shape, kind)| mask(shape, *kind)),
        };
        let dy = array(4, [batch, heads, queries, value_width]);
        assert!(takes(&self.sizes));
        let wanted = self.reference(&inputs, &dy);

        let run = checked(self.checks);
        let problem = Problem::new(self.attention, &inputs, Dialect::Metal, &run).unwrap();
        let [y, lse, _] = problem.forward().unwrap();
        self.near("y", &y, &wanted.y);
        for (found, wanted) in floats(&lse).iter().zip(&wanted.lse) {
            assert!(
                found == wanted || (found - wanted).abs() <= 1e-5 * wanted.abs().max(1.0),
                "{found} for {wanted}"
            );
        }
        let saved = save.then_some(Outputs { y, lse });
        let grads = grad(self.attention, &inputs, &dy, saved.as_ref(), Dialect::Metal, &run).unwrap();
        self.near("dq", &grads.q, &wanted.dq);
        self.near("dk", &grads.k, &wanted.dk);
        self.near("dv", &grads.v, &wanted.dv);
    }

    fn reference(&self, inputs: &Inputs, dy: &Array) -> Results {
        let (q, k, v, dy) = (floats(&inputs.q), floats(&inputs.k), floats(&inputs.v), floats(dy));
        let seen = inputs.mask.as_ref().map(|mask| {
            let mut sizes = [1; 4];
            sizes[4 - mask.shape().len()..].copy_from_slice(mask.shape());
            let kind = mask.dtype();
            (sizes.map(|n| n as usize), kind, floats(mask))
        });
        let bias = |index: [usize; 4]| match &seen {
            Some((sizes, kind, values)) if sizes[3] == 1 || index[3] < sizes[3] => {
                let flat =
                    index.iter().zip(sizes).fold(0, |at, (&i, &n)| at * n + if n == 1 { 0 } else { i });
                match kind {
                    Dtype::Bool => {
                        if values[flat] == 0.0 {
                            f64::NEG_INFINITY
                        } else {
                            0.0
                        }
                    }
                    _ => values[flat],
                }
            }
            Some(_) => f64::NEG_INFINITY,
            None => 0.0,
        };
        let inputs = reference::Inputs { q: &q, k: &k, v: &v, bias: &bias };
        reference::attention(self.attention, self.sizes, &inputs, &dy)
    }

    fn near(&self, what: &str, found: &Array, wanted: &[f64]) {
        assert_eq!(found.dtype(), self.dtype);
        let tolerance = match self.dtype {
            Dtype::Float32 => 1e-5,
            Dtype::Float16 => 2e-3,
            _ => 2e-2,
        };
        let found = floats(found);
        assert_eq!(found.len(), wanted.len());
        let largest = wanted.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        // With one key dq and dk are 0: sums of differences of equal numbers.
        let largest = if largest < 1e-12 { (self.sizes.queries as f64).sqrt() } else { largest };
        for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
            let close = (found - wanted).abs() <= tolerance * largest + 1e-7;
            assert!(
                close,
                "{what}[{i}] {found} for {wanted}, largest {largest}: {:?} {:?}",
                self.sizes, self.attention
            );
        }
    }
}

fn floats(array: &Array) -> Vec<f64> {
    array.astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap().into_iter().map(f64::from).collect()
}

fn mask(shape: &[i32], kind: Kind) -> Array {
    let count = shape.iter().product::<i32>() as usize;
    let last = shape.last().copied().unwrap_or(1).max(1) as usize;
    match kind {
        Kind::Bool => {
            Array::from_slice(&(0..count).map(|i| random(i, 9) < 0.75).collect::<Vec<_>>(), shape).unwrap()
        }
        Kind::Rows => {
            Array::from_slice(&(0..count).map(|i| (i / last).is_multiple_of(2)).collect::<Vec<_>>(), shape)
                .unwrap()
        }
        Kind::Low => {
            let value = |i| if random(i, 9) < 0.25 { 0.0f32 } else { -1e30 };
            Array::from_slice(&(0..count).map(value).collect::<Vec<_>>(), shape).unwrap()
        }
        Kind::Float(dtype) => {
            let value = |i| match random(i, 9) as f32 {
                x if x < 0.875 => 2.0 * x,
                _ => f32::NEG_INFINITY,
            };
            Array::from_slice(&(0..count).map(value).collect::<Vec<_>>(), shape)
                .unwrap()
                .astype(dtype)
                .unwrap()
        }
    }
}

#[test]
fn widths() {
    for width in [32, 64, 80, 128, 256] {
        case(21, 37, width).check();
        case(37, 21, width).causal().check();
    }
    case(5, 7, 1).check();
    case(9, 20, 33).value_width(7).check();
    case(9, 20, 7).value_width(129).causal().check();
}

#[test]
fn lengths() {
    for queries in [1, 33, 64] {
        for keys in [1, 32, 65] {
            case(queries, keys, 8).check();
            case(queries, keys, 8).causal().check();
        }
    }
}

#[test]
fn shared_key_heads() {
    for group in [2, 7] {
        case(19, 35, 16).heads(2, 2 * group, 2).check();
        case(40, 70, 16).heads(1, group, 1).causal().check();
    }
}

#[test]
fn masks_of_all_shapes() {
    let shapes: [&[i32]; 8] =
        [&[2, 4, 35, 66], &[1, 4, 35, 66], &[2, 1, 1, 66], &[35, 1], &[], &[35, 60], &[4, 1, 3], &[35, 0]];
    for shape in shapes {
        for kind in [Kind::Bool, Kind::Float(Dtype::Float32)] {
            case(35, 66, 8).heads(2, 4, 2).mask(shape, kind).check();
        }
    }
    case(35, 66, 8).mask(&[35, 66], Kind::Float(Dtype::Bfloat16)).causal().check();
}

#[test]
fn rows_that_see_nothing_are_zero() {
    case(35, 9, 32).mask(&[35, 1], Kind::Rows).check();
    case(35, 40, 32).mask(&[35, 40], Kind::Rows).causal().check();
}

/// Rows of three keys: some see none, and are even.
#[test]
fn low_numbers_take_the_place_of_scores() {
    case(35, 3, 32).mask(&[35, 3], Kind::Low).compare(false);
    case(35, 66, 8).heads(2, 4, 2).mask(&[4, 35, 66], Kind::Low).compare(false);
}

#[test]
fn scales() {
    for scale in [0.0, 1e-6, -1.0] {
        case(20, 40, 16).scale(scale).check();
    }
    case(70, 140, 32).scale(3.0).check();
}

#[test]
fn half_types() {
    for dtype in [Dtype::Float16, Dtype::Bfloat16] {
        case(35, 66, 40).heads(1, 2, 1).dtype(dtype).check();
        case(66, 35, 64).causal().dtype(dtype).check();
    }
}

#[test]
fn threads_do_not_race() {
    let mut case = case(35, 40, 40).causal();
    case.checks = metal_host::Checks::Races;
    case.check();
}

#[test]
fn a_huge_scale_picks_one_key() {
    let attention = Attention { scale: Some(1e6), causal: false };
    let array = |salt, shape: [i32; 4]| {
        let count = shape.iter().product::<i32>() as usize;
        let values: Vec<f32> = (0..count).map(|i| 2.0 * random(i, salt) as f32 - 1.0).collect();
        Array::from_slice(&values, &shape).unwrap()
    };
    let inputs = Inputs {
        q: array(1, [1, 1, 40, 16]),
        k: array(2, [1, 1, 30, 16]),
        v: array(3, [1, 1, 30, 16]),
        mask: None,
    };
    let run = checked(metal_host::Checks::Memory);
    let grads = grad(attention, &inputs, &array(4, [1, 1, 40, 16]), None, Dialect::Metal, &run).unwrap();
    assert!(floats(&grads.q).iter().chain(&floats(&grads.k)).all(|&x| x == 0.0));
}
