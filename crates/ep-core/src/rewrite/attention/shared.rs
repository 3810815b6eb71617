//! Heads of keys and values that several heads of queries share, which graphs repeat (`Expand`) for the products' sake.

use onnx_graph::Dim;
use onnx_graph::pattern::Scopes;

use super::factor::{Part, parts};
use super::matrices::{Axis, Matrices, numbered, same};

/// What lies behind the repetition in which `base` ends: (B, Hk) matrices for a stack of (B, Hk, G). Empty if it ends in none.
pub(crate) fn behind(scopes: &Scopes<'_, '_>, base: &Part) -> Vec<Part> {
    let Some(view) = once(scopes, &base.view) else { return Vec::new() };
    let scaled = |part: Part| Part { number: base.number * part.number, ..part };
    parts(scopes, &view).into_iter().map(scaled).collect()
}

/// The view without the repetition along the last axis of its stack.
fn once(scopes: &Scopes<'_, '_>, view: &Matrices) -> Option<Matrices> {
    let maker = scopes.made_by(view.place, "Expand")?;
    let input = maker.input(0)?;
    let (from, to) = (scopes.shape(input)?.0, scopes.shape(view.place)?.0);
    let group = *view.batch().last()?;
    let repeats = |axis: usize| match axis == group {
        true => from[axis] == Dim::Known(1),
        false => same(&from[axis], &to[axis]),
    };
    if from.len() != to.len() || view.batch().len() != 3 || !(0..to.len()).all(repeats) {
        return None;
    }
    let mut axes = view.axes.clone();
    axes[group] = Axis::One;
    Some(Matrices { place: input, axes: numbered(axes) })
}
