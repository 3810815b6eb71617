//! What the axes of a value mean. A [`View`] is a value whose axes are labelled; [`Steps::closer`] moves it through
//! operators that only rearrange (transpositions, inserted axes, picks of one step, border of a `Scan` body) to the value
//! behind them, with the labels that its axes have there.

use std::collections::HashMap;

use onnx_graph::pattern::{Maker, Place, Scopes, from_front};
use onnx_graph::{ElementType, ValueId};

/// What an axis of a value runs along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Label {
    /// Axis of the recurrence's state, or of size 1 and broadcast along it.
    State(usize),
    /// The steps.
    Time(Walk),
    /// One entry is picked: the value is what lies there.
    At(i64),
    /// Size 1.
    One,
    /// An axis that must turn out to be of size 1.
    Extra,
}

/// How an axis runs through the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Walk {
    /// From the last entry to the first.
    pub(crate) reverse: bool,
    /// First entry and number of entries; all if `None`.
    pub(crate) range: Option<(i64, i64)>,
}

/// A value with labelled axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) place: Place,
    pub(crate) labels: Vec<Label>,
}

/// What an input of a body stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// One entry a step of an axis of an outer value.
    Scanned { outer: ValueId, axis: usize, reverse: bool },
    /// The same outer value at every step.
    Held(ValueId),
}

/// Where steps are written down: in the body of a `Scan` or `Loop`, or one after another.
pub(crate) struct Steps<'g, 'a> {
    /// The graph, and the body if there is one.
    pub(crate) scopes: Scopes<'g, 'a>,
    /// What the body's inputs stand for; states are left out.
    pub(crate) sources: HashMap<ValueId, Source>,
    /// The body's input that counts the steps from 0.
    pub(crate) counter: Option<ValueId>,
    /// The outer value that says how many steps there are; `None` if an axis along which they run does.
    pub(crate) length: Option<ValueId>,
}

impl<'g, 'a> Steps<'g, 'a> {
    /// Steps that lie in the graph itself.
    pub(crate) fn unrolled(scopes: Scopes<'g, 'a>) -> Self {
        Self { scopes, sources: HashMap::new(), counter: None, length: None }
    }

    /// The view of an operand that broadcasts against a value with `labels`.
    pub(crate) fn operand(&self, place: Place, labels: &[Label]) -> Option<View> {
        let skip = labels.len().checked_sub(self.rank(place)?)?;
        Some(View { place, labels: labels[skip..].to_vec() })
    }

    /// What a body's input stands for.
    pub(crate) fn source(&self, place: Place) -> Option<Source> {
        if place.depth == 0 { None } else { self.sources.get(&place.value).copied() }
    }

    /// The view with axes of declared size 1 labelled so.
    pub(crate) fn settled(&self, mut view: View) -> View {
        for (axis, label) in view.labels.iter_mut().enumerate() {
            // Broadcast along what the label says: what is picked there is the only entry.
            if self.scopes.is_one(view.place, axis) {
                *label = Label::One;
            }
        }
        view
    }

    /// The value of which `view` is a rearrangement.
    pub(crate) fn closer(&self, view: &View) -> Option<View> {
        let place = self.scopes.resolve(view.place);
        if let Some(source) = self.source(place) {
            return Some(outside(source, &view.labels));
        }
        let maker = self.scopes.maker(place)?;
        if !matches!(maker.node.domain.as_str(), "" | "ai.onnx") {
            return None;
        }
        let input = maker.input(0)?;
        let labels = match maker.node.op_type.as_str() {
            "Identity" => view.labels.clone(),
            "Cast" | "CastLike" => {
                let float = |p| self.scopes.element(p).is_some_and(ElementType::is_float);
                (float(input) && float(place)).then(|| view.labels.clone())?
            }
            "Expand" => return self.operand(input, &view.labels),
            "Unsqueeze" => {
                let axes = self.scopes.axes(&maker, view.labels.len())?;
                let kept = view.labels.iter().enumerate().filter(|(i, _)| !axes.contains(i));
                kept.map(|(_, label)| *label).collect()
            }
            "Squeeze" => {
                let mut axes = self.scopes.axes(&maker, view.labels.len() + self.axis_count(&maker)?)?;
                axes.sort_unstable();
                let mut labels = view.labels.clone();
                axes.into_iter().try_for_each(|axis| insert(&mut labels, axis, Label::One))?;
                labels
            }
            "Transpose" => {
                let perm = match maker.ints("perm") {
                    Some(perm) => perm.to_vec(),
                    None => (0..view.labels.len() as i64).rev().collect(),
                };
                let mut labels = vec![Label::One; perm.len()];
                for (&axis, label) in perm.iter().zip(&view.labels) {
                    *labels.get_mut(usize::try_from(axis).ok()?)? = *label;
                }
                labels
            }
            "Reshape" => self.reshaped(place, input, &view.labels)?,
            "Gather" => self.gathered(&maker, &view.labels)?,
            "Slice" => self.sliced(&maker, &view.labels)?,
            _ => return None,
        };
        // Ranks are declared or follow from the makers; what disagrees is not understood.
        let known = self.rank(input);
        known.is_none_or(|rank| rank == labels.len()).then_some(View { place: input, labels })
    }

