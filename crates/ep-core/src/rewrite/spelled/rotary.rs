//! Rotary position embedding in two spellings: x * cos + (-x2 | x1) * sin, and (x1 cos - x2 sin | x2 cos + x1 sin), where
//! x1 and x2 are the halves of the last axis of x; in the first also its even and odd elements. The second may go on with
//! what is not turned.

use onnx_graph::pattern::{Maker, Place, Scopes, from_front};
use onnx_graph::{Attribute, Dim, Graph, Node, NodeId, ValueId};

use crate::rewrite::size::sizes;
use crate::rewrite::sketch::{DOMAIN, Replacement, Sketch, Wire, ranked};
use crate::rewrite::spelled::polynomial::{Algebra, Polynomial, settled};
use crate::rewrite::spelled::sizes::is_half;
use crate::rewrite::view::outermost;

/// Looks from a `Concat`.
pub(super) fn rule<'a>(graph: &Graph<'a>, id: NodeId) -> Option<Replacement<'a>> {
    let scopes = Scopes::new(graph);
    let maker = Maker { depth: 0, id, node: graph.node(id), output: 0 };
    let output = maker.node.outputs().first().copied().flatten()?;
    let rank = scopes.rank(outermost(output))?;
    if from_front(maker.int_or("axis", 0)?, rank)? + 1 != rank {
        return None;
    }
    let parts: Vec<Place> = (0..maker.node.inputs().len()).map(|i| maker.input(i)).collect::<Option<_>>()?;
    let rotation = Rotation { graph, scopes: &scopes, rank };
    match parts[..] {
        [a, b] => rotation.whole(output, a, b).or_else(|| rotation.by_halves(output, a, b, &[])),
        [a, b, ref rest @ ..] => rotation.by_halves(output, a, b, rest),
        _ => None,
    }
}

struct Rotation<'s, 'g, 'a> {
    graph: &'g Graph<'a>,
    scopes: &'s Scopes<'g, 'a>,
    /// That of what the `Concat` makes.
    rank: usize,
}

/// One element of each pair of the last axis of x.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Half {
    x: Place,
    second: bool,
    /// Whether pairs are neighbours, not an element of either half.
    interleaved: bool,
}

