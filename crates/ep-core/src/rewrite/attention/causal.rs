//! Masks that let query i see keys 0 to i and no more, however a graph makes them: by `Trilu`, by comparing positions, or as a
//! constant. The kernel hides for good what it knows to be causal.

use std::cell::Cell;

use onnx_graph::pattern::{Maker, Place, Scopes};
use onnx_graph::{Dim, Tensor};

use super::fillings::{hides, is_mild};
use super::matrices::{Axis, Matrices, same, same_dims};
use super::scores::{Kind, Mask};

/// The masks, outermost first, of which the kernel knows better than to read them: it hides what they hide, and rows come out
/// as the graph has them. That is so where a filling is minus infinity and no other is put in its place, or where each
/// row certainly sees a key: its own.
pub(crate) fn known(scopes: &Scopes<'_, '_>, masks: &[Mask], q: &Matrices, k: &Matrices) -> Vec<bool> {
    let sizes = [size(scopes, q, Axis::Row), size(scopes, k, Axis::Col)];
    let finite = |mask: &Mask| match mask.kind {
        Kind::Chosen { fill, .. } | Kind::Lifted(fill) => fill.is_finite(),
        Kind::Added(_) | Kind::Scaled(_) => false,
    };
    let stack = q.batch_dims(scopes).unwrap_or_default();
    // In the stack the mask has one matrix, or those that there are anyway.
    let is_narrow = |mask: &Mask| {
        let dims = scopes.shape(mask.value).map(|shape| shape.0).unwrap_or_default();
        let fits = |(axis, dim): (&Axis, &Dim)| match axis {
            Axis::Batch(n) => *dim == Dim::Known(1) || stack.get(*n).is_some_and(|there| same(dim, there)),
            Axis::Row | Axis::Col | Axis::One => true,
        };
        mask.scores.axes.iter().rev().zip(dims.iter().rev()).all(fits)
    };
    let is_known = |at: usize| {
        let filling = Causal { scopes, sizes: &sizes }.filling(&masks[at]);
        let Some(fill) = filling.filter(|_| is_narrow(&masks[at])) else { return false };
        let for_good = fill == f64::NEG_INFINITY && !masks[..at].iter().any(finite);
        let mut others = masks.iter().enumerate().filter(|(other, _)| *other != at);
        for_good || others.all(|(_, other)| is_mild(scopes, other, fill))
    };
    (0..masks.len()).map(is_known).collect()
}

fn size(scopes: &Scopes<'_, '_>, view: &Matrices, axis: Axis) -> Dim {
    let size = || {
        let at = view.axes.iter().position(|a| *a == axis)?;
        scopes.shape(view.place)?.0.get(at).cloned()
    };
    size().unwrap_or(Dim::Unknown)
}

/// What is causal over so many queries and keys.
struct Causal<'s, 'g, 'a> {
    scopes: &'s Scopes<'g, 'a>,
    sizes: &'s [Dim; 2],
}

impl Causal<'_, '_, '_> {
    /// The highest number by which a mask hides later keys, if it does nothing else.
    fn filling(&self, mask: &Mask) -> Option<f64> {
        mask.scores.axes.ends_with(&[Axis::Row, Axis::Col]).then_some(())?;
        match mask.kind {
            Kind::Chosen { stays, fill } => (self.triangle(mask.value, 0)? == stays).then_some(fill),
            Kind::Added(times) => {
                let number = times * self.added(mask.value, 0)?;
                hides(number, self.scopes.element(mask.scores.place)).then_some(number)
            }
            Kind::Scaled(_) | Kind::Lifted(_) => None,
        }
    }

    /// The highest number of a value beyond the diagonal, if it is 0 where key j <= query i.
    fn added(&self, place: Place, depth: usize) -> Option<f64> {
        let scopes = self.scopes;
        if let Some(tensor) = scopes.constant(place) {
            let numbers = tensor.floats()?;
            let highest = Cell::new(f64::NEG_INFINITY);
            let fits = |number: &f64, seen: bool| {
                highest.set(if seen { highest.get() } else { highest.get().max(*number) });
                !seen || *number == 0.0
            };
            return (self.is_whole(place) && every(tensor, &numbers, fits)).then_some(highest.get());
        }
        let maker = scopes.maker(place).filter(|_| depth < 16)?;
        let fill = |i: usize| maker.input(i).and_then(|input| scopes.fill(input));
        match maker.node.op_type.as_str() {
            op if !maker.is(op) => None,
            "Where" => {
                let (yes, no) = fill(1).zip(fill(2))?;
                let (seen, hidden) = if self.triangle(maker.input(0)?, 0)? { (yes, no) } else { (no, yes) };
                (seen == 0.0).then_some(hidden)
            }
            "Trilu" if trilu(scopes, &maker) == Some((1, true)) && self.is_whole(place) => fill(0),
            _ => self.added(passed(scopes, &maker)?, depth + 1),
        }
    }

    /// Whether the last two axes certainly have the sizes of the scores', so that nothing is broadcast along them.
    fn is_whole(&self, place: Place) -> bool {
        let shape = self.scopes.shape(place);
        shape.is_some_and(|shape| shape.0.len() >= 2 && same_dims(&shape.0[shape.0.len() - 2..], self.sizes))
    }

    /// `Some(true)` if a value is true (or 1) exactly where key j <= query i in its last two axes, `Some(false)` if exactly
    /// elsewhere.
    fn triangle(&self, place: Place, depth: usize) -> Option<bool> {
        let scopes = self.scopes;
        if let Some(tensor) = scopes.constant(place) {
            let bits = tensor.ints().filter(|_| self.is_whole(place))?;
            return [true, false]
                .into_iter()
                .find(|&lower| every(tensor, &bits, |bit, seen| (*bit != 0) == (seen == lower)));
        }
        let maker = scopes.maker(place).filter(|_| depth < 16)?;
        let below = |i: usize| self.triangle(maker.input(i)?, depth + 1);
        let whole = |seen: Option<bool>| seen.filter(|_| self.is_whole(place));
        let fill = |i: usize| scopes.fill(maker.input(i)?);
        match maker.node.op_type.as_str() {
            op if !maker.is(op) => None,
            "Not" => below(0).map(|lower| !lower),
            "And" if fill(1) == Some(1.0) => below(0),
            "And" if fill(0) == Some(1.0) => below(1),
            "Equal" => {
                let (of, with) = if fill(1).is_some() { (0, 1) } else { (1, 0) };
                match fill(with)? {
                    0.0 => below(of).map(|lower| !lower),
                    1.0 => below(of),
                    _ => None,
                }
            }
            "Trilu" => match trilu(scopes, &maker)? {
                _ if fill(0) != Some(1.0) => None,
                (0, false) => whole(Some(true)),
                (1, true) => whole(Some(false)),
                _ => None,
            },
            "Cast" => below(0),
            "LessOrEqual" => whole(at_most_zero(scopes, &maker, [0, 1], 0)),
            "Less" => whole(at_most_zero(scopes, &maker, [0, 1], 1)),
            "GreaterOrEqual" => whole(at_most_zero(scopes, &maker, [1, 0], 0)),
            "Greater" => whole(at_most_zero(scopes, &maker, [1, 0], 1)),
            _ => self.triangle(passed(scopes, &maker)?, depth + 1),
        }
    }
}

