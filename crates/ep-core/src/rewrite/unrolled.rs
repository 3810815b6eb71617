//! Recurrences that an exporter wrote out step after step: chains of h = a h + u in which every step picks its own entry of
//! the same values.

use std::collections::{HashMap, HashSet};

use onnx_graph::pattern::{Maker, Place, Scopes};
use onnx_graph::{Graph, NodeId, ValueId, topological_order};

use crate::rewrite::affine::{Affine, Power};
use crate::rewrite::contraction::{Contraction, Search};
use crate::rewrite::draw::{Axis, Draw, arrange};
use crate::rewrite::fuse::{axis_of, is_read};
use crate::rewrite::grown::Grown;
use crate::rewrite::linear;
use crate::rewrite::product::{Product, beside_state};
use crate::rewrite::selective::{self, Products};
use crate::rewrite::sketch::{Replacement, Sketch, Wire, ranked};
use crate::rewrite::stack::Stack;
use crate::rewrite::view::{Label, Steps, outermost};

/// Fewer steps than this are left alone: a decoder's single step is no scan.
const FEWEST_STEPS: usize = 3;

/// The values of a state, step after step.
pub(crate) type Chain = Vec<ValueId>;

/// The longest chains of sums with a product of the sum before, none sharing a sum with another.
pub(crate) fn chains(graph: &Graph<'_>) -> Vec<Chain> {
    let Ok(order) = topological_order(graph) else { return Vec::new() };
    let scopes = Scopes::new(graph);
    // For each sum, the one before it and how many there are up to it.
    let mut links: HashMap<ValueId, (Option<ValueId>, usize)> = HashMap::new();
    for id in order {
        let maker = Maker { depth: 0, id, node: graph.node(id), output: 0 };
        let [Some(sum)] = maker.node.outputs() else { continue };
        if !(maker.is("Add") || maker.is("Sub")) {
            continue;
        }
        let before = multiplied(&scopes, &maker);
        if before.is_empty() {
            continue;
        }
        let longest = before.iter().filter_map(|v| Some((*v, links.get(v)?.1))).max_by_key(|(_, len)| *len);
        links.insert(*sum, longest.map_or((None, 1), |(value, len)| (Some(value), len + 1)));
    }
    let mut ends: Vec<(ValueId, usize)> = links.iter().map(|(value, (_, len))| (*value, *len)).collect();
    ends.sort_by_key(|(value, len)| (usize::MAX - len, *value));
    let mut taken = HashSet::new();
    let mut chains = Vec::new();
    for (end, _) in ends {
        let mut chain = Vec::new();
        let mut at = Some(end);
        while let Some(value) = at.filter(|v| taken.insert(*v)) {
            chain.push(value);
            at = links[&value].0;
        }
        chain.reverse();
        if chain.len() >= FEWEST_STEPS {
            chains.push(chain);
        }
    }
    chains
}

/// The factors of the products that a sum adds.
fn multiplied(scopes: &Scopes<'_, '_>, sum: &Maker<'_, '_>) -> Vec<ValueId> {
    let products = (0..2).filter_map(|i| scopes.made_by(plain(scopes, sum.input(i)?), "Mul"));
    let factors = products.flat_map(|maker| [maker.input(0), maker.input(1)]);
    factors.flatten().map(|place| plain(scopes, place).value).collect()
}

/// The value behind `Identity` and casts.
fn plain(scopes: &Scopes<'_, '_>, place: Place) -> Place {
    let behind = scopes.maker(place).filter(|m| m.is("Identity") || m.is("Cast"));
    behind.and_then(|m| m.input(0)).map_or(place, |inner| plain(scopes, inner))
}

/// A chain with the state before its first step.
struct Unrolled<'g, 'a> {
    graph: &'g Graph<'a>,
    steps: Steps<'g, 'a>,
    first: Place,
    values: Vec<Place>,
    rank: usize,
    element: onnx_graph::ElementType,
}

/// A chain as a fused kernel.
pub(crate) fn fuse<'a>(graph: &Graph<'a>, chain: &Chain) -> Option<Replacement<'a>> {
    let scopes = Scopes::new(graph);
    let values: Vec<Place> = chain.iter().copied().map(outermost).collect();
    let start = scopes.maker(values[0])?;
    // Either factor of the first product may be the first state; or the chain starts a step later.
    let mut starts: Vec<(Place, &[Place])> =
        multiplied(&scopes, &start).into_iter().map(|v| (outermost(v), &values[..])).collect();
    starts.push((values[0], &values[1..]));
    for rule in [Unrolled::selective, Unrolled::linear] {
        for (first, values) in &starts {
            let steps = Steps::unrolled(Scopes::new(graph));
            let rank = steps.rank(values[0])?;
            let element = scopes.element(values[0]).filter(|e| e.is_float())?;
            let unrolled = Unrolled { graph, steps, first: *first, values: values.to_vec(), rank, element };
            if values.len() >= FEWEST_STEPS
                && let Some(replacement) = rule(&unrolled)
            {
                return Some(replacement);
            }
        }
    }
    None
}

