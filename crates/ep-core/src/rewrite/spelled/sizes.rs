//! Sizes that a model computes from its own shapes.

use onnx_graph::pattern::{Place, Scopes, from_front};

/// An axis of a value.
type Axis = (Place, usize);

/// Whether an integer is half the size of an axis: `Shape`, the pick of a size, and a division by 2.
pub(super) fn is_half(scopes: &Scopes<'_, '_>, place: Place, axis: Axis) -> bool {
    let half = || {
        let division = scopes.maker(single(scopes, place)?).filter(|m| m.is("Div"))?;
        let by_two = scopes.ints(division.input(1)?)? == [2];
        let size = size_of(scopes, single(scopes, division.input(0)?)?)?;
        Some(by_two && origin(scopes, size) == origin(scopes, axis))
    };
    half() == Some(true)
}

/// The value behind changes of the shape of one integer.
fn single(scopes: &Scopes<'_, '_>, mut place: Place) -> Option<Place> {
    while let Some(maker) = scopes.maker(place) {
        if !["Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"].iter().any(|op| maker.is(op)) {
            break;
        }
        place = maker.input(0)?;
    }
    Some(place)
}

/// The axis whose size an integer is.
fn size_of(scopes: &Scopes<'_, '_>, place: Place) -> Option<Axis> {
    let pick = scopes.made_by(place, "Gather")?;
    let index = *scopes.ints(pick.input(1)?)?.first()?;
    let sizes = scopes.maker(pick.input(0)?)?;
    if sizes.is("Gather") {
        // The sizes in another order.
        let order = scopes.ints(sizes.input(1)?)?;
        let shape = scopes.made_by(sizes.input(0)?, "Shape")?;
        let at = *order.get(from_front(index, order.len())?)?;
        return axis_of(scopes, shape.input(0)?, at);
    }
    let whole = sizes.is("Shape") && sizes.node.attributes.is_empty();
    axis_of(scopes, sizes.input(0).filter(|_| whole)?, index)
}

fn axis_of(scopes: &Scopes<'_, '_>, value: Place, axis: i64) -> Option<Axis> {
    Some((scopes.resolve(value), from_front(axis, scopes.rank(value)?)?))
}

/// The axis before all transpositions.
fn origin(scopes: &Scopes<'_, '_>, (mut value, mut axis): Axis) -> Axis {
    while let Some(maker) = scopes.made_by(value, "Transpose") {
        let moved = maker.ints("perm").and_then(|perm| usize::try_from(*perm.get(axis)?).ok());
        let (Some(from), Some(input)) = (moved, maker.input(0)) else { break };
        (value, axis) = (scopes.resolve(input), from);
    }
    (value, axis)
}
