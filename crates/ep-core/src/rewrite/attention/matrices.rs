//! Values as stacks of matrices. A view says which axes of a value number the matrices, which are their rows and which
//! their columns; [`Matrices::closer`] moves it through operators that only rearrange, however they lay the stack out:
//! transpositions, axes of size 1, and reshapes that leave rows and columns alone.

use onnx_graph::pattern::{Maker, Place, Scopes};
use onnx_graph::{Dim, ElementType};

/// What an axis of a value runs along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Axis {
    /// The stack: matrices are numbered along these axes in order of their numbers, 0 and up.
    Batch(usize),
    Row,
    Col,
    /// Size 1.
    One,
}

/// A value as a stack of matrices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Matrices {
    pub(crate) place: Place,
    /// What its axes are.
    pub(crate) axes: Vec<Axis>,
}

/// Whether two dimensions are certainly the same.
pub(crate) fn same(a: &Dim, b: &Dim) -> bool {
    *a != Dim::Unknown && a == b
}

/// The axes of a value of `rank` axes whose matrices lie in its last two.
pub(crate) fn plain(rank: usize) -> Option<Vec<Axis>> {
    let batch = rank.checked_sub(2)?;
    Some((0..batch).map(Axis::Batch).chain([Axis::Row, Axis::Col]).collect())
}

impl Matrices {
    /// A value whose matrices lie in its last two axes.
    pub(crate) fn plain(scopes: &Scopes<'_, '_>, place: Place) -> Option<Self> {
        Some(Self { place, axes: plain(scopes.rank(place)?)? })
    }

    /// The same with rows and columns exchanged.
    pub(crate) fn transposed(&self) -> Self {
        let swap = |axis: &Axis| match axis {
            Axis::Row => Axis::Col,
            Axis::Col => Axis::Row,
            other => *other,
        };
        Self { place: self.place, axes: self.axes.iter().map(swap).collect() }
    }

    /// The same axes of another value that has as many.
    pub(crate) fn beside(&self, scopes: &Scopes<'_, '_>, place: Place) -> Option<Self> {
        (scopes.rank(place)? == self.axes.len()).then(|| Self { place, axes: self.axes.clone() })
    }

    /// The axes that number the matrices, in order.
    pub(crate) fn batch(&self) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..self.axes.len()).filter(|&i| self.number(i).is_some()).collect();
        axes.sort_by_key(|&i| self.number(i));
        axes
    }

    /// The declared sizes of the axes that number the matrices, in order.
    pub(crate) fn batch_dims(&self, scopes: &Scopes<'_, '_>) -> Option<Vec<Dim>> {
        let shape = scopes.shape(self.place)?;
        self.batch().into_iter().map(|i| shape.0.get(i).cloned()).collect()
    }

    /// Whether going from here to the value `closer` lays the stack out anew.
    pub(crate) fn regroups(&self, scopes: &Scopes<'_, '_>, closer: &Self) -> bool {
        let (dims, before) = (self.batch_dims(scopes), closer.batch_dims(scopes));
        scopes.made_by(self.place, "Reshape").is_some()
            && !dims.zip(before).is_some_and(|(dims, before)| same_dims(&dims, &before))
    }

    fn number(&self, i: usize) -> Option<usize> {
        match self.axes[i] {
            Axis::Batch(n) => Some(n),
            _ => None,
        }
    }

    /// The value of which this is a rearrangement.
    pub(crate) fn closer(&self, scopes: &Scopes<'_, '_>) -> Option<Self> {
        let maker = scopes.maker(self.place)?;
        if !matches!(maker.node.domain.as_str(), "" | "ai.onnx") {
            return None;
        }
        let input = maker.input(0)?;
        let axes = match maker.node.op_type.as_str() {
            "Identity" => self.axes.clone(),
            "Cast" | "CastLike" => {
                let float = |p| scopes.element(p).is_some_and(ElementType::is_float);
                (float(input) && float(self.place)).then(|| self.axes.clone())?
            }
            "Transpose" => self.before_transpose(&maker)?,
            "Unsqueeze" => {
                let added = scopes.axes(&maker, self.axes.len())?;
                if added.iter().any(|&i| matches!(self.axes[i], Axis::Row | Axis::Col)) {
                    return None;
                }
                let kept = self.axes.iter().enumerate().filter(|(i, _)| !added.contains(i));
                numbered(kept.map(|(_, axis)| *axis).collect())
            }
            "Squeeze" => {
                let dropped = scopes.axes(&maker, scopes.rank(input)?)?;
                let mut kept = self.axes.iter().copied();
                let axes = (0..scopes.rank(input)?)
                    .map(|i| if dropped.contains(&i) { Some(Axis::One) } else { kept.next() });
                axes.collect::<Option<_>>()?
            }
            "Reshape" | "Expand" => {
                let (from, to) = (scopes.shape(input)?.0, scopes.shape(self.place)?.0);
                match maker.is("Expand") {
                    true => same_dims(&from, &to).then(|| self.axes.clone())?,
                    false => before_reshape(&self.axes, &to, &from)?,
                }
            }
            _ => return None,
        };
        (scopes.rank(input)? == axes.len()).then_some(Self { place: input, axes })
    }

    fn before_transpose(&self, maker: &Maker<'_, '_>) -> Option<Vec<Axis>> {
        let perm = match maker.ints("perm") {
            Some(perm) => perm.to_vec(),
            None => (0..self.axes.len() as i64).rev().collect(),
        };
        let mut axes = vec![Axis::One; perm.len()];
        for (&to, axis) in perm.iter().zip(&self.axes) {
            *axes.get_mut(usize::try_from(to).ok()?)? = *axis;
        }
        Some(axes)
    }
}

