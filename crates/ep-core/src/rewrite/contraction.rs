//! Where the states go: the search for y = sum over one axis of the state of h * c, with c free of the state, behind a value
//! that holds h.

use onnx_graph::pattern::{Maker, Place, Scopes};
use onnx_graph::{NodeId, ValueId};

use crate::rewrite::product::Product;
use crate::rewrite::view::{Label, Steps, Walk};

/// A sum of states times c over an axis of the state.
#[derive(Clone, Debug)]
pub(crate) struct Contraction {
    /// The sums.
    pub(crate) y: Place,
    /// What its axes run along.
    pub(crate) labels: Vec<Label>,
    /// The axis of the state that is summed over.
    pub(crate) axis: usize,
    /// What states are multiplied by.
    pub(crate) c: Product,
}

/// Where a body's output goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit {
    /// Which of the body's outputs.
    pub(crate) inner: ValueId,
    /// The value outside.
    pub(crate) outer: ValueId,
    /// The axis of `outer` along which steps lie.
    pub(crate) axis: usize,
    /// Whether the last step comes first.
    pub(crate) reverse: bool,
}

/// The search, with what it needs to know.
pub(crate) struct Search<'s, 'g, 'a> {
    pub(crate) steps: &'s Steps<'g, 'a>,
    pub(crate) exits: &'s [Exit],
    /// Which values depend on the state.
    pub(crate) depends: &'s dyn Fn(Place) -> bool,
}

