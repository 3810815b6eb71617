//! The scores behind a `Softmax`: scale times queries times keys, with masks added or put in place, in any order, and at most
//! one scale for each matrix behind them.

use onnx_graph::Dim;
use onnx_graph::pattern::{Maker, Place, Scopes};

use super::factor::{Factor, multiple};
use super::fillings::{DEEP, hides, is_bit};
use super::matrices::{Axis, Matrices, even, is_no_wider};
use super::product::Product;
use crate::rewrite::spelled::polynomial::{Algebra, Polynomial, settled};

/// The scores of an attention.
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    /// Rows are queries.
    pub(crate) q: Matrices,
    /// Columns are keys.
    pub(crate) k: Matrices,
    pub(crate) scale: Factor,
    pub(crate) masks: Vec<Mask>,
    /// Whether the product's stacks certainly have the same sizes.
    pub(crate) even: bool,
    /// Whether the stack is laid out as the product has it all the way to the softmax.
    pub(crate) as_made: bool,
}

/// A mask, where it meets the scores.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    pub(crate) value: Place,
    pub(crate) kind: Kind,
    /// The scores there: the mask broadcasts to them.
    pub(crate) scores: Matrices,
}

/// What a mask does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// It is added, times this number.
    Added(f64),
    /// Scores stay where it, or as a number whether it is 1, is `stays`; others become `fill`, which no score comes near.
    Chosen { stays: bool, fill: f64 },
    /// Scores are multiplied by it to this power, 1 or -1: a number for each matrix.
    Scaled(i32),
    /// Scores are at least as high as this number, which is about as low as numbers go: what masks before it hide comes
    /// near it.
    Lifted(f64),
}

impl Scores {
    /// The scores that `softmax`, over the last axis, is taken of.
    pub(crate) fn read(scopes: &Scopes<'_, '_>, softmax: &Maker<'_, '_>) -> Option<Self> {
        let view = Matrices::plain(scopes, softmax.input(0)?)?;
        let rank = view.axes.len() as i64;
        // Before opset 13 all axes from this one on are taken together.
        let default = if softmax.node.version < 13 { 1 } else { -1 };
        let axis = softmax.int_or("axis", default)?;
        let mut scores = Self {
            q: view.clone(),
            k: view.clone(),
            scale: Factor::default(),
            masks: Vec::new(),
            even: false,
            as_made: true,
        };
        let whole = (axis == -1 || axis == rank - 1) && scores.walk(scopes, &view, 0);
        whole.then_some(scores)
    }

    /// Whether each matrix has a scale of its own.
    pub(crate) fn has_scales(&self) -> bool {
        self.masks.iter().any(|mask| matches!(mask.kind, Kind::Scaled(_)))
    }

    /// Whether masks do nothing but add and choose.
    pub(crate) fn is_plain(&self) -> bool {
        self.masks.iter().all(|mask| matches!(mask.kind, Kind::Added(_) | Kind::Chosen { .. }))
    }

    /// Goes from `view` to the product of queries and keys. Says whether there is one; if not, `self` is as it was.
    fn walk(&mut self, scopes: &Scopes<'_, '_>, view: &Matrices, depth: usize) -> bool {
        self.product(scopes, view).is_some() || self.inner(scopes, view, depth).is_some()
    }

    fn product(&mut self, scopes: &Scopes<'_, '_>, view: &Matrices) -> Option<()> {
        let product = Product::of(scopes, view)?;
        self.scale.number *= product.alpha;
        (self.q, self.k, self.even) = (product.left, product.right, product.even);
        Some(())
    }

    fn inner(&mut self, scopes: &Scopes<'_, '_>, view: &Matrices, depth: usize) -> Option<()> {
        // Far beyond what any exporter writes.
        if depth > 32 {
            return None;
        }
        if let Some(closer) = view.closer(scopes) {
            let before = self.as_made;
            self.as_made &= !view.regroups(scopes, &closer);
            let found = self.walk(scopes, &closer, depth + 1);
            self.as_made = if found { self.as_made } else { before };
            return found.then_some(());
        }
        let before = self.clone();
        if let Some(scaled) = multiple(scopes, view) {
            self.scale.times(&scaled.by);
            if self.walk(scopes, &scaled.view, depth + 1) {
                return Some(());
            }
            *self = before;
            return None;
        }
        if self.has_scales() {
            return None;
        }
        for (inner, mask, kind) in ways(scopes, view, &self.scale)? {
            let Some(inner) = view.beside(scopes, inner) else { continue };
            self.masks.push(Mask { value: mask, kind, scores: view.clone() });
            if self.walk(scopes, &inner, depth + 1) {
                return Some(());
            }
            *self = before.clone();
        }
        None
    }
}