    /// A reshape that only inserts and drops axes of size 1, by the declared shapes.
    fn reshaped(&self, place: Place, input: Place, labels: &[Label]) -> Option<Vec<Label>> {
        use onnx_graph::Dim;
        let (to, from) = (self.scopes.shape(place)?, self.scopes.shape(input)?);
        let long = |dims: &[Dim]| dims.iter().filter(|d| **d != Dim::Known(1)).cloned().collect::<Vec<_>>();
        let (kept, before) = (long(&to.0), long(&from.0));
        if kept != before || kept.contains(&Dim::Unknown) || to.rank() != labels.len() {
            return None;
        }
        let mut kept = labels.iter().zip(&to.0).filter(|(_, d)| **d != Dim::Known(1)).map(|(l, _)| *l);
        from.0.iter().map(|d| if *d == Dim::Known(1) { Some(Label::One) } else { kept.next() }).collect()
    }

    /// `Gather` of one entry, at a constant or at the counter of steps.
    fn gathered(&self, maker: &Maker<'_, '_>, labels: &[Label]) -> Option<Vec<Label>> {
        let indices = maker.input(1)?;
        let label = match self.scopes.ints(indices) {
            Some(indices) => match indices.as_slice() {
                [index] => Label::At(*index),
                _ => return None,
            },
            None => self.counts(indices).then_some(Label::Time(Walk::default()))?,
        };
        let picked = self.rank(indices)?;
        let rank = (labels.len() + 1).checked_sub(picked)?;
        let axis = from_front(maker.int_or("axis", 0)?, rank)?;
        let mut labels = labels.to_vec();
        match picked {
            0 => insert(&mut labels, axis, label)?,
            1 => labels[axis] = label,
            _ => return None,
        }
        Some(labels)
    }

    /// Whether a value is the counter of steps.
    pub(crate) fn counts(&self, mut place: Place) -> bool {
        loop {
            if place.depth > 0 && Some(place.value) == self.counter {
                return true;
            }
            let Some(maker) = self.scopes.maker(place) else { return false };
            match (maker.node.op_type.as_str(), maker.input(0)) {
                ("Identity" | "Unsqueeze" | "Squeeze" | "Cast", Some(input)) => place = input,
                _ => return false,
            }
        }
    }

    /// `Slice` of everything, of one entry, or of all steps backwards.
    pub(crate) fn sliced(&self, maker: &Maker<'_, '_>, labels: &[Label]) -> Option<Vec<Label>> {
        const FAR: i64 = i32::MAX as i64;
        let list = |i: usize| self.scopes.ints(maker.input(i)?);
        let (starts, ends) = (list(1)?, list(2)?);
        let count = starts.len();
        let axes = if maker.input(3).is_some() { list(3)? } else { (0..count as i64).collect() };
        let strides = if maker.input(4).is_some() { list(4)? } else { vec![1; count] };
        let mut labels = labels.to_vec();
        let rank = labels.len();
        for (((start, end), axis), stride) in starts.iter().zip(&ends).zip(&axes).zip(&strides) {
            let label = labels.get_mut(from_front(*axis, rank)?)?;
            *label = match (*start, *end, *stride, *label) {
                (0, end, 1, label) if end >= FAR => label,
                (start, end, -1, Label::Time(walk))
                    if (start == -1 || start >= FAR) && end <= -FAR && walk.range.is_none() =>
                {
                    Label::Time(Walk { reverse: !walk.reverse, ..walk })
                }
                (start, end, 1, _) if start >= 0 && end == start + 1 => Label::At(start),
                _ => return None,
            };
        }
        Some(labels)
    }
}

/// A value of the outermost graph.
pub(crate) fn outermost(value: ValueId) -> Place {
    Place { depth: 0, value }
}

/// What a body's input stands for, seen from outside.
fn outside(source: Source, labels: &[Label]) -> View {
    let mut labels = labels.to_vec();
    match source {
        Source::Held(outer) => View { place: outermost(outer), labels },
        Source::Scanned { outer, axis, reverse } => {
            labels.insert(axis.min(labels.len()), Label::Time(Walk { reverse, range: None }));
            View { place: outermost(outer), labels }
        }
    }
}

fn insert(labels: &mut Vec<Label>, axis: usize, label: Label) -> Option<()> {
    (axis <= labels.len()).then(|| labels.insert(axis, label))
}
