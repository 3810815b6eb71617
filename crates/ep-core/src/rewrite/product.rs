//! A value as a product: the factors it is made of, each a [`View`] of the value where the factor first stands alone.

use onnx_graph::pattern::{Maker, Place};

use crate::rewrite::affine::Power;
use crate::rewrite::view::{Label, Steps, View, Walk};

/// Past this many, factors are left as they are: a product can square itself again and again.
const MOST_FACTORS: usize = 32;

/// One factor, or the inverse of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Factor {
    pub(crate) view: View,
    pub(crate) power: i32,
}

/// A value met on the way: `scale` times some of the factors.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) view: View,
    pub(crate) power: i32,
    pub(crate) scale: f64,
    /// Which factors, from..to.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// `scale` times all factors.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    pub(crate) scale: f64,
    pub(crate) factors: Vec<Factor>,
    pub(crate) parts: Vec<Part>,
}

impl Default for Product {
    fn default() -> Self {
        Self { scale: 1.0, factors: Vec::new(), parts: Vec::new() }
    }
}

impl Product {
    /// Multiplies by a value, or divides where `power` is -1.
    pub(crate) fn take(&mut self, steps: &Steps<'_, '_>, view: View, power: i32) -> Option<()> {
        self.scale *= self.expand(steps, view, power, 0)?;
        Some(())
    }

    fn expand(&mut self, steps: &Steps<'_, '_>, mut view: View, power: i32, depth: usize) -> Option<f64> {
        view.place = steps.scopes.resolve(view.place);
        // Far beyond what any exporter writes.
        if depth > 64 {
            return None;
        }
        if let Some(value) = steps.scopes.scalar(view.place) {
            return Some(value.powi(power));
        }
        let from = self.factors.len();
        let scale = match self.inner(steps, &view, power, depth) {
            Some(scale) => scale?,
            None => {
                self.factors.push(Factor { view: steps.settled(view.clone()), power });
                1.0
            }
        };
        let view = steps.settled(view);
        self.parts.push(Part { view, power, scale, from, to: self.factors.len() });
        Some(scale)
    }

    /// The scale of what the view is made of; `None` if it is a factor itself.
    fn inner(&mut self, steps: &Steps<'_, '_>, view: &View, power: i32, depth: usize) -> Option<Option<f64>> {
        if let Some(next) = steps.closer(view) {
            return Some(self.expand(steps, next, power, depth + 1));
        }
        if self.factors.len() >= MOST_FACTORS {
            return None;
        }
        let maker = steps.scopes.maker(view.place)?;
        if maker.is("Einsum") {
            let [a, b] = outer_product(&maker, view)?;
            let scale = self.expand(steps, a, power, depth + 1);
            return Some(scale.and_then(|scale| Some(scale * self.expand(steps, b, power, depth + 1)?)));
        }
        let operand = |i: usize| steps.operand(maker.input(i)?, &view.labels);
        let second = match maker.node.op_type.as_str() {
            "Mul" if maker.is("Mul") => power,
            "Div" if maker.is("Div") => -power,
            "Neg" if maker.is("Neg") => {
                let inner = operand(0)?;
                return Some(self.expand(steps, inner, power, depth + 1).map(|scale| -scale));
            }
            "Reciprocal" if maker.is("Reciprocal") => {
                let inner = operand(0)?;
                return Some(self.expand(steps, inner, -power, depth + 1));
            }
            _ => return None,
        };
        let (a, b) = (operand(0)?, operand(1)?);
        let scale = self.expand(steps, a, power, depth + 1);
        Some(scale.and_then(|scale| Some(scale * self.expand(steps, b, second, depth + 1)?)))
    }