/// The size of the stack, by axes, where masks are; `None` if there is no mask, or if they do not agree.
pub(crate) fn frame(scopes: &Scopes<'_, '_>, masks: &[Mask]) -> Option<Vec<Dim>> {
    let mut frames = masks.iter().map(|mask| mask.scores.batch_dims(scopes));
    let first = frames.next()??;
    frames.all(|frame| frame.as_ref() == Some(&first)).then_some(first)
}

/// Scores times b, less a large number times 1 - b, where b is 0 or 1: the scores and b, and what stands where b is 0.
fn kept_or_lost(scopes: &Scopes<'_, '_>, maker: &Maker<'_, '_>) -> Option<(Place, Place, f64)> {
    let (sign, sums) = match () {
        () if maker.is("Sub") => (1.0, vec![(maker.input(0)?, maker.input(1)?)]),
        () if maker.is("Add") => (-1.0, maker.either_way()?.to_vec()),
        () => return None,
    };
    sums.into_iter().find_map(|(kept, lost)| {
        let factors = scopes.made_by(kept, "Mul")?.either_way()?;
        factors.into_iter().find_map(|(x, bit)| {
            let bit = settled(scopes, bit);
            let known = |place| (place == bit).then(|| Polynomial::of(bit));
            let lost = Algebra { scopes, known: &known }.read(lost);
            let one_less = Polynomial::number(1.0).plus(&Polynomial::of(bit).scaled(-1.0));
            let (_, number) = lost.terms().find(|(factors, _)| factors.is_empty())?;
            let fits = lost.is_near(&one_less.scaled(number), 1e-6) && is_bit(scopes, bit);
            fits.then_some((x, bit, -sign * number))
        })
    })
}

/// The ways in which a value can be scores and a mask, where what is made of both is multiplied by `scale` afterwards.
fn ways(scopes: &Scopes<'_, '_>, view: &Matrices, scale: &Factor) -> Option<Vec<(Place, Place, Kind)>> {
    let maker = scopes.maker(view.place)?;
    if maker.is("Mul") || maker.is("Div") {
        let power = if maker.is("Mul") { 1 } else { -1 };
        let mut found = maker.either_way()?.to_vec();
        found.truncate(if power < 0 { 1 } else { 2 });
        found.retain(|&(x, by)| is_of_matrices(scopes, view, x, by) == Some(true));
        return Some(found.into_iter().map(|(x, by)| (x, by, Kind::Scaled(power))).collect());
    }
    if !scale.computed.is_empty() {
        return None;
    }
    let element = scopes.element(view.place);
    let low = |fill: f64| (hides(fill, element) && scale.number > 0.0).then_some(fill * scale.number);
    if maker.is("Max") || maker.is("Clip") && maker.input(2).is_none() {
        let mut found = maker.either_way()?.to_vec();
        found.truncate(if maker.is("Clip") { 1 } else { 2 });
        let lifted = |(x, floor)| {
            let number = scopes.fill(floor)? * scale.number;
            let lifts = number <= DEEP && is_no_wider(scopes, floor, x);
            lifts.then_some((x, floor, Kind::Lifted(number)))
        };
        return Some(found.into_iter().filter_map(lifted).collect());
    }
    if let Some((x, bit, lost)) = kept_or_lost(scopes, &maker) {
        return Some(vec![(x, bit, Kind::Chosen { stays: true, fill: low(lost)? })]);
    }
    if maker.is("Add") {
        let kind = Kind::Added(scale.number);
        return Some(maker.either_way()?.into_iter().map(|(x, mask)| (x, mask, kind)).collect());
    }
    if maker.is("Where") {
        let (condition, yes, no) = (maker.input(0)?, maker.input(1)?, maker.input(2)?);
        let chosen = |x, stays, other| {
            let fill = scopes.fill(other).and_then(low).filter(|_| is_no_wider(scopes, other, x))?;
            Some((x, condition, Kind::Chosen { stays, fill }))
        };
        return Some([chosen(yes, true, no), chosen(no, false, yes)].into_iter().flatten().collect());
    }
    None
}

/// Whether `view` is a stack of the size of x, of which each matrix is multiplied by one element of `by`.
fn is_of_matrices(scopes: &Scopes<'_, '_>, view: &Matrices, x: Place, by: Place) -> Option<bool> {
    let dims = scopes.shape(by)?.0;
    let axes = view.axes.get(view.axes.len().checked_sub(dims.len())?..)?;
    let fits = |(axis, dim): (&Axis, &Dim)| !matches!(axis, Axis::Row | Axis::Col) || *dim == Dim::Known(1);
    Some(axes.iter().zip(&dims).all(fits) && even(scopes, &view.beside(scopes, x)?, view))
}
