//! A value as a polynomial of the values that it is computed from, so that spellings which mean the same are the same:
//! x (1 + y) / 2, x * 0.5 * (y + 1) and 0.5 x + 0.5 x y.
//!
//! What takes the place of a spelling computes in float32: whether the spelling rounds to fewer bits on the way is marked.

use std::cell::Cell;
use std::collections::BTreeMap;

use onnx_graph::ElementType;
use onnx_graph::pattern::{Maker, Place, Scopes};

use crate::rewrite::spelled::marks::Marks;
use crate::rewrite::spelled::operands::constant_dims;

/// A value of more terms is taken as it is.
const MOST_TERMS: usize = 12;
/// After so many values looked at, all others are taken as they are: a product can square itself again and again.
const MOST_VALUES: usize = 128;

/// Factors with their exponents in halves: the square root of v is (v, 1), its inverse (v, -1), v itself (v, 2).
pub(crate) type Factors = BTreeMap<Place, i32>;

/// The sum of products with coefficients.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Polynomial {
    terms: BTreeMap<Factors, f64>,
    pub(crate) marks: Marks,
}

impl Polynomial {
    /// A value itself.
    pub(crate) fn of(place: Place) -> Self {
        Self::power_of(place, 2)
    }

    /// A value to the power of `halves` / 2.
    pub(crate) fn power_of(place: Place, halves: i32) -> Self {
        let terms = BTreeMap::from([(Factors::from([(place, halves)]), 1.0)]);
        Self { terms, marks: Marks::default() }
    }

    /// A constant of `rank` axes.
    pub(crate) fn constant(place: Place, rank: usize) -> Self {
        Self { marks: Marks::rank(rank), ..Self::of(place) }
    }

    /// A number.
    pub(crate) fn number(value: f64) -> Self {
        Self { terms: BTreeMap::from([(Factors::new(), value)]), marks: Marks::default() }
    }

    pub(crate) fn plus(mut self, other: &Self) -> Self {
        for (factors, coefficient) in &other.terms {
            *self.terms.entry(factors.clone()).or_default() += coefficient;
        }
        self.terms.retain(|_, coefficient| *coefficient != 0.0);
        self.marked(other.marks)
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let mut product = Self { terms: BTreeMap::new(), marks: self.marks.and(other.marks) };
        for (a, x) in &self.terms {
            for (b, y) in &other.terms {
                let mut factors = a.clone();
                for (&place, halves) in b {
                    *factors.entry(place).or_default() += halves;
                }
                factors.retain(|_, halves| *halves != 0);
                *product.terms.entry(factors).or_default() += x * y;
            }
        }
        product
    }

    pub(crate) fn scaled(mut self, by: f64) -> Self {
        self.terms.values_mut().for_each(|coefficient| *coefficient *= by);
        self
    }

    /// One over a product.
    fn inverse(&self) -> Option<Self> {
        let [(factors, coefficient)] = self.terms.iter().collect::<Vec<_>>()[..] else { return None };
        let factors = factors.iter().map(|(&place, halves)| (place, -halves)).collect();
        let terms = BTreeMap::from([(factors, 1.0 / coefficient)]);
        let inverse = Self { terms, marks: self.marks };
        (*coefficient != 0.0).then_some(inverse)
    }

    /// The same with more marks.
    fn marked(self, marks: Marks) -> Self {
        Self { marks: self.marks.and(marks), ..self }
    }

    /// The terms with their coefficients.
    pub(crate) fn terms(&self) -> impl Iterator<Item = (&Factors, f64)> {
        self.terms.iter().map(|(factors, coefficient)| (factors, *coefficient))
    }

    /// Whether both have the same terms, with coefficients that differ by `tolerance` of their size at most.
    pub(crate) fn is_near(&self, other: &Self, tolerance: f64) -> bool {
        self.terms.len() == other.terms.len()
            && self.terms.iter().zip(&other.terms).all(|((a, x), (b, y))| a == b && near(*x, *y, tolerance))
    }

    /// Takes a term out; gives its coefficient, 0 if it is not there.
    pub(crate) fn take(&mut self, factors: &Factors) -> f64 {
        self.terms.remove(factors).unwrap_or(0.0)
    }

