//! One attention, run by the host kernel and by its definition in float64.

use half::{bf16, f16};
use kernels_metal::attention::host::{self, Mask, MaskValues};
use kernels_metal::attention::{Attention, Sizes};
use kernels_metal::sample::Sample;

use crate::reference;

/// Element types of inputs, with what errors may be, relative to the largest value.
pub trait Real: Sample {
    const TOLERANCE: f64;
    /// The smallest value above 0.
    const LEAST: f64;
    fn of(value: f64) -> Self;
    fn real(self) -> f64;
}

impl Real for f32 {
    const TOLERANCE: f64 = 1e-5;
    const LEAST: f64 = 1e-45;
    fn of(value: f64) -> Self {
        value as f32
    }
    fn real(self) -> f64 {
        self.into()
    }
}

impl Real for f16 {
    const TOLERANCE: f64 = 2e-3;
    const LEAST: f64 = 6e-8;
    fn of(value: f64) -> Self {
        Self::from_f64(value)
    }
    fn real(self) -> f64 {
        self.into()
    }
}

impl Real for bf16 {
    const TOLERANCE: f64 = 2e-2;
    const LEAST: f64 = 1e-40;
    fn of(value: f64) -> Self {
        Self::from_f64(value)
    }
    fn real(self) -> f64 {
        self.into()
    }
}

/// The elements of a mask, made from pseudo-random numbers in [0, 1).
#[derive(Clone, Copy)]
pub enum Kind {
    /// Shows three keys in four.
    Bool,
    /// Adds up to 2, and minus infinity to one key in eight.
    Float,
    /// Puts a low number in the place of three scores in four.
    Low,
    /// Hides everything.
    Nothing,
}

#[derive(Clone, Copy)]
pub struct Case {
    pub attention: Attention,
    pub sizes: Sizes,
    pub mask: Option<([usize; 4], Kind)>,
    /// Inputs lie between minus this and this.
    pub range: f64,
    /// Inputs are multiples of this, if it is not 0.
    pub step: f64,
}

/// Batch 1, one head, `queries`, `keys`, `width`.
pub fn case(queries: usize, keys: usize, width: usize) -> Case {
    let sizes = Sizes { batch: 1, heads: 1, key_heads: 1, queries, keys, width, value_width: width };
    Case { attention: Attention::default(), sizes, mask: None, range: 1.0, step: 0.0 }
}

impl Case {
    pub fn batch(mut self, batch: usize) -> Self {
        self.sizes.batch = batch;
        self
    }

    pub fn heads(mut self, heads: usize, key_heads: usize) -> Self {
        (self.sizes.heads, self.sizes.key_heads) = (heads, key_heads);
        self
    }

    pub fn value_width(mut self, width: usize) -> Self {
        self.sizes.value_width = width;
        self
    }

    pub fn causal(mut self) -> Self {
        self.attention.causal = true;
        self
    }

    pub fn scale(mut self, scale: f32) -> Self {
        self.attention.scale = Some(scale);
        self
    }

    pub fn mask(mut self, sizes: [usize; 4], kind: Kind) -> Self {
        self.mask = Some((sizes, kind));
        self
    }

    pub fn range(mut self, range: f64) -> Self {
        self.range = range;
        self
    }

    pub fn step(mut self, step: f64) -> Self {
        self.step = step;
        self
    }

    /// Compares forward and gradients, with and without saved results, with the definition.
    pub fn check<T: Real>(self) {
        self.compare::<T>(true);
        self.compare::<T>(false);
    }

    pub fn compare<T: Real>(self, save: bool) {
        let (wanted, found) = self.both::<T>(save);
        self.compare_with(&wanted, &found, &format!("saved {save}"));
    }

    pub fn compare_with<T: Real>(self, wanted: &reference::Results, found: &Found<T>, how: &str) {
        let what = |name| format!("{name} of {:?} {:?}, {how}", self.sizes, self.attention);
        near::<T>(&found.y, &wanted.y, 0.0, &what("y"));
        for (found, wanted) in found.lse.iter().zip(&wanted.lse) {
            let close = (f64::from(*found) - wanted).abs() <= 1e-5 * wanted.abs().max(1.0);
            assert!(close || f64::from(*found) == *wanted, "{found} for {wanted}: {}", what("lse"));
        }
        // With one key they are 0: sums of differences of equal numbers, times this.
        let scale = self.attention.scale.unwrap_or((self.sizes.width as f32).sqrt().recip());
        let terms = f64::from(scale).abs() * self.range * (self.sizes.queries as f64).sqrt();
        near::<T>(&found.dq, &wanted.dq, terms, &what("dq"));
        near::<T>(&found.dk, &wanted.dk, terms, &what("dk"));
        near::<T>(&found.dv, &wanted.dv, 0.0, &what("dv"));
    }

    pub fn both<T: Real>(self, save: bool) -> (reference::Results, Found<T>) {
        self.with(|inputs, dy| Found::new(self, inputs, dy, save))
    }

