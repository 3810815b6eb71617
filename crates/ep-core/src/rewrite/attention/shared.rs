//! Heads of keys and values that several heads of queries share, which graphs repeat (`Expand`) for the products' sake, and over
//! whose copies they sum derivatives.

use onnx_graph::pattern::{Maker, Place, Scopes};
use onnx_graph::{Dim, Graph};

use super::factor::{Factor, Part, multiple, parts};
use super::flow::readers;
use super::matrices::{Axis, Matrices, numbered, plain, same, same_dims};

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

/// The sums over each group of query heads of a derivative `of`, a stack of (B, Hk, G): as (B, Hk) matrices, with rows and
/// columns as `of` has them, and what the derivative is multiplied by before. `None` if it goes anywhere else.
pub(crate) fn sums(
    scopes: &Scopes<'_, '_>,
    graph: &Graph<'_>,
    of: &Matrices,
    heads: &[Dim],
) -> Option<(Matrices, Factor)> {
    let passes = |maker: &Maker<'_, '_>, index: usize| {
        let output = maker.node.outputs().first().copied().flatten();
        let view = output.and_then(|value| Matrices::plain(scopes, Place { depth: 0, value }));
        let scaled = view.and_then(|view| multiple(scopes, &view));
        scaled.is_some_and(|scaled| Some(scaled.view.place) == maker.input(index))
    };
    let [used] = readers(graph, of.place.value, &passes)?[..] else { return None };
    let node = graph.node(used.node);
    let maker = Maker { depth: 0, id: used.node, node, output: 0 };
    let summed = maker.input(0).filter(|_| maker.is("ReduceSum") && used.index == 0)?;
    let rank = scopes.rank(summed)?;
    let axes = scopes.axes(&maker, rank)?;
    let straight = Matrices { place: summed, axes: plain(rank)? };
    let [group] = axes[..] else { return None };
    if straight.batch().len() != 3 || group != 2 || !same_dims(&straight.batch_dims(scopes)?[..2], heads) {
        return None;
    }
    [straight.clone(), straight.transposed()].into_iter().find_map(|view| {
        let (mut above, mut by) = (view.clone(), Factor::default());
        while above.place != of.place {
            above = match above.closer(scopes) {
                Some(closer) => closer,
                None => {
                    let scaled = multiple(scopes, &above)?;
                    by.times(&scaled.by);
                    scaled.view
                }
            };
        }
        let mut axes = view.axes;
        axes[group] = Axis::One;
        if maker.int_or("keepdims", 1)? == 0 {
            axes.remove(group);
        }
        let value = node.outputs().first().copied().flatten()?;
        let to = Matrices { place: Place { depth: 0, value }, axes: numbered(axes) };
        (above.axes == of.axes).then_some((to, by))
    })
}