impl<'a> Rotation<'_, '_, 'a> {
    /// `output` is (-x2 | x1), read once, by a product that is added to x times something.
    fn whole(&self, output: ValueId, a: Place, b: Place) -> Option<Replacement<'a>> {
        let one = self.rank.checked_sub(1)?;
        let stacked = |place| self.unsqueezed(place, one);
        let (a, b, interleaved) = match (stacked(a), stacked(b)) {
            (Some(a), Some(b)) => (a, b, true),
            _ => (a, b, false),
        };
        let negated = self.scopes.maker(settled(self.scopes, a)).filter(|m| m.is("Neg"))?;
        let (second, first) = (self.half(negated.input(0)?)?, self.half(b)?);
        let x = first.x;
        let wanted = |second| Half { x, second, interleaved };
        if (first, second) != (wanted(false), wanted(true)) {
            return None;
        }
        let rotated = if interleaved { self.merged(output, x)? } else { output };
        let product = self.reader(rotated, "Mul")?;
        let sum = self.reader(product, "Add")?;
        let sin = self.other(product, &|place| place == outermost(rotated))?;
        let scaled = self.other(sum, &|place| place == outermost(product))?;
        let maker = self.scopes.made_by(settled(self.scopes, scaled), "Mul")?;
        let scaled = maker.node.outputs().first().copied().flatten()?;
        let cos = self.other(scaled, &|place| place == x)?;
        self.replace(sum, &[("interleaved", interleaved)], [x, cos, sin], &[])
    }

    /// `output` is (x1 cos - x2 sin | x2 cos + x1 sin | rest).
    fn by_halves(&self, output: ValueId, a: Place, b: Place, rest: &[Place]) -> Option<Replacement<'a>> {
        let plain = Algebra { scopes: self.scopes, known: &|_| None };
        let (a, b) = (plain.read(a), plain.read(b));
        let (lost, _) = a.terms().find(|(_, coefficient)| *coefficient == -1.0)?;
        let (kept, _) = a.terms().find(|(_, coefficient)| *coefficient == 1.0)?;
        lost.keys().find_map(|&x2| {
            let second = self.half(x2).filter(|half| half.second && !half.interleaved)?;
            let is_first = |place: &&Place| self.half(**place) == Some(Half { second: false, ..second });
            let &x1 = kept.keys().find(is_first)?;
            let &sin = lost.keys().find(|place| **place != x2)?;
            let &cos = kept.keys().find(|place| **place != x1)?;
            let pair = |x: Place, table: Place| Polynomial::of(x).times(&Polynomial::of(table));
            let turned = a == pair(x1, cos).plus(&pair(x2, sin).scaled(-1.0))
                && b == pair(x2, cos).plus(&pair(x1, sin));
            if turned { self.replace(output, &[("by_half", true)], [second.x, cos, sin], rest) } else { None }
        })
    }

    /// x turned by the tables, and `rest` beside it, in place of `output`.
    fn replace(
        &self,
        output: ValueId,
        form: &[(&str, bool)],
        inputs: [Place; 3],
        rest: &[Place],
    ) -> Option<Replacement<'a>> {
        // A table of more axes would give the result more than x has.
        let rank = self.scopes.rank(inputs[0])?;
        let fits = |table: &Place| self.scopes.rank(*table).is_some_and(|of_table| of_table <= rank);
        inputs[1..].iter().all(fits).then_some(())?;
        let mut sketch = Sketch::new(self.graph);
        let ty = sketch.ty(Wire::Old(output))?;
        let mut node = Node::new("Rotary", 1);
        node.domain = DOMAIN.to_owned();
        let form = form.iter().map(|(name, holds)| ((*name).to_owned(), Attribute::Int((*holds).into())));
        node.attributes.extend(form);
        if let Some(width) = self.size(inputs[0]) {
            node.attributes.insert("width".to_owned(), Attribute::Int(width));
        }
        let inputs = inputs.iter().map(|place| Some(Wire::Old(place.value))).collect();
        let whole = rest.is_empty();
        let turned = if whole { ty.clone() } else { ranked(ty.element, rank) };
        let mut wire = Wire::Node(sketch.node(node, inputs, vec![turned]), 0);
        if !whole {
            let parts: Vec<Wire> =
                std::iter::once(wire).chain(rest.iter().map(|p| Wire::Old(p.value))).collect();
            wire = sketch.op("Concat", &parts, &[("axis", Attribute::Int(-1))], ty);
        }
        Some(sketch.replace("rotary", vec![(output, wire)])?.downward())
    }

    /// What gets a last axis of size 1, if its rank is `rank`.
    fn unsqueezed(&self, place: Place, rank: usize) -> Option<Place> {
        let maker = self.scopes.made_by(settled(self.scopes, place), "Unsqueeze")?;
        (self.scopes.axes(&maker, rank + 1)? == [rank]).then(|| maker.input(0))?
    }

    /// The pairs in `output`, (..., D / 2, 2), as one axis, if the one who reads them gives them the shape of x.
    fn merged(&self, output: ValueId, x: Place) -> Option<ValueId> {
        let merged = self.reader(output, "Reshape")?;
        let (shape, wanted) = (self.scopes.shape(outermost(merged))?, self.scopes.shape(x)?);
        (shape == wanted && !shape.0.contains(&Dim::Unknown)).then_some(merged)
    }

    /// What `place` picks of the last axis of a value, by `Slice` or `Split`.
    fn half(&self, place: Place) -> Option<Half> {
        let maker = self.scopes.maker(settled(self.scopes, place))?;
        let x = settled(self.scopes, maker.input(0)?);
        let rank = self.scopes.rank(x)?;
        let is_last = |axis: i64| from_front(axis, rank).is_some_and(|axis| axis + 1 == rank);
        let (second, interleaved) = match maker.node.op_type.as_str() {
            "Split" if is_last(maker.int_or("axis", 0)?) && maker.node.outputs().len() == 2 => {
                let even = self.size(x)? % 2 == 0;
                let equal = maker.input(1).is_none_or(|sizes| {
                    self.scopes.ints(sizes).is_some_and(|sizes| sizes.len() == 2 && sizes[0] == sizes[1])
                });
                (even && equal).then_some((maker.output == 1, false))?
            }
            "Slice" if maker.node.version >= 10 => {
                let list = |i: usize| self.scopes.ints(maker.input(i)?);
                let stride = if maker.input(4).is_some() { list(4)? } else { vec![1] };
                matches!(list(3)?[..], [axis] if is_last(axis)).then_some(())?;
                let bounds = [maker.input(1)?, maker.input(2)?].map(|place| self.bound(place, x, rank));
                match (bounds, &stride[..]) {
                    ([Some(Bound::Zero), Some(Bound::Half)], [1]) => (false, false),
                    ([Some(Bound::Half), Some(Bound::End)], [1]) => (true, false),
                    ([Some(Bound::Zero), Some(Bound::End)], [2]) => (false, true),
                    ([Some(Bound::One), Some(Bound::End)], [2]) => (true, true),
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(Half { x, second, interleaved })
    }

    /// What a bound of a slice of the last axis of x is.
    fn bound(&self, place: Place, x: Place, rank: usize) -> Option<Bound> {
        let number = sizes(self.scopes, place).and_then(|sizes| sizes.first()?.number());
        let declared = number.and_then(|at| match (at, self.size(x)) {
            (0, _) => Some(Bound::Zero),
            (at, _) if at >= i64::from(i32::MAX) => Some(Bound::End),
            (at, Some(size)) if at == size => Some(Bound::End),
            (at, Some(size)) if at * 2 == size || at * -2 == size => Some(Bound::Half),
            (1, _) => Some(Bound::One),
            _ => None,
        });
        declared.or_else(|| is_half(self.scopes, place, (x, rank - 1)).then_some(Bound::Half))
    }

    /// The declared size of the last axis.
    fn size(&self, place: Place) -> Option<i64> {
        self.scopes.shape(place)?.0.last()?.known()?.try_into().ok()
    }

    /// What the one reader of a value makes, if it is `op`.
    fn reader(&self, value: ValueId, op: &str) -> Option<ValueId> {
        let mut value = value;
        loop {
            let [used] = self.graph.value(value).uses() else { return None };
            let node = self.graph.node(used.node);
            let reader = Maker { depth: 0, id: used.node, node, output: 0 };
            if self.graph.outputs().contains(&value) {
                return None;
            }
            value = node.outputs().first().copied().flatten()?;
            if reader.is(op) {
                return Some(value);
            }
            // Only casts may stand between.
            (settled(self.scopes, outermost(value)) != outermost(value)).then_some(())?;
        }
    }

    /// The other operand of the node of two that makes `value`.
    fn other(&self, value: ValueId, one: &dyn Fn(Place) -> bool) -> Option<Place> {
        let maker = self.scopes.maker(outermost(value))?;
        let found = maker.either_way()?.into_iter().find(|(a, _)| one(settled(self.scopes, *a)));
        Some(settled(self.scopes, found?.1))
    }
}

/// Where a slice begins or ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    Zero,
    One,
    Half,
    End,
}
