//! The probabilities of an attention: a `Softmax` of scores, and what exporters put behind it for rows that see no key.

use onnx_graph::pattern::{Maker, Place, Scopes, from_front};
use onnx_graph::{Node, NodeId};

use super::matrices::{Matrices, plain};

/// The `Softmax` that `view` shows, its rows and columns where the softmax has them.
pub(crate) fn softmax<'g, 'a>(scopes: &Scopes<'g, 'a>, view: &Matrices) -> Option<Maker<'g, 'a>> {
    Some(shown(scopes, view)?.0)
}

/// The same, and whether the view's stack is laid out as the softmax has it.
pub(crate) fn shown<'g, 'a>(scopes: &Scopes<'g, 'a>, view: &Matrices) -> Option<(Maker<'g, 'a>, bool)> {
    let (mut view, mut as_made) = (view.clone(), true);
    loop {
        let maker = scopes.maker(view.place)?;
        if maker.is("Softmax") {
            let straight = Some(&view.axes) == plain(view.axes.len()).as_ref();
            return straight.then_some((maker, as_made));
        }
        view = match guarded(scopes, &maker) {
            Some(inner) => view.beside(scopes, inner)?,
            None => {
                let closer = view.closer(scopes)?;
                as_made &= !view.regroups(scopes, &closer);
                closer
            }
        };
    }
}

/// Behind a guard `Where(the row sees no key, 0, probabilities)`, the probabilities.
fn guarded(scopes: &Scopes<'_, '_>, maker: &Maker<'_, '_>) -> Option<Place> {
    if !maker.is("Where") {
        return None;
    }
    let (condition, yes, no) = (maker.input(0)?, maker.input(1)?, maker.input(2)?);
    let zero = |place| scopes.fill(place) == Some(0.0);
    if zero(yes) && is_blind(scopes, condition, no) == Some(true) {
        return Some(no);
    }
    (zero(no) && is_blind(scopes, condition, yes) == Some(false)).then_some(yes)
}

/// Whether `condition` says that a row of `probabilities` sees no key; `Some(false)` if it says that it sees one.
fn is_blind(scopes: &Scopes<'_, '_>, condition: Place, probabilities: Place) -> Option<bool> {
    let maker = scopes.maker(condition)?;
    if maker.is("IsNaN") {
        return (maker.input(0)? == probabilities).then_some(true);
    }
    let softmax = scopes.made_by(probabilities, "Softmax")?;
    match said(scopes, condition, softmax.input(0)?, 0)? {
        Said::Rows(blind) => Some(blind),
        Said::Elements(_) => None,
    }
}

/// What a condition says about scores.
enum Said {
    /// Of each score: that it is minus infinity, or that it is not.
    Elements(bool),
    /// Of each row: that all are, or that one is not.
    Rows(bool),
}

fn said(scopes: &Scopes<'_, '_>, place: Place, scores: Place, depth: usize) -> Option<Said> {
    let maker = scopes.maker(place).filter(|_| depth < 16)?;
    let below = || said(scopes, maker.input(0)?, scores, depth + 1);
    let last_axis = || {
        let rank = scopes.rank(maker.input(0)?)?;
        let axes = scopes.axes(&maker, rank)?;
        (axes == [rank - 1] && maker.int_or("keepdims", 1)? == 1).then_some(())
    };
    match maker.node.op_type.as_str() {
        op if !maker.is(op) => None,
        "Equal" => {
            let infinite = |place| scopes.scalar(place) == Some(f64::NEG_INFINITY);
            let found = |(x, y)| rearranged(scopes, x, scores) && infinite(y);
            maker.either_way()?.into_iter().any(found).then_some(Said::Elements(true))
        }
        "Not" => Some(match below()? {
            Said::Elements(infinite) => Said::Elements(!infinite),
            Said::Rows(blind) => Said::Rows(!blind),
        }),
        "Cast" | "Identity" => below(),
        // One that is not, among them all.
        "ReduceMax" | "ReduceSum" => {
            last_axis()?;
            matches!(below()?, Said::Elements(false)).then_some(Said::Rows(false))
        }
        "ReduceMin" => {
            last_axis()?;
            matches!(below()?, Said::Elements(true)).then_some(Said::Rows(true))
        }
        "Greater" => {
            let zero = scopes.scalar(maker.input(1)?) == Some(0.0);
            below().filter(|said| zero && matches!(said, Said::Rows(false)))
        }
        _ => None,
    }
}

/// Whether `place` is `scores`, or `Identity` or a cast of them.
fn rearranged(scopes: &Scopes<'_, '_>, place: Place, scores: Place) -> bool {
    place == scores
        || scopes.maker(place).is_some_and(|maker| {
            (maker.is("Identity") || maker.is("Cast"))
                && maker.input(0).is_some_and(|input| rearranged(scopes, input, scores))
        })
}

/// Whether `maker` sums over the last axis of its input and keeps it.
pub(crate) fn sums_rows(scopes: &Scopes<'_, '_>, maker: &Maker<'_, '_>) -> bool {
    let rank = maker.input(0).and_then(|input| scopes.rank(input));
    let axes = rank.and_then(|rank| scopes.axes(maker, rank));
    let last = rank.and_then(|rank| from_front(-1, rank));
    maker.is("ReduceSum")
        && axes.is_some_and(|axes| axes.len() == 1 && axes.last().copied() == last)
        && maker.int_or("keepdims", 1) == Some(1)
}

/// Whether two views show the probabilities of one softmax.
pub(crate) fn is_of(scopes: &Scopes<'_, '_>, view: &Matrices, node: NodeId) -> bool {
    softmax(scopes, view).is_some_and(|maker| maker.id == node)
}

/// Whether a node only asks for the sizes of probabilities, or whether they are numbers.
pub(crate) fn is_question(node: &Node<'_>) -> bool {
    matches!(node.op_type.as_str(), "IsNaN" | "Shape")
}

/// Whether a node may pass probabilities on: a guard.
pub(crate) fn passes_probabilities(maker: &Maker<'_, '_>, index: usize) -> bool {
    maker.is("Where") && index > 0
}
