//! Integers that a model computes from its own shapes, as products of declared sizes.

use std::cell::Cell;

use onnx_graph::Dim;
use onnx_graph::pattern::{Maker, Place, Scopes, from_front};

/// A number times named sizes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Size {
    Product(i64, Vec<String>),
    Unknown,
}

/// After so many values looked at, all others are unknown.
const MOST_VALUES: usize = 128;

impl Size {
    pub(crate) fn one() -> Self {
        Self::Product(1, Vec::new())
    }

    fn int(number: i64) -> Self {
        Self::Product(number, Vec::new())
    }

    pub(crate) fn of(dim: &Dim) -> Self {
        match dim {
            Dim::Known(n) => i64::try_from(*n).map_or(Self::Unknown, Self::int),
            Dim::Symbol(name) => Self::Product(1, vec![name.clone()]),
            Dim::Unknown => Self::Unknown,
        }
    }

    /// What it is as a declared size. A product has a name that every such product has.
    pub(crate) fn dim(&self) -> Dim {
        match self {
            Self::Product(number, names) if names.is_empty() => {
                usize::try_from(*number).map_or(Dim::Unknown, Dim::Known)
            }
            Self::Product(1, names) => Dim::Symbol(names.join("*")),
            Self::Product(number, names) if *number > 0 => {
                Dim::Symbol(format!("{number}*{}", names.join("*")))
            }
            _ => Dim::Unknown,
        }
    }

    /// The number, if it is nothing else.
    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Self::Product(number, names) if names.is_empty() => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let (Self::Product(a, names), Self::Product(b, more)) = (self, other) else { return Self::Unknown };
        let mut names = [names.as_slice(), more].concat();
        names.sort_unstable();
        a.checked_mul(*b).map_or(Self::Unknown, |number| Self::Product(number, names))
    }

    /// The quotient, if it is a whole product.
    pub(crate) fn over(&self, other: &Self) -> Self {
        let (Self::Product(a, names), Self::Product(b, less)) = (self, other) else { return Self::Unknown };
        let mut names = names.clone();
        for name in less {
            let Some(at) = names.iter().position(|n| n == name) else { return Self::Unknown };
            names.remove(at);
        }
        match a.checked_rem(*b) {
            Some(0) => Self::Product(a / b, names),
            _ => Self::Unknown,
        }
    }

    /// Whether both are the same, if that is certain. No size is below 0.
    fn equals(&self, other: &Self) -> Option<bool> {
        match (self.number(), other.number()) {
            (Some(a), Some(b)) => Some(a == b),
            (Some(a), _) | (_, Some(a)) if a < 0 => Some(false),
            _ => None,
        }
    }

    /// The sum, or the difference, of numbers.
    fn plus(&self, other: &Self, sign: i64) -> Self {
        let sum = || self.number()?.checked_add(other.number()?.checked_mul(sign)?);
        sum().map_or(Self::Unknown, Self::int)
    }
}

/// The elements of integers of up to one axis, as far as they follow from declared sizes and constants.
pub(crate) fn sizes(scopes: &Scopes<'_, '_>, place: Place) -> Option<Vec<Size>> {
    at(scopes, place, &Cell::new(MOST_VALUES))
}

