//! Rotary position embedding in two spellings: x * cos + (-x2 | x1) * sin, and (x1 cos - x2 sin | x2 cos + x1 sin), where
//! x1 and x2 are the halves of the last axis of x, or its even and odd elements. The second may go on with what is not
//! turned.

use onnx_graph::pattern::{Maker, Place, Scopes, from_front};
use onnx_graph::{Attribute, Dim, Graph, Node, NodeId, ValueId};

use crate::rewrite::attention::same_dims;
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
        [a, b] => {
            let pairs = || Some([rotation.unsqueezed(a, rank - 1)?, rotation.unsqueezed(b, rank - 1)?]);
            let by_halves = || rotation.by_halves(output, [a, b], &[], false);
            let by_pairs = || rotation.by_halves(output, pairs()?, &[], true);
            rotation.whole(output, a, b).or_else(by_halves).or_else(by_pairs)
        }
        [a, b, ref rest @ ..] => rotation.by_halves(output, [a, b], rest, false),
        _ => None,
    }
}

struct Rotation<'s, 'g, 'a> {
    graph: &'g Graph<'a>,
    scopes: &'s Scopes<'g, 'a>,
    /// That of what the `Concat` makes.
    rank: usize,
}

/// Cosines or sines: what broadcasts to x, once it is transposed where a permutation is given.
struct Table {
    place: Place,
    perm: Option<Vec<usize>>,
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
        let cos = self.factor(settled(self.scopes, scaled), x)?;
        let tables = [cos, Table { place: sin, perm: None }];
        self.replace(sum, &[("interleaved", interleaved)], (x, tables), &[])
    }

    /// What x is multiplied by in `scaled`; with the transposition that it lacks where `scaled` is the transposed product of
    /// what x is the transposed of.
    fn factor(&self, scaled: Place, x: Place) -> Option<Table> {
        let product = |place: Place, x: Place| {
            let maker = self.scopes.made_by(place, "Mul")?;
            self.other(maker.node.outputs().first().copied().flatten()?, &|place| place == x)
        };
        if let Some(place) = product(scaled, x) {
            return Some(Table { place, perm: None });
        }
        let [of_product, of_x] = [scaled, x].map(|place| self.scopes.made_by(place, "Transpose"));
        let (of_product, of_x) = of_product.zip(of_x)?;
        let perm = of_product.ints("perm").filter(|perm| of_x.ints("perm") == Some(perm))?;
        let place =
            product(settled(self.scopes, of_product.input(0)?), settled(self.scopes, of_x.input(0)?))?;
        let perm: Vec<usize> = perm.iter().map(|&axis| usize::try_from(axis).ok()).collect::<Option<_>>()?;
        (self.scopes.rank(place)? == perm.len()).then_some(Table { place, perm: Some(perm) })
    }

    /// `output` is (x1 cos - x2 sin | x2 cos + x1 sin | rest), where the first two are pairs of neighbours if `interleaved`.
    fn by_halves(
        &self,
        output: ValueId,
        [a, b]: [Place; 2],
        rest: &[Place],
        interleaved: bool,
    ) -> Option<Replacement<'a>> {
        let plain = Algebra { scopes: self.scopes, known: &|_| None };
        let (a, b) = (plain.read(a), plain.read(b));
        let (lost, _) = a.terms().find(|(_, coefficient)| *coefficient == -1.0)?;
        let (kept, _) = a.terms().find(|(_, coefficient)| *coefficient == 1.0)?;
        lost.keys().find_map(|&x2| {
            let second = self.half(x2).filter(|half| half.second && half.interleaved == interleaved)?;
            let is_first = |place: &&Place| self.half(**place) == Some(Half { second: false, ..second });
            let &x1 = kept.keys().find(is_first)?;
            let &sin = lost.keys().find(|place| **place != x2)?;
            let &cos = kept.keys().find(|place| **place != x1)?;
            let pair = |x: Place, table: Place| Polynomial::of(x).times(&Polynomial::of(table));
            let turned = a == pair(x1, cos).plus(&pair(x2, sin).scaled(-1.0))
                && b == pair(x2, cos).plus(&pair(x1, sin));
            let output = if interleaved { self.merged(output, second.x)? } else { output };
            let form = [("by_half", true), ("interleaved", interleaved)];
            let tables = [cos, sin].map(|place| Table { place, perm: None });
            if turned { self.replace(output, &form, (second.x, tables), rest) } else { None }
        })
    }

    /// x turned by the tables, which are transposed first where a permutation is given, and `rest` beside it, in place of
    /// `output`.
    fn replace(
        &self,
        output: ValueId,
        form: &[(&str, bool)],
        (x, tables): (Place, [Table; 2]),
        rest: &[Place],
    ) -> Option<Replacement<'a>> {
        // A table of more axes would give the result more than x has.
        let rank = self.scopes.rank(x)?;
        let fits = |place: Place| self.scopes.rank(place).is_some_and(|of_table| of_table <= rank);
        tables.iter().all(|table| fits(table.place)).then_some(())?;
        let mut sketch = Sketch::new(self.graph);
        let ty = sketch.ty(Wire::Old(output))?;
        let mut node = Node::new("Rotary", 1);
        node.domain = DOMAIN.to_owned();
        let form = form.iter().map(|(name, holds)| ((*name).to_owned(), Attribute::Int((*holds).into())));
        node.attributes.extend(form);
        if let Some(width) = self.size(x) {
            node.attributes.insert("width".to_owned(), Attribute::Int(width));
        }
        let mut inputs = vec![Some(Wire::Old(x.value))];
        for Table { place, perm } in tables {
            let table = Wire::Old(place.value);
            inputs.push(Some(perm.map_or(Some(table), |perm| sketch.view("Transpose", table, &perm))?));
        }
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

    /// What `place` picks of the last axis of a value, by `Slice` or `Split`, or after a reshape that splits the axis.
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
            "Slice" if maker.node.version >= 10 => self.slice(&maker, x, rank)?,
            _ => return self.picked(&maker),
        };
        Some(Half { x, second, interleaved })
    }

    /// Which half a `Slice` takes, if it leaves all axes but the last alone; and whether it takes every other element.
    fn slice(&self, maker: &Maker<'_, '_>, x: Place, rank: usize) -> Option<(bool, bool)> {
        let axes = self.scopes.ints(maker.input(3)?)?;
        let steps = maker.input(4).map_or(Some(vec![1; axes.len()]), |steps| self.scopes.ints(steps))?;
        let last = axes.iter().position(|axis| from_front(*axis, rank) == Some(rank - 1))?;
        let bounds = [maker.input(1)?, maker.input(2)?].map(|place| {
            let all = sizes(self.scopes, place);
            let number = |i: usize| all.as_ref()?.get(i)?.number();
            let others = (0..axes.len()).filter(|i| *i != last).map(number).collect::<Option<Vec<_>>>();
            let half = || axes.len() == 1 && is_half(self.scopes, place, (x, rank - 1));
            let bound = self.bound(number(last), x).or_else(|| half().then_some(Bound::Half));
            (bound, others)
        });
        let [(Some(start), Some(starts)), (Some(end), Some(ends))] = bounds else { return None };
        let whole = starts.iter().all(|at| *at == 0)
            && ends.iter().all(|at| *at >= i64::from(i32::MAX))
            && steps.iter().enumerate().all(|(i, step)| i == last || *step == 1);
        match (start, end, *steps.get(last)?) {
            _ if !whole => None,
            (Bound::Zero, Bound::Half, 1) => Some((false, false)),
            (Bound::Half, Bound::End, 1) => Some((true, false)),
            (Bound::Zero, Bound::End, 2) => Some((false, true)),
            (Bound::One, Bound::End, 2) => Some((true, true)),
            _ => None,
        }
    }

    /// What `Gather`, or `Squeeze` of a part of a `Split`, picks of an axis of size 2 into which a reshape splits the last.
    fn picked(&self, maker: &Maker<'_, '_>) -> Option<Half> {
        let (from, axis, index) = if maker.is("Gather") {
            let index = maker.input(1).filter(|index| self.scopes.rank(*index) == Some(0))?;
            (maker.input(0)?, maker.int_or("axis", 0)?, *self.scopes.ints(index)?.first()?)
        } else if maker.is("Squeeze") {
            let [axis] = self.scopes.named_axes(maker)?[..] else { return None };
            let part = self.scopes.made_by(settled(self.scopes, maker.input(0)?), "Split")?;
            let rank = self.scopes.rank(part.input(0)?)?;
            let alike = from_front(part.int_or("axis", 0)?, rank) == from_front(axis, rank);
            (part.input(0).filter(|_| alike && part.node.outputs().len() == 2)?, axis, part.output as i64)
        } else {
            return None;
        };
        let from = settled(self.scopes, from);
        let x = settled(self.scopes, self.scopes.made_by(from, "Reshape")?.input(0)?);
        let (split, whole) = (self.scopes.shape(from)?.0, self.scopes.shape(x)?.0);
        let rank = whole.len();
        let axis = from_front(axis, rank + 1)?;
        let kept = split.len() == rank + 1 && rank > 0 && same_dims(&split[..rank - 1], &whole[..rank - 1]);
        let two = split.get(axis) == Some(&Dim::Known(2)) && self.size(x)? % 2 == 0;
        let index = if index < 0 { index + 2 } else { index };
        (kept && two && axis + 1 >= rank).then_some(Half { x, second: index == 1, interleaved: axis == rank })
    }

    /// What a bound of a slice of the last axis of x is.
    fn bound(&self, at: Option<i64>, x: Place) -> Option<Bound> {
        match (at?, self.size(x)) {
            (0, _) => Some(Bound::Zero),
            (at, _) if at >= i64::from(i32::MAX) => Some(Bound::End),
            (at, Some(size)) if at == size => Some(Bound::End),
            (at, Some(size)) if at * 2 == size || at * -2 == size => Some(Bound::Half),
            (1, _) => Some(Bound::One),
            _ => None,
        }
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
