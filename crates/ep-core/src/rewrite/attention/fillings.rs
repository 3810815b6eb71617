//! What masks put in the place of scores that they hide. A filling stands for minus infinity if no score comes near it; where
//! it is finite, a row that sees no key is even over those whose filling is highest.

use onnx_graph::ElementType;
use onnx_graph::pattern::{Place, Scopes};

use super::scores::{Kind, Mask};

/// No score is as low.
const LOW: f64 = -1e9;

/// At least this low, a filling stays itself whatever a model adds to it.
pub(crate) const DEEP: f64 = -1e30;

/// Whether no score of this type comes near `number`: 16 bits leave nothing below their lowest.
pub(crate) fn hides(number: f64, scores: Option<ElementType>) -> bool {
    number <= LOW || scores == Some(ElementType::Float16) && number <= -65504.0
}

/// What stands for a filling in a mask for the kernel, which takes it in the score's place. The order of those that one graph
/// has stays.
pub(crate) fn standing(fill: f64) -> f32 {
    if fill <= DEEP { fill as f32 } else { kernels_metal::attention::REPLACES }
}

/// Whether masks, the outermost first, can be one for the kernel. Fillings that are not deep have to be the same, and what is
/// added beside them must neither move them nor come near them.
pub(crate) fn agree(scopes: &Scopes<'_, '_>, masks: &[Mask]) -> bool {
    let shallow = |mask: &Mask| match mask.kind {
        Kind::Chosen { fill, .. } => Some(fill).filter(|fill| *fill > DEEP),
        Kind::Added(_) | Kind::Scaled(_) | Kind::Lifted(_) => None,
    };
    let Some(fill) = masks.iter().find_map(shallow) else { return true };
    let innermost = masks.iter().rposition(|mask| shallow(mask).is_some());
    masks.iter().enumerate().all(|(at, mask)| match mask.kind {
        Kind::Chosen { .. } => shallow(mask).is_none_or(|other| other == fill),
        Kind::Added(_) => Some(at) > innermost && is_mild(scopes, mask, fill),
        Kind::Scaled(_) | Kind::Lifted(_) => true,
    })
}

/// Whether a mask certainly hides nothing, beside what is hidden by `fill`.
pub(crate) fn is_mild(scopes: &Scopes<'_, '_>, mask: &Mask, fill: f64) -> bool {
    match mask.kind {
        Kind::Added(times) => {
            all(scopes, mask.value, &|number| number * times > (fill / 10.0).max(LOW / 10.0), 0)
        }
        Kind::Scaled(_) | Kind::Lifted(_) => true,
        Kind::Chosen { .. } => false,
    }
}

/// Whether every element is certainly 0 or 1.
pub(crate) fn is_bit(scopes: &Scopes<'_, '_>, place: Place) -> bool {
    all(scopes, place, &|number| number == 0.0 || number == 1.0, 0)
}

/// Whether every element certainly `fits`, as 0 and 1 do: of constants, of bools, and of what is picked from them.
fn all(scopes: &Scopes<'_, '_>, place: Place, fits: &dyn Fn(f64) -> bool, depth: usize) -> bool {
    const PICKS: &[&str] = &[
        "Cast",
        "Expand",
        "Gather",
        "Identity",
        "Reshape",
        "Slice",
        "Squeeze",
        "Transpose",
        "Trilu",
        "Unsqueeze",
    ];
    if scopes.element(place) == Some(ElementType::Bool) {
        return true;
    }
    if let Some(tensor) = scopes.constant(place) {
        let ints = || Some(tensor.ints()?.into_iter().map(|v| v as f64).collect());
        let numbers: Option<Vec<f64>> = tensor.floats().or_else(ints);
        return numbers.is_some_and(|numbers| numbers.into_iter().all(fits));
    }
    let Some(maker) = scopes.maker(place).filter(|_| depth < 8) else { return false };
    let below = |i: usize| maker.input(i).is_some_and(|input| all(scopes, input, fits, depth + 1));
    if maker.is("Where") { below(1) && below(2) } else { PICKS.iter().any(|op| maker.is(op)) && below(0) }
}