fn at(scopes: &Scopes<'_, '_>, place: Place, left: &Cell<usize>) -> Option<Vec<Size>> {
    if let Some(ints) = scopes.ints(place) {
        return (ints.len() <= 64).then(|| ints.into_iter().map(Size::int).collect());
    }
    let maker = scopes.maker(place)?;
    left.set(left.get().checked_sub(1)?);
    let input = |i: usize| at(scopes, maker.input(i)?, left);
    let both = |of: &dyn Fn(&Size, &Size) -> Size| {
        let (a, b) = (input(0)?, input(1)?);
        let count = a.len().max(b.len());
        let pick = |list: &[Size], i: usize| list.get(if list.len() == 1 { 0 } else { i }).cloned();
        (0..count).map(|i| Some(of(&pick(&a, i)?, &pick(&b, i)?))).collect()
    };
    match maker.node.op_type.as_str() {
        op if !maker.is(op) => None,
        "Cast" if !scopes.element(place)?.is_integer() => None,
        "Cast" | "Identity" | "Reshape" | "Squeeze" | "Unsqueeze" => input(0),
        "Shape" => shape(scopes, &maker),
        "Gather" if maker.int_or("axis", 0)? == 0 => {
            let (from, picked) = (input(0)?, scopes.ints(maker.input(1)?)?);
            picked.into_iter().map(|i| from.get(from_front(i, from.len())?).cloned()).collect()
        }
        "Slice" if maker.node.version >= 10 => {
            let from = input(0)?;
            let bound = |i: usize| {
                let [at] = scopes.ints(maker.input(i)?)?[..] else { return None };
                let n = from.len() as i64;
                usize::try_from(if at < 0 { (at + n).max(0) } else { at.min(n) }).ok()
            };
            let straight = maker.input(4).is_none_or(|steps| scopes.ints(steps).is_some_and(|s| s == [1]));
            let (start, end) = (bound(1)?, bound(2)?);
            if straight { from.get(start..end).map(<[Size]>::to_vec) } else { None }
        }
        "Concat" => {
            let parts = (0..maker.node.inputs().len()).map(input).collect::<Option<Vec<_>>>()?;
            Some(parts.concat())
        }
        // As exporters replace the sizes -1 that mean that nothing changes.
        "Where" => {
            let test = scopes.made_by(maker.input(0)?, "Equal")?;
            let (of, with) = (at(scopes, test.input(0)?, left)?, at(scopes, test.input(1)?, left)?);
            let (yes, no) = (input(1)?, input(2)?);
            let picked = of.iter().zip(&with).zip(yes.into_iter().zip(no));
            picked.map(|((a, b), (yes, no))| Some(if a.equals(b)? { yes } else { no })).collect()
        }
        "Mul" => both(&Size::times),
        "Div" => both(&|a, b| match (a.number(), b.number()) {
            // As the graph divides: what is left over is dropped.
            (Some(a), Some(b)) if a >= 0 && b > 0 => Size::int(a / b),
            _ => a.over(b),
        }),
        "Add" => both(&|a, b| a.plus(b, 1)),
        "Sub" => both(&|a, b| a.plus(b, -1)),
        _ => None,
    }
}

fn shape(scopes: &Scopes<'_, '_>, maker: &Maker<'_, '_>) -> Option<Vec<Size>> {
    let dims = scopes.shape(maker.input(0)?)?.0;
    let rank = dims.len() as i64;
    let bound = |name: &str, default: i64| {
        let at = maker.int_or(name, default)?;
        usize::try_from(if at < 0 { (at + rank).max(0) } else { at.min(rank) }).ok()
    };
    dims.get(bound("start", 0)?..bound("end", rank)?).map(|dims| dims.iter().map(Size::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_quotients() {
        let (b, four) = (Size::of(&"b".into()), Size::int(4));
        let flat = b.times(&four);
        assert_eq!((flat.dim(), four.times(&b)), ("4*b".into(), flat.clone()));
        assert_eq!(flat.over(&b).number(), Some(4));
        assert_eq!((flat.over(&four), flat.over(&Size::int(3))), (b.clone(), Size::Unknown));
        assert_eq!((flat.over(&Size::int(0)), four.over(&b)), (Size::Unknown, Size::Unknown));
        assert_eq!((four.plus(&Size::int(1), -1).number(), b.plus(&four, 1)), (Some(3), Size::Unknown));
        assert_eq!(
            (b.equals(&Size::int(-1)), b.equals(&four), four.equals(&four)),
            (Some(false), None, Some(true))
        );
        assert_eq!((Size::int(-1).dim(), Size::int(i64::MAX).times(&four)), (Dim::Unknown, Size::Unknown));
    }
}