impl<'g, 'a> Search<'_, 'g, 'a> {
    /// The contractions of the states in `place`, whose axes are `labels`.
    pub(crate) fn from(&self, place: Place, labels: Vec<Label>) -> Vec<Contraction> {
        let mut found = Vec::new();
        self.walk(place, labels, Product::default(), &mut found);
        found
    }

    fn scopes(&self) -> &Scopes<'g, 'a> {
        &self.steps.scopes
    }

    fn walk(&self, place: Place, labels: Vec<Label>, c: Product, found: &mut Vec<Contraction>) {
        let graph = self.scopes().graph(place.depth);
        let uses = graph.value(place.value).uses();
        // Outside of the body, the states are gone after the rewrite: nobody else may read them.
        let outside = place.depth < self.scopes().depth();
        if outside && (uses.len() != 1 || graph.outputs().contains(&place.value)) {
            return;
        }
        for used in uses {
            self.step(place, used.node, &labels, &c, found);
        }
        if place.depth > 0 {
            for exit in self.exits.iter().filter(|exit| exit.inner == place.value) {
                let mut labels = labels.clone();
                labels.insert(
                    exit.axis.min(labels.len()),
                    Label::Time(Walk { reverse: exit.reverse, range: None }),
                );
                self.walk(Place { depth: place.depth - 1, value: exit.outer }, labels, c.clone(), found);
            }
        }
    }

    /// One reader of `place`.
    fn step(
        &self,
        place: Place,
        reader: NodeId,
        labels: &[Label],
        c: &Product,
        found: &mut Vec<Contraction>,
    ) -> Option<()> {
        let node = self.scopes().graph(place.depth).node(reader);
        let maker = Maker { depth: place.depth, id: reader, node, output: 0 };
        let [Some(output)] = node.outputs() else { return None };
        let output = Place { depth: place.depth, value: *output };
        let op = node.op_type.as_str();
        if !maker.is(op) {
            return None;
        }
        let first = maker.input(0)? == place;
        match op {
            "Identity" | "Cast" if self.scopes().element(output)?.is_float() => {
                self.walk(output, labels.to_vec(), c.clone(), found);
            }
            "Transpose" => {
                let perm = maker.ints("perm")?;
                let moved = perm.iter().map(|&p| labels.get(usize::try_from(p).ok()?).copied());
                self.walk(output, moved.collect::<Option<_>>()?, c.clone(), found);
            }
            "Slice" if first => {
                let moved = self.steps.sliced(&maker, labels)?;
                (!moved.iter().any(|l| matches!(l, Label::At(_)))).then_some(())?;
                self.walk(output, moved, c.clone(), found);
            }
            "Mul" => {
                let other = if first { maker.input(1)? } else { maker.input(0)? };
                let c = self.times(c, other, labels)?;
                self.walk(output, labels.to_vec(), c, found);
            }
            "ReduceSum" if first => {
                let [axis] = self.scopes().axes(&maker, labels.len())?[..] else { return None };
                let Label::State(summed) = labels[axis] else { return None };
                let mut labels = labels.to_vec();
                if maker.int_or("keepdims", 1)? == 0 {
                    labels.remove(axis);
                } else {
                    labels[axis] = Label::One;
                }
                self.finish(output, labels, summed, c.clone(), found);
            }
            "MatMul" => self.product(&maker, first, output, labels, c, found)?,
            "Einsum" => self.einsum(&maker, first, output, labels, c, found)?,
            _ => {}
        }
        Some(())
    }

    /// `c` times a value beside the states.
    fn times(&self, c: &Product, other: Place, labels: &[Label]) -> Option<Product> {
        if (self.depends)(other) {
            return None;
        }
        let mut c = c.clone();
        c.take(self.steps, self.steps.operand(other, labels)?, 1)?;
        Some(c)
    }

    /// `MatMul` of states with a column, or of a row with states.
    fn product(
        &self,
        maker: &Maker<'g, 'a>,
        first: bool,
        output: Place,
        labels: &[Label],
        c: &Product,
        found: &mut Vec<Contraction>,
    ) -> Option<()> {
        let other = maker.input(usize::from(first))?;
        let rank = labels.len();
        if rank < 2 || self.steps.rank(other)? < 2 {
            return None;
        }
        let (row, column) = (rank - 2, rank - 1);
        let summed = if first { column } else { row };
        let Label::State(axis) = labels[summed] else { return None };
        let mut beside = labels.to_vec();
        (beside[row], beside[column]) =
            if first { (labels[summed], Label::Extra) } else { (Label::Extra, labels[summed]) };
        let c = self.times(c, other, &beside)?;
        c.factors.iter().all(|f| !f.view.labels.contains(&Label::Extra)).then_some(())?;
        let mut labels = labels.to_vec();
        labels[summed] = Label::One;
        self.finish(output, labels, axis, c, found);
        Some(())
    }

    /// `Einsum` of states and one other operand.
    fn einsum(
        &self,
        maker: &Maker<'g, 'a>,
        first: bool,
        output: Place,
        labels: &[Label],
        c: &Product,
        found: &mut Vec<Contraction>,
    ) -> Option<()> {
        let (operands, result) = maker.equation()?;
        let [a, b] = &operands[..] else { return None };
        let (states, beside) = if first { (a, b) } else { (b, a) };
        let other = maker.input(usize::from(first))?;
        if states.len() != labels.len() || self.steps.rank(other)? != beside.len() {
            return None;
        }
        let label = |letter: &char| Some(labels[states.iter().position(|l| l == letter)?]);
        let summed: Vec<&char> = states.iter().filter(|l| !result.contains(l)).collect();
        let [summed] = summed[..] else { return None };
        let Label::State(axis) = label(summed)? else { return None };
        let view = beside.iter().map(label).collect::<Option<Vec<_>>>()?;
        let c = self.times(c, other, &view)?;
        let labels = result.iter().map(label).collect::<Option<Vec<_>>>()?;
        self.finish(output, labels, axis, c, found);
        Some(())
    }

    /// The sums, past what only drops axes of size 1.
    fn finish(&self, y: Place, labels: Vec<Label>, axis: usize, c: Product, found: &mut Vec<Contraction>) {
        let (mut y, mut labels) = (y, labels);
        while let Some((next, fewer)) = self.dropped(y, &labels) {
            (y, labels) = (next, fewer);
        }
        found.push(Contraction { y, labels, axis, c });
    }

    fn dropped(&self, y: Place, labels: &[Label]) -> Option<(Place, Vec<Label>)> {
        let graph = self.scopes().graph(y.depth);
        let ([used], false) = (graph.value(y.value).uses(), graph.outputs().contains(&y.value)) else {
            return None;
        };
        let node = graph.node(used.node);
        let maker = Maker { depth: y.depth, id: used.node, node, output: 0 };
        let [Some(output)] = node.outputs() else { return None };
        let axis = match node.op_type.as_str() {
            "Squeeze" if maker.is("Squeeze") => match self.scopes().axes(&maker, labels.len())?[..] {
                [axis] => axis,
                _ => return None,
            },
            "Gather" if maker.is("Gather") && used.index == 0 => {
                let index = maker.input(1)?;
                let first = self.scopes().ints(index)? == [0] && self.steps.rank(index)? == 0;
                first.then_some(())?;
                onnx_graph::pattern::from_front(maker.int_or("axis", 0)?, labels.len())?
            }
            _ => return None,
        };
        let mut labels = labels.to_vec();
        (labels.remove(axis) == Label::One).then_some((Place { depth: y.depth, value: *output }, labels))
    }
}
