//! Numbers that values are multiplied by: those that are written down, and those of one element that a graph computes.

use onnx_graph::pattern::{Place, Scopes};
use onnx_graph::{Dim, ValueId};

use super::matrices::Matrices;
use crate::rewrite::spelled::polynomial::rounding;

/// `number` times computed values, each to a power of 1 or -1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Factor {
    pub(crate) number: f64,
    pub(crate) computed: Vec<(ValueId, i32)>,
}

impl Default for Factor {
    fn default() -> Self {
        Self { number: 1.0, computed: Vec::new() }
    }
}

impl Factor {
    pub(crate) fn times(&mut self, other: &Self) {
        self.number *= other.number;
        self.computed.extend(&other.computed);
        self.computed.sort_unstable();
    }
}

/// A view and what it has to be multiplied by.
pub(crate) struct Scaled {
    pub(crate) view: Matrices,
    pub(crate) by: Factor,
}

/// What `view` is a multiple of.
pub(crate) fn multiple(scopes: &Scopes<'_, '_>, view: &Matrices) -> Option<Scaled> {
    let maker = scopes.maker(view.place)?;
    let (ways, power) = match () {
        () if maker.is("Mul") => (maker.either_way()?.to_vec(), 1),
        () if maker.is("Div") => (vec![(maker.input(0)?, maker.input(1)?)], -1),
        () => return None,
    };
    ways.into_iter().find_map(|(x, by)| {
        let by = factor(scopes, by, power)?;
        Some(Scaled { view: view.beside(scopes, x)?, by })
    })
}

/// A value of one element as a factor.
fn factor(scopes: &Scopes<'_, '_>, place: Place, power: i32) -> Option<Factor> {
    if let Some(number) = scopes.scalar(place) {
        return Some(Factor { number: number.powi(power), computed: Vec::new() });
    }
    let shape = scopes.shape(place)?;
    let one = shape.0.iter().all(|dim| *dim == Dim::Known(1));
    let value = scopes.resolve(place);
    (one && value.depth == 0).then(|| Factor { number: 1.0, computed: vec![(value.value, power)] })
}

/// A place on the way up from a factor of a product: `number` times it is what the product reads.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) view: Matrices,
    pub(crate) number: f64,
    /// Whether its stack is laid out as that of the product's factor.
    pub(crate) as_read: bool,
}

/// The view itself and what it is made of, as far as it is only rearranged and multiplied by numbers, and not rounded; the last
/// is the base.
pub(crate) fn parts(scopes: &Scopes<'_, '_>, view: &Matrices) -> Vec<Part> {
    let mut parts = vec![Part { view: view.clone(), number: 1.0, as_read: true }];
    while let Some(Part { view, number, as_read }) = parts.last() {
        if scopes.maker(view.place).is_some_and(|maker| rounding(scopes, &maker).is_some()) {
            break;
        }
        let next = match view.closer(scopes) {
            Some(closer) => {
                let as_read = *as_read && !view.regroups(scopes, &closer);
                Part { view: closer, number: *number, as_read }
            }
            None => match multiple(scopes, view) {
                Some(Scaled { view, by }) if by.computed.is_empty() => {
                    Part { view, number: number * by.number, as_read: *as_read }
                }
                _ => break,
            },
        };
        parts.push(next);
    }
    parts
}

/// Where the view comes from in the end, and how many times that it is.
pub(crate) fn base(scopes: &Scopes<'_, '_>, view: &Matrices) -> Part {
    let mut all = parts(scopes, view);
    all.pop().unwrap_or(Part { view: view.clone(), number: 1.0, as_read: true })
}