    /// The value that this polynomial is, and nothing else.
    pub(crate) fn single(&self) -> Option<Place> {
        let [(factors, 1.0)] = self.terms().collect::<Vec<_>>()[..] else { return None };
        match factors.iter().collect::<Vec<_>>()[..] {
            [(&place, 2)] => Some(place),
            _ => None,
        }
    }
}

/// Whether two numbers differ by `tolerance` of the second at most.
pub(crate) fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * b.abs()
}

/// How values are taken apart.
pub(crate) struct Algebra<'s, 'g, 'a> {
    pub(crate) scopes: &'s Scopes<'g, 'a>,
    /// What a value is known to be, so that it is not taken apart further.
    pub(crate) known: &'s dyn Fn(Place) -> Option<Polynomial>,
}

impl Algebra<'_, '_, '_> {
    /// The value as a polynomial of what is known and of values that are no sums or products.
    pub(crate) fn read(&self, place: Place) -> Polynomial {
        self.at(place, &Cell::new(MOST_VALUES))
    }

    fn at(&self, place: Place, left: &Cell<usize>) -> Polynomial {
        let place = settled(self.scopes, place);
        if let Some(known) = (self.known)(place) {
            return known;
        }
        if let Some(value) = self.scopes.scalar(place) {
            return Polynomial::number(value).marked(self.marks_of_number(place));
        }
        let whole = || Polynomial::of(place);
        let Some(maker) = self.scopes.maker(place).filter(|_| left.get() > 0) else { return whole() };
        left.set(left.get() - 1);
        self.apart(&maker, left).filter(|p| p.terms.len() <= MOST_TERMS).unwrap_or_else(whole)
    }

    /// What a node makes, if that is a sum, product or power.
    fn apart(&self, maker: &Maker<'_, '_>, left: &Cell<usize>) -> Option<Polynomial> {
        if !matches!(maker.node.domain.as_str(), "" | "ai.onnx") {
            return None;
        }
        let input = |i: usize| Some(self.at(maker.input(i)?, left));
        let inverse = |place| self.power(place, -2, left);
        let two = maker.node.inputs().len() == 2;
        match maker.node.op_type.as_str() {
            "Add" | "Sum" if two => Some(input(0)?.plus(&input(1)?)),
            "Sub" => Some(input(0)?.plus(&input(1)?.scaled(-1.0))),
            "Mul" => {
                let (a, b) = (input(0)?, input(1)?);
                (a.terms.len() * b.terms.len() <= 4 * MOST_TERMS).then(|| a.times(&b))
            }
            "Neg" => Some(input(0)?.scaled(-1.0)),
            "Div" => Some(input(0)?.times(&inverse(maker.input(1)?)?)),
            "Reciprocal" => inverse(maker.input(0)?),
            "Sqrt" => self.power(maker.input(0)?, 1, left),
            "Pow" => {
                let exponent = maker.input(1)?;
                let halves = 2.0 * self.scopes.scalar(exponent)?;
                (halves.fract() == 0.0 && halves.abs() <= 8.0).then_some(())?;
                let power = self.power(maker.input(0)?, halves as i32, left)?;
                Some(power.marked(self.marks_of_number(exponent)))
            }
            "Cast" | "CastLike" => {
                let (from, to) = rounding(self.scopes, maker)?;
                Some(self.at(from, left).marked(Marks::rounded(to)))
            }
            _ => None,
        }
    }

    /// Those of a constant of one element. If nobody says its rank, it is larger than any.
    fn marks_of_number(&self, place: Place) -> Marks {
        let declared = self.scopes.rank(place);
        let computed = || Some(constant_dims(self.scopes, place)?.len());
        Marks::rank(declared.or_else(computed).unwrap_or(usize::MAX))
    }

    /// A value to the power of `halves` / 2. Of sums, only whole powers are taken apart.
    fn power(&self, place: Place, halves: i32, left: &Cell<usize>) -> Option<Polynomial> {
        let base = self.at(place, left);
        let whole = halves % 2 == 0;
        if let [(factors, number)] = base.terms().collect::<Vec<_>>()[..]
            && factors.is_empty()
            && number > 0.0
        {
            return Some(Polynomial::number(number.powf(f64::from(halves) / 2.0)).marked(base.marks));
        }
        let base = match (halves > 0 && whole, base.inverse()) {
            (true, _) => base,
            (false, Some(inverse)) if whole => inverse,
            // The root of a product is not the product of the roots, and a sum stays whole under it.
            _ => {
                let whole = Polynomial::power_of(settled(self.scopes, place), halves);
                return Some(whole.marked(base.marks));
            }
        };
        (1..halves.abs() / 2)
            .try_fold(base.clone(), |power, _| (power.terms.len() <= MOST_TERMS).then(|| power.times(&base)))
    }
}

