//! Masks that let query i see keys 0 to i and no more, however a graph makes them: by `Trilu`, by comparing positions, or as a
//! constant.

use onnx_graph::Tensor;
use onnx_graph::pattern::{Maker, Place, Scopes};

use super::matrices::Axis;
use super::scores::{Kind, LOW, Mask};

/// Whether a mask does nothing else. A row always sees a key then, so it does not matter how low the others become.
pub(crate) fn is_causal(scopes: &Scopes<'_, '_>, mask: &Mask) -> bool {
    let straight = mask.scores.axes.ends_with(&[Axis::Row, Axis::Col]);
    straight
        && match mask.kind {
            Kind::Chosen { stays, .. } => triangle(scopes, mask.value, 0) == Some(stays),
            Kind::Added(times) => adds_triangle(scopes, mask.value, times, 0),
            Kind::Scaled(_) | Kind::Lifted => false,
        }
}

/// Whether a value times `times` is 0 where key j <= query i and low elsewhere.
fn adds_triangle(scopes: &Scopes<'_, '_>, place: Place, times: f64, depth: usize) -> bool {
    let low = |number: f64| number * times <= LOW;
    if let Some(tensor) = scopes.constant(place) {
        return tensor.floats().is_some_and(|numbers| {
            every(tensor, &numbers, |number, seen| if seen { *number == 0.0 } else { low(*number) })
        });
    }
    let Some(maker) = scopes.maker(place).filter(|_| depth < 16) else { return false };
    let fill = |i: usize| maker.input(i).and_then(|input| scopes.fill(input));
    match maker.node.op_type.as_str() {
        op if !maker.is(op) => false,
        "Where" => {
            let of_condition = maker.input(0).and_then(|condition| triangle(scopes, condition, 0));
            let Some((yes, no)) = fill(1).zip(fill(2)) else { return false };
            match of_condition {
                Some(true) => yes == 0.0 && low(no),
                Some(false) => low(yes) && no == 0.0,
                None => false,
            }
        }
        "Trilu" => fill(0).is_some_and(low) && trilu(scopes, &maker) == Some((1, true)),
        _ => passed(scopes, &maker).is_some_and(|input| adds_triangle(scopes, input, times, depth + 1)),
    }
}

/// `Some(true)` if a value is true (or 1) exactly where key j <= query i in its last two axes, `Some(false)` if exactly
/// elsewhere.
fn triangle(scopes: &Scopes<'_, '_>, place: Place, depth: usize) -> Option<bool> {
    if let Some(tensor) = scopes.constant(place) {
        let bits = tensor.ints()?;
        return [true, false]
            .into_iter()
            .find(|&lower| every(tensor, &bits, |bit, seen| (*bit != 0) == (seen == lower)));
    }
    let maker = scopes.maker(place).filter(|_| depth < 16)?;
    let below = |i: usize| triangle(scopes, maker.input(i)?, depth + 1);
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
            (0, false) => Some(true),
            (1, true) => Some(false),
            _ => None,
        },
        "Cast" => below(0),
        "LessOrEqual" => at_most_zero(scopes, &maker, [0, 1], 0),
        "Less" => at_most_zero(scopes, &maker, [0, 1], 1),
        "GreaterOrEqual" => at_most_zero(scopes, &maker, [1, 0], 0),
        "Greater" => at_most_zero(scopes, &maker, [1, 0], 1),
        _ => triangle(scopes, passed(scopes, &maker)?, depth + 1),
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