impl<'g, 'a> Unrolled<'g, 'a> {
    fn len(&self) -> usize {
        self.values.len()
    }

    /// The state before each step.
    fn states(&self) -> impl Iterator<Item = Place> + '_ {
        std::iter::once(self.first).chain(self.values.iter().copied())
    }

    /// Each step's proof. What multiplies or is added comes from values that all steps share, or the products of the steps
    /// would differ: so it cannot depend on a state.
    fn affine(&self) -> Option<Vec<Affine>> {
        let scopes = &self.steps.scopes;
        let proof = |(state, value): (Place, &Place)| {
            let state = plain(scopes, state);
            let depends = |place: Place| leads_to(scopes, place, state, 6);
            Affine::of(scopes, state, *value, &depends)
        };
        self.states().zip(&self.values).map(proof).collect()
    }

    fn selective(&self) -> Option<Replacement<'a>> {
        let (mut decays, mut inputs) = (Vec::new(), Vec::new());
        for affine in &self.affine()? {
            let (decay, input) = selective::products(&self.steps, affine, self.rank)?;
            decays.push(decay);
            inputs.push(input);
        }
        let (decay, input) = (Product::over_steps(&decays)?, Product::over_steps(&inputs)?);
        let sums = self.contractions()?;
        let c = Product::over_steps(&sums.iter().map(|s| s.c.clone()).collect::<Vec<_>>())?;
        let products = Products { decay, input, c };
        let mut sketch = Sketch::new(self.graph);
        let mut stack = Stack::new(&self.steps);
        let shape = (self.element, self.rank);
        let drawn =
            selective::draw(&self.steps, &mut sketch, &mut stack, &products, &sums[0], self.first, shape)?;
        let axes: Vec<Axis> = sums[0].labels.iter().map(axis_of).collect();
        let mut over_time = vec![Axis::Time];
        over_time.extend(&axes);
        let y = arrange(&mut sketch, drawn.y, &drawn.y_axes, &over_time)?;
        let y = sketch.slice(y, 0, None, drawn.reverse)?;
        let mut outputs = self.spread(&mut sketch, y, &sums.iter().map(|s| s.y).collect::<Vec<_>>())?;
        let last = self.values[self.len() - 1].value;
        if is_read(self.graph, last) {
            outputs.push((last, drawn.last));
        }
        sketch.replace(selective::OPERATOR, outputs)
    }

    /// What each step sums its state with, if that is all that is done with states.
    fn contractions(&self) -> Option<Vec<Contraction>> {
        let mut sums: Vec<Contraction> = Vec::with_capacity(self.len());
        for (i, value) in self.values.iter().enumerate() {
            let depends = |place: Place| place == *value;
            let search = Search { steps: &self.steps, exits: &[], depends: &depends };
            let mut found = search.from(*value, (0..self.rank).map(Label::State).collect());
            let sum = found.pop().filter(|_| found.is_empty())?;
            let like_first = sums.first().is_none_or(|f| (f.axis, &f.labels) == (sum.axis, &sum.labels));
            // One reader is the sum, another the next step. The last state is there for everybody.
            let last = i + 1 == self.len();
            (like_first && (last || self.readers(*value) == 2)).then_some(())?;
            sums.push(sum);
        }
        Some(sums)
    }

    /// How often a value is read, behind `Identity` and casts too.
    fn readers(&self, place: Place) -> usize {
        let returned = usize::from(self.graph.outputs().contains(&place.value));
        let uses = self.graph.value(place.value).uses().iter().map(|used| {
            let node = self.graph.node(used.node);
            match (node.op_type.as_str(), node.outputs()) {
                ("Identity" | "Cast", [Some(value)]) => self.readers(outermost(*value)),
                _ => 1,
            }
        });
        returned + uses.sum::<usize>()
    }

    fn linear(&self) -> Option<Replacement<'a>> {
        let affine = self.affine()?;
        let (first, shape) = (affine.first()?, (self.element, self.rank));
        let alike = |a: &Affine| {
            a.sign == first.sign
                && a.terms.len() == first.terms.len()
                && a.terms.iter().zip(&first.terms).all(|(s, t)| s.sign == t.sign)
        };
        if !affine.iter().all(alike) || first.terms.is_empty() || first.decay.is_empty() {
            return None;
        }
        let mut sketch = Sketch::new(self.graph);
        let mut stack = Stack::new(&self.steps);
        let axes = linear::axes(self.rank);
        let ty = ranked(self.element, self.rank + 1);
        let mut walks = false;
        let mut over = |sketch: &mut Sketch<'g, 'a>, factors: &dyn Fn(&Affine) -> Vec<Power>| {
            let lists: Vec<Vec<Power>> = affine.iter().map(factors).collect();
            let mut product = None;
            for (i, &(_, power)) in lists.first()?.iter().enumerate() {
                let at = |list: &Vec<Power>| {
                    let (place, _) =
                        list.get(i).filter(|(_, p)| *p == power && list.len() == lists[0].len())?;
                    beside_state(&self.steps, *place, self.rank)
                };
                let grown = Grown::of(&self.steps, &lists.iter().map(at).collect::<Option<Vec<_>>>()?)?;
                walks |= grown.walks();
                let mut draw = Draw { sketch, stack: &mut stack, reverse: false, element: self.element };
                let wire = grown.draw(&mut draw, &axes)?;
                product = Some(linear::times(sketch, product, wire, power, ty.clone()));
            }
            product
        };
        let mut a = over(&mut sketch, &|affine| affine.decay.clone())?;
        if first.sign < 0.0 {
            a = sketch.scale(a, -1.0)?;
        }
        let mut u = None;
        for (i, term) in first.terms.iter().enumerate() {
            let wire = over(&mut sketch, &|affine| affine.terms[i].factors.clone())?;
            u = Some(linear::add(&mut sketch, u, wire, term.sign, ty.clone()));
        }
        // Steps that share everything are no scan: a polynomial by Horner's rule looks like this.
        walks.then_some(())?;
        let labels: Vec<Label> = (0..self.rank).map(Label::State).collect();
        let h0 = self.steps.operand(self.first, &labels)?;
        let h0 = Draw { sketch: &mut sketch, stack: &mut stack, reverse: false, element: self.element }
            .view(&h0, &axes[1..])?;
        let (states, _) = linear::draw(&mut sketch, a, u?, h0, shape);
        let outputs = self.spread(&mut sketch, states, &self.values)?;
        sketch.replace(linear::OPERATOR, outputs)
    }

    /// The values of the steps as entries of `wire`, whose first axis runs through them; or, where all that is done with them
    /// is to put them together again, the whole.
    fn spread(
        &self,
        sketch: &mut Sketch<'g, 'a>,
        wire: Wire,
        values: &[Place],
    ) -> Option<Vec<(ValueId, Wire)>> {
        if let Some((whole, axis, reverse)) = self.put_together(values) {
            let wire = sketch.slice(wire, 0, None, reverse)?;
            let mut order: Vec<usize> = (1..sketch.rank(wire)?).collect();
            order.insert(axis.min(order.len()), 0);
            return Some(vec![(whole, sketch.view("Transpose", wire, &order)?)]);
        }
        let mut outputs = Vec::with_capacity(values.len());
        for (t, value) in values.iter().enumerate() {
            if is_read(self.graph, value.value) {
                let entry = sketch.slice(wire, 0, Some((t as i64, 1)), false)?;
                outputs.push((value.value, sketch.view("Squeeze", entry, &[0])?));
            }
        }
        Some(outputs)
    }

    /// The value that stacks all of `values`, the axis, and whether the last comes first.
    fn put_together(&self, values: &[Place]) -> Option<(ValueId, usize, bool)> {
        let scopes = &self.steps.scopes;
        let sole = |value: ValueId| match self.graph.value(value).uses() {
            [used] if !self.graph.outputs().contains(&value) => Some(*used),
            _ => None,
        };
        let mut concat: Option<NodeId> = None;
        let mut axis = None;
        let mut places = Vec::with_capacity(values.len());
        for value in values {
            let unsqueeze = sole(value.value)?.node;
            let maker = Maker { depth: 0, id: unsqueeze, node: self.graph.node(unsqueeze), output: 0 };
            let rank = self.steps.rank(*value)? + 1;
            let [inserted] = scopes.axes(&maker, rank).filter(|_| maker.is("Unsqueeze"))?[..] else {
                return None;
            };
            let used = sole(maker.node.outputs().first().copied().flatten()?)?;
            if *concat.get_or_insert(used.node) != used.node || *axis.get_or_insert(inserted) != inserted {
                return None;
            }
            places.push(used.index);
        }
        let (id, axis) = (concat?, axis?);
        let maker = Maker { depth: 0, id, node: self.graph.node(id), output: 0 };
        let rank = self.steps.rank(*values.first()?)? + 1;
        let joined = onnx_graph::pattern::from_front(maker.int_or("axis", 0)?, rank)?;
        let fits = maker.is("Concat") && joined == axis && maker.node.inputs().len() == values.len();
        let up = places.iter().enumerate().all(|(t, &p)| p == t);
        let down = places.iter().rev().enumerate().all(|(t, &p)| p == t);
        (fits && (up || down)).then_some((maker.node.outputs().first().copied().flatten()?, axis, !up))
    }
}

/// Whether sums, products and casts lead from `place` back to `state` within a few nodes.
fn leads_to(scopes: &Scopes<'_, '_>, place: Place, state: Place, fuel: usize) -> bool {
    if place == state || plain(scopes, place) == state {
        return true;
    }
    let Some(maker) = scopes.maker(place).filter(|_| fuel > 0) else { return false };
    matches!(maker.node.op_type.as_str(), "Add" | "Sub" | "Mul" | "Div" | "Neg" | "Identity" | "Cast")
        && maker
            .node
            .inputs()
            .iter()
            .flatten()
            .any(|&value| leads_to(scopes, Place { depth: maker.depth, value }, state, fuel - 1))
}
