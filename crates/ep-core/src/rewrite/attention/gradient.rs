//! The rule of attention's pullback: the derivative of a softmax, in any of its spellings, multiplied by queries and keys.

use onnx_graph::pattern::{Maker, Place, Scopes};
use onnx_graph::{Graph, NodeId, Use, ValueId};

use super::factor::{Factor, Part, base, multiple};
use super::flow::readers;
use super::kernel::{Choice, Drawn, Operands};
use super::matrices::Matrices;
use super::probabilities::{is_of, is_question, passes_probabilities, softmax, sums_rows};
use super::product::{Product, result};
use super::scores::{Kind, Mask, Scores};
use super::shared::sums;
use super::{BACKWARD, softmax_at};
use crate::rewrite::sketch::{Replacement, Sketch, Wire, ranked};

/// What may lie between probabilities and the derivative.
const BETWEEN: &[&str] = &[
    "Cast",
    "Expand",
    "Identity",
    "Mul",
    "ReduceSum",
    "Reshape",
    "SoftmaxGrad",
    "SoftmaxGrad_13",
    "Squeeze",
    "Sub",
    "Transpose",
    "Unsqueeze",
];

/// The derivative of a softmax.
struct Softened {
    /// The softmax.
    softmax: NodeId,
    /// The derivative by the scores, rows and columns as the softmax has them.
    ds: Matrices,
    /// dY V^T.
    dp: Product,
}

/// A value that the kernel can make.
struct Wanted {
    value: Matrices,
    /// The factor that the product has beside probabilities or their derivative.
    other: Matrices,
    /// Which output of the kernel.
    output: usize,
    /// What that has to be multiplied by.
    by: Factor,
}

/// The pullback in which the node makes the scores' derivative.
pub(crate) fn pullback<'a>(graph: &Graph<'a>, id: NodeId) -> Option<Replacement<'a>> {
    let scopes = Scopes::new(graph);
    let softened = softened(&scopes, graph, id)?;
    let scores = Scores::read(&scopes, &softmax_at(graph, softened.softmax)?)?;
    if !(scores.even && softened.dp.even && scores.is_plain()) {
        return None;
    }
    // Heads of keys are shared where the graph sums over them as the kernel does.
    [true, false].into_iter().find_map(|share| drawn(&scopes, graph, &softened, &scores, share))
}

fn drawn<'a>(
    scopes: &Scopes<'_, 'a>,
    graph: &Graph<'a>,
    Softened { softmax, ds, dp }: &Softened,
    scores: &Scores,
    share: bool,
) -> Option<Replacement<'a>> {
    let (dy, v) = (&dp.left, dp.right.transposed());
    let mut sketch = Sketch::new(graph);
    let operands = Operands::new(scopes, scores, &v, Some(dy));
    let drawn = operands.draw(&mut sketch, scopes, scores, Choice { even: true, share })?;
    let search = Search { scopes, graph, scores, operands: &operands, drawn: &drawn };
    let mut wanted = search.of_scores(ds)?;
    wanted.extend(search.of_values(*softmax, ds, dp.alpha)?);
    let element = sketch.element(drawn.q.0)?;
    let node = drawn.node(&mut sketch, BACKWARD, vec![ranked(element, 4); 3]);
    let outputs = wanted.into_iter().map(|Wanted { value, other, output, by }| {
        let wire = Wire::Node(node, output);
        let (frame, to, by) = match &drawn.shared {
            Some(frame) if output > 0 => {
                let (sums, more) = sums(scopes, graph, &value, frame.dims())?;
                let mut by = by;
                by.times(&more);
                (frame, sums, by)
            }
            _ => (&drawn.frame, value, by),
        };
        Some((to.place.value, frame.give(&mut sketch, scopes, (wire, &by), &to, &other)?))
    });
    let outputs = outputs.collect::<Option<Vec<_>>>()?;
    sketch.replace(BACKWARD, outputs)
}