/// What `a - b + more <= 0` says of whole numbers a and b made of positions.
fn at_most_zero(
    scopes: &Scopes<'_, '_>,
    maker: &Maker<'_, '_>,
    [a, b]: [usize; 2],
    more: i64,
) -> Option<bool> {
    let (a, b) = (positions(scopes, maker.input(a)?, 0)?, positions(scopes, maker.input(b)?, 0)?);
    match [a[0] - b[0], a[1] - b[1], a[2] - b[2] + more] {
        [-1, 1, 0] => Some(true),
        [1, -1, 1] => Some(false),
        _ => None,
    }
}

/// A value as x i + y j + z, where i is the position along the last axis but one, and j that along the last.
fn positions(scopes: &Scopes<'_, '_>, place: Place, depth: usize) -> Option<[i64; 3]> {
    if let Some([number]) = scopes.ints(place).as_deref() {
        return Some([0, 0, *number]);
    }
    let maker = scopes.maker(place).filter(|_| depth < 16)?;
    let both = |sign: i64| {
        let a = positions(scopes, maker.input(0)?, depth + 1)?;
        let b = positions(scopes, maker.input(1)?, depth + 1)?;
        Some([0, 1, 2].map(|i| a[i] + sign * b[i]))
    };
    match maker.node.op_type.as_str() {
        op if !maker.is(op) => None,
        "Add" => both(1),
        "Sub" => both(-1),
        "Cast" => positions(scopes, maker.input(0)?, depth + 1),
        _ => match behind_axes(scopes, place, 0)? {
            0 => Some([0, 1, 0]),
            1 => Some([1, 0, 0]),
            _ => None,
        },
    }
}

/// How many axes of size 1 follow the one along which a value counts from 0.
fn behind_axes(scopes: &Scopes<'_, '_>, place: Place, depth: usize) -> Option<usize> {
    let maker = scopes.maker(place).filter(|_| depth < 16)?;
    if maker.is("Range") {
        let counts = scopes.ints(maker.input(0)?)? == [0] && scopes.ints(maker.input(2)?)? == [1];
        return counts.then_some(0);
    }
    let behind = behind_axes(scopes, maker.input(0)?, depth + 1)?;
    if maker.is("Cast") || maker.is("Identity") {
        return Some(behind);
    }
    let rank = scopes.rank(place).filter(|_| maker.is("Unsqueeze"))?;
    let added = scopes.axes(&maker, rank)?;
    let mut kept = (0..rank).rev().filter(|axis| !added.contains(axis));
    Some(rank - 1 - kept.nth(behind)?)
}

/// The diagonal of a `Trilu` and whether what lies above it stays.
fn trilu(scopes: &Scopes<'_, '_>, maker: &Maker<'_, '_>) -> Option<(i64, bool)> {
    let diagonal = match maker.input(1) {
        None => 0,
        Some(input) => *scopes.ints(input)?.first()?,
    };
    Some((diagonal, maker.int_or("upper", 1)? != 0))
}

/// The value that a node passes on without touching its last two axes.
fn passed(scopes: &Scopes<'_, '_>, maker: &Maker<'_, '_>) -> Option<Place> {
    let input = maker.input(0)?;
    match maker.node.op_type.as_str() {
        "Identity" | "Expand" => Some(input),
        "Unsqueeze" => {
            let rank = scopes.rank(input)? + scopes.named_axes(maker)?.len();
            let axes = scopes.axes(maker, rank)?;
            axes.iter().all(|axis| axis + 2 < rank).then_some(input)
        }
        _ => None,
    }
}

/// Whether `fits` holds for each element of a stack of one matrix and whether its key is seen.
fn every<T>(tensor: &Tensor<'_>, elements: &[T], fits: impl Fn(&T, bool) -> bool) -> bool {
    let [leading @ .., rows, columns] = tensor.dims() else { return false };
    leading.iter().all(|&n| n == 1)
        // Of size 1 it would be broadcast.
        && *rows > 1
        && *columns > 1
        && elements.iter().enumerate().all(|(at, element)| fits(element, at % columns <= at / columns))
}
