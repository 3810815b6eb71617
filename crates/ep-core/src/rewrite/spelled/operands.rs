//! What a value is computed from.

use onnx_graph::pattern::{Place, Scopes};

use crate::rewrite::spelled::polynomial::settled;
use crate::rewrite::stack::ELEMENTWISE;

/// The sizes of a value that is a constant, or computed from constants element by element.
pub(super) fn constant_dims(scopes: &Scopes<'_, '_>, place: Place) -> Option<Vec<usize>> {
    dims_at(scopes, place, 6)
}

fn dims_at(scopes: &Scopes<'_, '_>, place: Place, depth: usize) -> Option<Vec<usize>> {
    if let Some(tensor) = scopes.constant(place) {
        return Some(tensor.dims().to_vec());
    }
    let maker = scopes.maker(place).filter(|m| depth > 0 && m.node.domain.is_empty())?;
    if !ELEMENTWISE.contains(&maker.node.op_type.as_str()) {
        return None;
    }
    let mut dims: Vec<usize> = Vec::new();
    for i in 0..maker.node.inputs().len() {
        let other = dims_at(scopes, maker.input(i)?, depth - 1)?;
        let (mut wide, narrow) = if other.len() > dims.len() { (other, dims) } else { (dims, other) };
        let skipped = wide.len() - narrow.len();
        for (n, m) in wide[skipped..].iter_mut().zip(narrow) {
            *n = if *n == 1 { m } else { *n };
        }
        dims = wide;
    }
    Some(dims)
}

/// Whether a value is computed from constants alone.
pub(super) fn is_fixed(scopes: &Scopes<'_, '_>, place: Place) -> bool {
    fixed_at(scopes, place, 12)
}

fn fixed_at(scopes: &Scopes<'_, '_>, place: Place, depth: usize) -> bool {
    if scopes.constant(place).is_some() {
        return true;
    }
    let Some(maker) = scopes.maker(place).filter(|_| depth > 0) else { return false };
    let mut inputs = (0..maker.node.inputs().len()).map(|i| maker.input(i));
    inputs.len() > 0
        && maker.node.bodies().next().is_none()
        && inputs.all(|input| input.is_none_or(|input| fixed_at(scopes, input, depth - 1)))
}

/// What sums, products and powers of numbers and of one value are made of: the value itself first, then what it is
/// computed from, nearest first.
pub(super) fn operands(scopes: &Scopes<'_, '_>, place: Place) -> Vec<Place> {
    let mut found = vec![settled(scopes, place)];
    let mut next = 0;
    while let Some(&place) = found.get(next).filter(|_| found.len() < 12) {
        next += 1;
        let Some(maker) = scopes.maker(place) else { continue };
        let arithmetic =
            ["Add", "Cast", "CastLike", "Div", "Mul", "Neg", "Pow"].iter().any(|op| maker.is(op));
        let count = if maker.is("CastLike") { 1 } else { maker.node.inputs().len() };
        let inputs = (0..count).filter(|_| arithmetic).filter_map(|i| maker.input(i));
        for input in inputs.filter(|input| scopes.scalar(*input).is_none()) {
            let input = settled(scopes, input);
            if !found.contains(&input) {
                found.push(input);
            }
        }
    }
    found
}