/// Reads a node as the last of a softmax's derivative: P dP - P sum(P dP), P (dP - sum(P dP)), or an operator for it.
fn softened(scopes: &Scopes<'_, '_>, graph: &Graph<'_>, id: NodeId) -> Option<Softened> {
    let node = graph.node(id);
    let value = node.outputs().first().copied().flatten()?;
    let ds = Matrices::plain(scopes, Place { depth: 0, value })?;
    let maker = Maker { depth: 0, id, node, output: 0 };
    let pair = |maker: &Maker<'_, '_>, view: &Matrices| {
        maker.either_way()?.into_iter().find_map(|(p, dp)| {
            let (p, dp) = (view.beside(scopes, p)?, view.beside(scopes, dp)?);
            Some((softmax(scopes, &p)?.id, dp))
        })
    };
    // P dP behind a view, with the softmax and dP.
    let weighted = |view: &Matrices| {
        let view = settled(scopes, view);
        let maker = scopes.made_by(view.place, "Mul")?;
        let (softmax, dp) = pair(&maker, &view)?;
        Some((softmax, settled(scopes, &dp)))
    };
    let rows = |place: Place, softmax: NodeId, dp: &Matrices| {
        let view = settled(scopes, &ds.beside(scopes, place)?);
        let sum = scopes.maker(view.place).filter(|maker| sums_rows(scopes, maker))?;
        let of = Matrices { place: sum.input(0)?, axes: view.axes };
        (weighted(&of)? == (softmax, dp.clone())).then_some(())
    };
    let (softmax, dp) = if maker.is("Sub") {
        let (softmax, dp) = weighted(&ds.beside(scopes, maker.input(0)?)?)?;
        let view = settled(scopes, &ds.beside(scopes, maker.input(1)?)?);
        let share = scopes.made_by(view.place, "Mul")?;
        share.either_way()?.into_iter().find_map(|(p, sum)| {
            let of_softmax = is_of(scopes, &view.beside(scopes, p)?, softmax);
            rows(sum, softmax, &dp).filter(|()| of_softmax)
        })?;
        (softmax, dp)
    } else if maker.is("Mul") {
        let (softmax, rest) = pair(&maker, &ds)?;
        let view = settled(scopes, &rest);
        let difference = scopes.made_by(view.place, "Sub")?;
        let dp = settled(scopes, &view.beside(scopes, difference.input(0)?)?);
        rows(difference.input(1)?, softmax, &dp)?;
        (softmax, dp)
    } else if node.domain == "com.microsoft"
        && matches!(node.op_type.as_str(), "SoftmaxGrad" | "SoftmaxGrad_13")
    {
        let default = if node.op_type == "SoftmaxGrad" { 1 } else { -1 };
        let axis = maker.int_or("axis", default)?;
        let rank = ds.axes.len() as i64;
        let p = softmax(scopes, &ds.beside(scopes, maker.input(1)?)?)?;
        (axis == -1 || axis == rank - 1).then_some(())?;
        (p.id, settled(scopes, &ds.beside(scopes, maker.input(0)?)?))
    } else {
        return None;
    };
    Some(Softened { softmax, ds, dp: Product::of(scopes, &dp)? })
}

/// The view where it is no rearrangement.
fn settled(scopes: &Scopes<'_, '_>, view: &Matrices) -> Matrices {
    let mut view = view.clone();
    while let Some(closer) = view.closer(scopes) {
        view = closer;
    }
    view
}

/// The search for what the kernel can make.
struct Search<'s, 'g, 'a> {
    scopes: &'s Scopes<'g, 'a>,
    graph: &'s Graph<'a>,
    scores: &'s Scores,
    operands: &'s Operands,
    drawn: &'s Drawn,
}