/// The value behind what does not change it: `Identity`, and casts of floats of 16 bits to 32.
pub(crate) fn settled(scopes: &Scopes<'_, '_>, mut place: Place) -> Place {
    while let Some(maker) = scopes.maker(place) {
        let input = match maker.node.op_type.as_str() {
            "Identity" if maker.is("Identity") => maker.input(0),
            "Cast" | "CastLike" if maker.node.domain.is_empty() => {
                let [from, to] = [maker.input(0), Some(place)].map(|place| scopes.element(place?));
                let widens = to == Some(ElementType::Float) && from.is_some_and(is_half);
                maker.input(0).filter(|_| widens || from == to && from.is_some())
            }
            _ => None,
        };
        match input {
            Some(input) => place = input,
            None => break,
        }
    }
    place
}

/// What a cast to a float of 16 bits rounds, and to which.
pub(crate) fn rounding(scopes: &Scopes<'_, '_>, cast: &Maker<'_, '_>) -> Option<(Place, ElementType)> {
    let value = cast.node.outputs().first().copied().flatten()?;
    (cast.is("Cast") || cast.is("CastLike")).then_some(())?;
    let to = scopes.element(Place { depth: cast.depth, value }).filter(|to| is_half(*to))?;
    let from = cast.input(0)?;
    let of_floats = scopes.element(from).is_some_and(|from| from == ElementType::Float || is_half(from));
    of_floats.then_some((from, to))
}

fn is_half(element: ElementType) -> bool {
    matches!(element, ElementType::Float16 | ElementType::Bfloat16)
}

#[cfg(test)]
mod tests {
    use onnx_graph::ValueId;

    use super::*;

    fn place(value: usize) -> Place {
        Place { depth: 0, value: ValueId(value) }
    }

    #[test]
    fn spellings_of_the_same_are_the_same() {
        let (x, y) = (Polynomial::of(place(1)), Polynomial::of(place(2)));
        let one = Polynomial::number(1.0);
        let left = one.clone().plus(&y).times(&x).scaled(0.5);
        let right = x.clone().scaled(0.5).plus(&y.times(&x).scaled(0.5));
        assert_eq!(left, right);
        assert!(left.is_near(&right.clone().scaled(1.0 + 1e-9), 1e-6));
        assert!(!left.is_near(&right.scaled(1.1), 1e-6) && !left.is_near(&one, 1e-6));
        let square = x.clone().plus(&y.clone().scaled(-1.0));
        let square = square.times(&square);
        let mixed = Factors::from([(place(1), 2), (place(2), 2)]);
        assert_eq!(
            square.terms().map(|(f, c)| (f == &mixed, c)).filter(|(m, c)| *m == (*c == -2.0)).count(),
            3
        );
        assert_eq!(x.clone().plus(&x.clone().scaled(-1.0)), Polynomial::default());
    }

    #[test]
    fn powers_cancel() {
        let root = Polynomial::power_of(place(3), -1);
        let mut product = root.times(&root).times(&Polynomial::of(place(3)));
        assert_eq!(product, Polynomial::number(1.0));
        assert_eq!(product.take(&Factors::new()), 1.0);
        assert_eq!(product.take(&Factors::new()), 0.0);
        assert_eq!(Polynomial::of(place(4)).single(), Some(place(4)));
        assert_eq!(root.single(), None);
        assert_eq!(
            Polynomial::of(place(4)).scaled(4.0).inverse(),
            Some(Polynomial::power_of(place(4), -2).scaled(0.25))
        );
        assert_eq!(Polynomial::of(place(4)).plus(&Polynomial::number(1.0)).inverse(), None);
    }
}