    /// The definition's results, and those of `run` for the same inputs.
    pub fn with<T: Real>(
        self,
        run: impl FnOnce(&host::Inputs<'_, T>, &[T]) -> Found<T>,
    ) -> (reference::Results, Found<T>) {
        let Sizes { batch, heads, key_heads, queries, keys, width, value_width } = self.sizes;
        let rounded =
            |x: T| if self.step > 0.0 { T::of((x.real() / self.step).round() * self.step) } else { x };
        let numbers = |salt, count| -> Vec<T> {
            values::<T>(count, salt, self.range).into_iter().map(rounded).collect()
        };
        let q = numbers(1, batch * heads * queries * width);
        let k = numbers(2, batch * key_heads * keys * width);
        let v = numbers(3, batch * key_heads * keys * value_width);
        let dy = numbers(4, batch * heads * queries * value_width);
        let bias = self.mask.map(|(sizes, kind)| bias::<T>(sizes, kind));
        let flags: Vec<bool> = bias.iter().flatten().map(|&bias| bias.real() == 0.0).collect();
        let floats: Vec<f32> = bias.iter().flatten().map(|bias| bias.real() as f32).collect();
        let mask = self.mask.map(|(sizes, kind)| {
            let values = if matches!(kind, Kind::Float | Kind::Low) {
                MaskValues::Float32(&floats)
            } else {
                MaskValues::Bool(&flags)
            };
            Mask { sizes, values }
        });

        let real = |x: &[T]| x.iter().map(|x| x.real()).collect::<Vec<_>>();
        let (q64, k64, v64, dy64) = (real(&q), real(&k), real(&v), real(&dy));
        let at = |index: [usize; 4]| match (&bias, self.mask) {
            (Some(bias), Some((sizes, _))) if sizes[3] == 1 || index[3] < sizes[3] => {
                let flat = index.iter().zip(sizes).fold(0, |at, (&i, n)| at * n + if n == 1 { 0 } else { i });
                bias[flat].real()
            }
            (Some(_), _) => f64::NEG_INFINITY,
            _ => 0.0,
        };
        let inputs = reference::Inputs { q: &q64, k: &k64, v: &v64, bias: &at };
        let wanted = reference::attention(self.attention, self.sizes, &inputs, &dy64);

        let inputs = host::Inputs { q: &q, k: &k, v: &v, mask };
        (wanted, run(&inputs, &dy))
    }
}

pub struct Found<T> {
    pub y: Vec<T>,
    pub lse: Vec<f32>,
    pub dq: Vec<T>,
    pub dk: Vec<T>,
    pub dv: Vec<T>,
}

impl<T: Real> Found<T> {
    pub fn new(case: Case, inputs: &host::Inputs<'_, T>, dy: &[T], save: bool) -> Self {
        // Nothing may depend on what was there before.
        let junk = |count| vec![T::of(f64::NAN); count];
        let rows = case.sizes.batch * case.sizes.heads * case.sizes.queries;
        let (mut y, mut lse) = (junk(dy.len()), vec![f32::NAN; rows]);
        let (mut dq, mut dk, mut dv) = (junk(inputs.q.len()), junk(inputs.k.len()), junk(inputs.v.len()));
        let outputs = host::Outputs { y: &mut y, lse: &mut lse };
        host::forward(&case.attention, case.sizes, inputs, outputs).unwrap();
        let saved = save.then_some(host::Saved { y: &y, lse: &lse });
        let grads = host::Grads { q: &mut dq, k: &mut dk, v: &mut dv };
        host::grad(&case.attention, case.sizes, inputs, dy, saved, grads).unwrap();
        Self { y, lse, dq, dk, dv }
    }
}

pub fn values<T: Real>(count: usize, salt: usize, range: f64) -> Vec<T> {
    (0..count).map(|i| T::of(range * (2.0 * random(i, salt) - 1.0))).collect()
}

/// In [0, 1): the multiplicative sequence of the plastic number, one for every `salt`.
pub fn random(index: usize, salt: usize) -> f64 {
    let x = (index as f64 + 1.0) * 0.754_877_666_246_693 + (salt as f64) * 0.569_840_290_998_053;
    (x.fract() * 9973.0).fract()
}

fn bias<T: Real>(sizes: [usize; 4], kind: Kind) -> Vec<T> {
    let value = |i| match (kind, random(i, 9)) {
        (Kind::Nothing, _) => f64::NEG_INFINITY,
        (Kind::Bool, x) if x < 0.75 => 0.0,
        (Kind::Low, x) if x < 0.25 => 0.0,
        (Kind::Low, _) => -1e30,
        (Kind::Float, x) if x < 0.875 => 2.0 * x,
        _ => f64::NEG_INFINITY,
    };
    (0..sizes.iter().product()).map(|i| T::of(value(i))).collect()
}

/// Errors are relative to the largest value, or to `terms` where all are 0.
fn near<T: Real>(found: &[T], wanted: &[f64], terms: f64, what: &str) {
    assert_eq!(found.len(), wanted.len());
    let largest = wanted.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let largest = if largest < 1e-12 * terms { terms } else { largest };
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (found.real() - wanted).abs();
        assert!(
            error <= T::TOLERANCE * largest + T::LEAST,
            "{} for {wanted} at {i}, largest {largest}: {what}",
            found.real()
        );
    }
}