impl Search<'_, '_, '_> {
    /// The products that the scores' derivative goes into; `None` if it goes anywhere else.
    fn of_scores(&self, ds: &Matrices) -> Option<Vec<Wanted>> {
        let passes = |maker: &Maker<'_, '_>, index: usize| self.passes_derivative(maker, index);
        let found = readers(self.graph, ds.place.value, &passes)?;
        found.iter().map(|used| self.of_derivative(used, ds)).collect()
    }

    /// The product in which `used` reads the scores' derivative, if the other factor is queries or keys.
    fn of_derivative(&self, used: &Use, ds: &Matrices) -> Option<Wanted> {
        let Drawn { q, k, v, dy, scale, .. } = self.drawn;
        let (view, product, (by, plain)) = self.product(used, |left| self.behind(left, ds))?;
        let mut by = by;
        let (other, operand, drawn) = match plain {
            // dS K, and K's columns are keys.
            true => (product.right.transposed(), self.operands.k.base()?, k.1),
            false => (product.right.clone(), self.operands.q.base()?, q.1),
        };
        let ratio = ratio(self.scopes, &other, operand, drawn)?;
        if !plain && !self.scores.scale.computed.is_empty() {
            // The kernel's queries hold these factors already.
            (by.computed == self.scores.scale.computed).then(|| by.computed.clear())?;
        }
        by.number *= product.alpha * ratio * v.1 * dy.map_or(1.0, |dy| dy.1) / scale;
        let output = usize::from(!plain);
        Some(Wanted { value: view, other: product.right, output, by })
    }

    /// The products of the probabilities with dY; `None` if they go anywhere else but into the forward product and the
    /// derivative, or into neither of the two products.
    fn of_values(&self, softmax: NodeId, ds: &Matrices, alpha: f64) -> Option<Vec<Wanted>> {
        let probabilities = self.graph.node(softmax).outputs().first().copied().flatten()?;
        let derivative = self.above(ds.place.value);
        let mut wanted = Vec::new();
        let mut forward = false;
        for used in readers(self.graph, probabilities, &passes_probabilities)? {
            if derivative.contains(&used.node) || is_question(self.graph.node(used.node)) {
                continue;
            }
            let orientation = |left: &Matrices| {
                let plain = is_of(self.scopes, left, softmax);
                (plain || is_of(self.scopes, &left.transposed(), softmax)).then_some(plain)
            };
            let (view, product, plain) = self.product(&used, orientation)?;
            if plain {
                forward = true;
                continue;
            }
            let (_, drawn) = self.drawn.dy?;
            let number = product.alpha
                * ratio(self.scopes, &product.right, self.operands.dy.as_ref()?.base()?, drawn)?;
            let by = Factor { number, computed: Vec::new() };
            wanted.push(Wanted { value: view, other: product.right, output: 2, by });
        }
        (alpha == 1.0 && (forward || !wanted.is_empty())).then_some(wanted)
    }

    /// The product that reads a value as its left factor, or its right one, then transposed; what `test` says of the factor.
    fn product<T>(
        &self,
        used: &Use,
        test: impl Fn(&Matrices) -> Option<T>,
    ) -> Option<(Matrices, Product, T)> {
        let value = self.graph.node(used.node).outputs().first().copied().flatten()?;
        let written = result(self.scopes, Place { depth: 0, value })?;
        let turned = written.transposed();
        [written, turned].into_iter().find_map(|view| {
            let product = Product::of(self.scopes, &view)?;
            let tested = test(&product.left).filter(|_| product.even)?;
            Some((view, product, tested))
        })
    }

    /// What the derivative of the scores is multiplied by to get `view`, and whether the rows of both are the same.
    fn behind(&self, view: &Matrices, ds: &Matrices) -> Option<(Factor, bool)> {
        let mut view = view.clone();
        let mut by = Factor::default();
        while view.place != ds.place {
            if let Some(closer) = view.closer(self.scopes) {
                view = closer;
            } else if let Some(scaled) = multiple(self.scopes, &view) {
                by.times(&scaled.by);
                view = scaled.view;
            } else {
                let inner = self.masked(&self.scopes.maker(view.place)?)?;
                view = view.beside(self.scopes, inner)?;
            }
        }
        let as_softmax = view.axes == ds.axes;
        (as_softmax || view.transposed().axes == ds.axes).then_some((by, as_softmax))
    }

    /// Whether a node passes the derivative on, perhaps times a number.
    fn passes_derivative(&self, maker: &Maker<'_, '_>, index: usize) -> bool {
        let input = maker.input(index);
        if self.masked(maker).is_some_and(|inner| Some(inner) == input) {
            return true;
        }
        let output = maker.node.outputs().first().copied().flatten();
        let view = output.and_then(|value| Matrices::plain(self.scopes, Place { depth: 0, value }));
        let scaled = view.and_then(|view| multiple(self.scopes, &view));
        scaled.is_some_and(|scaled| Some(scaled.view.place) == input)
    }

    /// Behind a `Where` that sets the derivative to 0 where a mask hides the score, the derivative. It is 0 there anyway.
    fn masked(&self, maker: &Maker<'_, '_>) -> Option<Place> {
        if !maker.is("Where") {
            return None;
        }
        let (condition, yes, no) = (maker.input(0)?, maker.input(1)?, maker.input(2)?);
        let zero = |place| self.scopes.fill(place) == Some(0.0);
        let hides = |stays: bool| {
            let same = |mask: &Mask| {
                mask.value == condition && mask.kind == Kind::Chosen { stays, fill: f64::NEG_INFINITY }
            };
            self.scores.masks.iter().any(same)
        };
        if zero(yes) && hides(false) {
            return Some(no);
        }
        (zero(no) && hides(true)).then_some(yes)
    }

    /// The nodes from the probabilities to the derivative: those that it is made of.
    fn above(&self, value: ValueId) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut left = vec![value];
        while let Some(value) = left.pop() {
            let Some((id, _)) = self.graph.value(value).producer() else { continue };
            let node = self.graph.node(id);
            if BETWEEN.contains(&node.op_type.as_str()) && !found.contains(&id) {
                found.push(id);
                left.extend(node.all_inputs());
            }
        }
        found
    }
}

/// How many times what is drawn of an operand `view` is, where both come from one value; the operand is `drawn` times it.
fn ratio(scopes: &Scopes<'_, '_>, view: &Matrices, operand: &Part, drawn: f64) -> Option<f64> {
    let Part { view: from, number, .. } = base(scopes, view);
    let same = from == operand.view && operand.number != 0.0;
    same.then(|| number * drawn / operand.number)
}