    /// The product over all steps, from the same product at each of them: what is picked at one step after another is
    /// walked along. `None` if the steps differ in anything else.
    pub(crate) fn over_steps(steps: &[Product]) -> Option<Product> {
        let (first, len) = (steps.first()?, steps.len() as i64);
        let same = |p: &Product| p.scale == first.scale && p.factors.len() == first.factors.len();
        if !steps.iter().all(same) {
            return None;
        }
        let factors = (0..first.factors.len()).map(|i| {
            let power = first.factors[i].power;
            let views: Vec<&View> = steps.iter().map(|p| &p.factors[i].view).collect();
            let same = steps.iter().all(|p| p.factors[i].power == power);
            same.then_some(Factor { view: walked(&views, len)?, power })
        });
        let factors = factors.collect::<Option<Vec<_>>>()?;
        let parts = first.parts.iter().enumerate().filter_map(|(i, part)| {
            let same = |p: &Product| {
                p.parts.get(i).is_some_and(|other| {
                    (other.from, other.to, other.power) == (part.from, part.to, part.power)
                        && other.scale == part.scale
                })
            };
            let views = steps.iter().filter(|p| same(p)).map(|p| &p.parts[i].view).collect::<Vec<_>>();
            (views.len() == steps.len()).then_some(())?;
            Some(Part { view: walked(&views, len)?, ..part.clone() })
        });
        let parts = parts.collect();
        Some(Product { scale: first.scale, factors, parts })
    }
}

/// The operands of an `Einsum` of two that sums nothing.
fn outer_product(maker: &Maker<'_, '_>, view: &View) -> Option<[View; 2]> {
    let (operands, result) = maker.equation()?;
    let [a, b] = &operands[..] else { return None };
    let label = |letter: &char| view.labels.get(result.iter().position(|l| l == letter)?).copied();
    let operand = |i: usize, letters: &[char]| {
        let labels = letters.iter().map(label).collect::<Option<_>>()?;
        Some(View { place: maker.input(i)?, labels })
    };
    Some([operand(0, a)?, operand(1, b)?])
}

/// The view over all steps.
pub(crate) fn walked(views: &[&View], len: i64) -> Option<View> {
    let first = *views.first()?;
    if views.iter().any(|v| v.place != first.place || v.labels.len() != first.labels.len()) {
        return None;
    }
    let label = |axis: usize| {
        let at = |v: &View| match v.labels[axis] {
            Label::At(index) => Some(index),
            _ => None,
        };
        let Some(start) = at(first) else {
            return views.iter().all(|v| v.labels[axis] == first.labels[axis]).then_some(first.labels[axis]);
        };
        let picks: Vec<i64> = views.iter().map(|v| at(v)).collect::<Option<_>>()?;
        if picks.iter().all(|&p| p == start) && len > 1 {
            return Some(Label::At(start));
        }
        let runs = |sign: i64| picks.iter().enumerate().all(|(t, &p)| p == start + sign * t as i64);
        let low = *picks.iter().min()?;
        (low >= 0 && (runs(1) || runs(-1)))
            .then_some(Label::Time(Walk { reverse: !runs(1), range: Some((low, len)) }))
    };
    let labels = (0..first.labels.len()).map(label).collect::<Option<_>>()?;
    Some(View { place: first.place, labels })
}

impl Product {
    /// Takes the factors numbered `wanted` of `other` out of `left`, numbers of factors of this product. `None` if one is
    /// not there.
    pub(crate) fn without(&self, left: &[usize], other: &Product, wanted: &[usize]) -> Option<Vec<usize>> {
        let mut left = left.to_vec();
        for &w in wanted {
            let found = left.iter().position(|&i| self.factors[i] == other.factors[w])?;
            left.remove(found);
        }
        Some(left)
    }

    /// The one factor of a product that is nothing else.
    pub(crate) fn single(&self) -> Option<&Factor> {
        match self.factors.as_slice() {
            [factor] if self.scale == 1.0 => Some(factor),
            _ => None,
        }
    }
}

/// The product of values beside a state of `rank` axes.
pub(crate) fn multiply(steps: &Steps<'_, '_>, factors: &[Power], rank: usize) -> Option<Product> {
    let mut product = Product::default();
    for &(place, power) in factors {
        product.take(steps, beside_state(steps, place, rank)?, power)?;
    }
    Some(product)
}

/// A value at the step whose state has `rank` axes.
pub(crate) fn beside_state(steps: &Steps<'_, '_>, place: Place, rank: usize) -> Option<View> {
    let labels: Vec<Label> = (0..rank).map(Label::State).collect();
    steps.operand(place, &labels)
}
