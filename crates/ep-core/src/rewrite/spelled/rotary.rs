//! Rotary position embedding by halves of the last axis, in two spellings: x * cos + (-x2 | x1) * sin, and
//! (x1 cos - x2 sin | x2 cos + x1 sin), where x1 and x2 are the halves of x. Either may go on with what is not turned.

use onnx_graph::pattern::{Maker, Place, Scopes, from_front};
use onnx_graph::{Attribute, Dim, Graph, Node, NodeId, ValueId};

use crate::rewrite::sketch::{DOMAIN, Replacement, Sketch, Wire, ranked};
use crate::rewrite::spelled::polynomial::{Algebra, Polynomial, settled};
use crate::rewrite::view::outermost;

const OPERATOR: &str = "rotary";

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
    /// That of what is turned.
    rank: usize,
}

/// A half of the last axis of x.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Half {
    x: Place,
    second: bool,
}

impl<'a> Rotation<'_, '_, 'a> {
    /// `output` is (-x2 | x1), read once, by a product that is added to x times something.
    fn whole(&self, output: ValueId, a: Place, b: Place) -> Option<Replacement<'a>> {
        let negated = self.scopes.maker(settled(self.scopes, a)).filter(|m| m.is("Neg"))?;
        let (second, first) = (self.half(negated.input(0)?)?, self.half(b)?);
        if second.x != first.x || !second.second || first.second {
            return None;
        }
        let x = first.x;
        let product = self.reader(output, "Mul")?;
        let sum = self.reader(product, "Add")?;
        let sin = self.other(product, &|place| place == outermost(output))?;
        let scaled = self.other(sum, &|place| place == outermost(product))?;
        let maker = self.scopes.made_by(settled(self.scopes, scaled), "Mul")?;
        let scaled = maker.node.outputs().first().copied().flatten()?;
        let cos = self.other(scaled, &|place| place == x)?;
        self.replace(sum, [x, cos, sin], &[])
    }

    /// `output` is (x1 cos - x2 sin | x2 cos + x1 sin | rest).
    fn by_halves(&self, output: ValueId, a: Place, b: Place, rest: &[Place]) -> Option<Replacement<'a>> {
        let plain = Algebra { scopes: self.scopes, known: &|_| None };
        let (a, b) = (plain.read(a), plain.read(b));
        let (lost, _) = a.terms().find(|(_, coefficient)| *coefficient == -1.0)?;
        let mut factors = lost.keys().copied();
        let (p, q) = (factors.next()?, factors.next()?);
        [(p, q), (q, p)].into_iter().find_map(|(x2, sin)| {
            let second = self.half(x2).filter(|half| half.second)?;
            let (kept, _) = a.terms().find(|(_, coefficient)| *coefficient == 1.0)?;
            let is_first = |place: &Place| self.half(*place) == Some(Half { second: false, ..second });
            let x1 = kept.keys().copied().find(is_first)?;
            let cos = kept.keys().copied().find(|place| *place != x1)?;
            let pair = |x: Place, table: Place| Polynomial::of(x).times(&Polynomial::of(table));
            let turned = a == pair(x1, cos).plus(&pair(x2, sin).scaled(-1.0))
                && b == pair(x2, cos).plus(&pair(x1, sin));
            if turned { self.replace(output, [second.x, cos, sin], rest) } else { None }
        })
    }

    /// x turned by the tables, and `rest` beside it, in place of `output`.
    fn replace(&self, output: ValueId, inputs: [Place; 3], rest: &[Place]) -> Option<Replacement<'a>> {
        let width = self.size(inputs[0])?;
        let fits = |table: &Place| {
            self.scopes.rank(*table).is_some_and(|rank| rank <= self.rank)
                && self.size(*table).is_some_and(|size| size == width || size * 2 == width)
        };
        inputs[1..].iter().all(fits).then_some(())?;
        let mut sketch = Sketch::new(self.graph);
        let ty = sketch.ty(Wire::Old(output))?;
        let mut node = Node::new("Rotary", 1);
        node.domain = DOMAIN.to_owned();
        node.attributes.insert("width".to_owned(), Attribute::Int(width));
        let inputs = inputs.iter().map(|place| Some(Wire::Old(place.value))).collect();
        let whole = rest.is_empty();
        let turned = if whole { ty.clone() } else { ranked(ty.element, self.rank) };
        let mut wire = Wire::Node(sketch.node(node, inputs, vec![turned]), 0);
        if !whole {
            let parts: Vec<Wire> =
                std::iter::once(wire).chain(rest.iter().map(|p| Wire::Old(p.value))).collect();
            wire = sketch.op("Concat", &parts, &[("axis", Attribute::Int(-1))], ty);
        }
        Some(sketch.replace(OPERATOR, vec![(output, wire)])?.downward())
    }

    /// The half of its last axis that `place` picks, by `Slice` or `Split`.
    fn half(&self, place: Place) -> Option<Half> {
        let maker = self.scopes.maker(settled(self.scopes, place))?;
        let x = settled(self.scopes, maker.input(0)?);
        let size = self.size(x)?;
        let halved = size % 2 == 0 && self.size(place)? == size / 2;
        let last = |axis: i64| from_front(axis, self.rank).is_some_and(|axis| axis + 1 == self.rank);
        if self.scopes.rank(x)? != self.rank || !halved {
            return None;
        }
        let second = match maker.node.op_type.as_str() {
            "Split" if last(maker.int_or("axis", 0)?) && maker.node.outputs().len() == 2 => maker.output == 1,
            "Slice" if maker.node.version >= 10 => {
                let list = |i: usize| self.scopes.ints(maker.input(i)?);
                let axis = list(3)?;
                let stride = if maker.input(4).is_some() { list(4)? } else { vec![1] };
                if axis.len() != 1 || !last(axis[0]) || stride != [1] {
                    return None;
                }
                self.starts_in_second(&maker, size)?
            }
            _ => return None,
        };
        Some(Half { x, second })
    }

    /// Whether a slice of half of `size` elements is the second one. Bounds may be computed; either is enough.
    fn starts_in_second(&self, maker: &Maker<'_, '_>, size: i64) -> Option<bool> {
        let bound = |i: usize| Some(*self.scopes.ints(maker.input(i)?)?.first()?);
        let wrap = |at: i64| if at < 0 { at + size } else { at };
        match (bound(1), bound(2)) {
            (Some(0), _) => Some(false),
            (Some(start), _) if wrap(start) == size / 2 => Some(true),
            (None, Some(end)) if end >= size => Some(true),
            _ => None,
        }
    }

    /// The declared size of the last axis.
    fn size(&self, place: Place) -> Option<i64> {
        match self.scopes.shape(place)?.0.last()? {
            Dim::Known(size) => i64::try_from(*size).ok(),
            _ => None,
        }
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