/// Whether a value certainly broadcasts to another and gives it no more axes or entries.
pub(crate) fn is_no_wider(scopes: &Scopes<'_, '_>, place: Place, than: Place) -> bool {
    let fits = || {
        let (dims, others) = (scopes.shape(place)?.0, scopes.shape(than)?.0);
        let mut pairs = dims.iter().rev().zip(others.iter().rev());
        Some(dims.len() <= others.len() && pairs.all(|(a, b)| *a == Dim::Known(1) || same(a, b)))
    };
    fits() == Some(true)
}

/// Whether all dimensions are certainly the same.
pub(crate) fn same_dims(a: &[Dim], b: &[Dim]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

/// Whether two stacks certainly have the same sizes. If each has one axis, what those are made of may show it.
pub(crate) fn even(scopes: &Scopes<'_, '_>, a: &Matrices, b: &Matrices) -> bool {
    let [of_a, of_b] = [a, b].map(|view| view.batch_dims(scopes));
    if of_a.zip(of_b).is_some_and(|(a, b)| same_dims(&a, &b)) {
        return true;
    }
    let [a, b] =
        [a, b].map(|view| if view.batch().len() == 1 { groupings(scopes, view) } else { Vec::new() });
    a.iter().any(|dims| b.iter().any(|other| same_dims(dims, other)))
}

/// The sizes of a stack as it is laid out on the way up; softmaxes are passed.
fn groupings(scopes: &Scopes<'_, '_>, view: &Matrices) -> Vec<Vec<Dim>> {
    let further = |view: &Matrices| {
        let softmax =
            || scopes.made_by(view.place, "Softmax").and_then(|maker| view.beside(scopes, maker.input(0)?));
        view.closer(scopes).or_else(softmax)
    };
    let views = std::iter::successors(Some(view.clone()), further).take(16);
    views.filter_map(|view| view.batch_dims(scopes)).collect()
}

/// The axes with the stack's numbered from 0 without gaps.
pub(crate) fn numbered(axes: Vec<Axis>) -> Vec<Axis> {
    let mut numbers: Vec<Axis> = axes.iter().copied().filter(|a| matches!(a, Axis::Batch(_))).collect();
    numbers.sort_unstable();
    let renumber = |axis| numbers.iter().position(|n| *n == axis).map_or(axis, Axis::Batch);
    axes.into_iter().map(renumber).collect()
}

/// What the axes of sizes `from` are if a reshape to sizes `to` makes `axes` of them. Rows and columns stay; axes of the
/// stack that lie side by side in order may become others.
fn before_reshape(axes: &[Axis], to: &[Dim], from: &[Dim]) -> Option<Vec<Axis>> {
    let fixed = |i: usize| matches!(axes[i], Axis::Row | Axis::Col);
    // An axis of size 1 may be anywhere, unless it is one of rows or columns.
    let long =
        |dims: &[Dim]| -> Vec<usize> { (0..dims.len()).filter(|&i| dims[i] != Dim::Known(1)).collect() };
    let (tail, unit) = (axes.len().checked_sub(2)?, Dim::Known(1));
    let (kept, before) = if fixed(tail) && fixed(tail + 1) && from.len() >= 2 {
        // Matrices in the last two axes stay there, of size 1 or not.
        let last = from.len() - 2;
        let stack = |n: usize, dims: &[Dim]| (0..n).filter(|&i| dims[i] != unit).chain([n, n + 1]).collect();
        if same_dims(&to[tail..], &from[last..]) {
            (stack(tail, to), stack(last, from))
        } else {
            (long(to), long(from))
        }
    } else {
        (long(to), long(from))
    };
    if (0..axes.len()).any(|i| fixed(i) && !kept.contains(&i)) {
        return None;
    }
    let equal = |a: &usize, b: &usize| same(&to[*a], &from[*b]);
    let front = kept.iter().zip(&before).take_while(|(a, b)| equal(a, b)).count();
    let behind = |a: &[usize], b: &[usize]| {
        a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| equal(a, b)).count()
    };
    let back = behind(&kept[front..], &before[front..]);
    let (run, into) = (&kept[front..kept.len() - back], &before[front..before.len() - back]);
    let mut keys = vec![None; from.len()];
    for (a, b) in kept[..front].iter().zip(&before) {
        keys[*b] = Some((axes[*a], 0));
    }
    for (a, b) in kept.iter().rev().zip(before.iter().rev()).take(back) {
        keys[*b] = Some((axes[*a], 0));
    }
    match (run, into) {
        ([], []) => {}
        ([], _) | (_, []) => return None,
        _ => {
            let numbers: Vec<Axis> = run.iter().map(|&i| axes[i]).collect();
            let stack = |axis: &Axis| matches!(axis, Axis::Batch(_));
            let between = |axis: &Axis| numbers[0] < *axis && *axis < numbers[numbers.len() - 1];
            let strangers = kept.iter().filter(|i| !run.contains(i)).any(|&i| between(&axes[i]));
            if !numbers.iter().all(stack) || !numbers.is_sorted() || strangers {
                return None;
            }
            for (sub, &b) in into.iter().enumerate() {
                keys[b] = Some((numbers[0], sub));
            }
        }
    }
    Some(renumbered(&keys))
}

/// The axes numbered by what they come from; `None` for those of size 1.
fn renumbered(keys: &[Option<(Axis, usize)>]) -> Vec<Axis> {
    let mut stack: Vec<(Axis, usize)> =
        keys.iter().flatten().copied().filter(|(axis, _)| matches!(axis, Axis::Batch(_))).collect();
    stack.sort_unstable();
    let axis = |key: &(Axis, usize)| stack.iter().position(|k| k == key).map_or(key.0, Axis::Batch);
    keys.iter().map(|key| key.as_ref().map_or(Axis::One, axis)).collect()
}
