//! `LayerNormalization` and `RMSNormalization` over the last axes: x, or x less its mean, over the root of the mean of its
//! squares and an epsilon; then times a constant, and plus a constant. One over the root may be read elsewhere, as in
//! gradients: it is an output of the operator.

use std::cell::Cell;

use onnx_graph::pattern::{Maker, Place, Scopes, from_front};
use onnx_graph::{Attribute, Dim, ElementType, Graph, Node, NodeId, TensorType, ValueId};

use crate::rewrite::sketch::{OPSET, Replacement, Sketch, Wire};
use crate::rewrite::spelled::marks::Marks;
use crate::rewrite::spelled::operands::constant_dims;
use crate::rewrite::spelled::polynomial::{Algebra, Factors, Polynomial, near, settled};
use crate::rewrite::spelled::roots::{Role, roots};
use crate::rewrite::view::outermost;

/// How far coefficients may be from what they should be: they are products of ones.
const TOLERANCE: f64 = 1e-6;

/// What is normalised, and how.
struct Norm {
    x: Place,
    /// Whether the mean is taken off.
    centred: bool,
    /// The value by whose root is divided.
    power: Place,
    /// How many axes, counted from the last.
    axes: usize,
    epsilon: f64,
    /// Those of what is under the root.
    marks: Marks,
    /// How many elements the model takes for granted that these axes have, where it divides sums by their number.
    count: Cell<Option<usize>>,
}

/// Scale and bias.
#[derive(Default)]
struct Parameters {
    scale: Option<Place>,
    bias: Option<Place>,
}

/// Looks from a `Sqrt`, or a `Pow` to the power of 1/2 or -1/2.
pub(super) fn rule<'a>(graph: &Graph<'a>, id: NodeId) -> Option<Replacement<'a>> {
    let scopes = Scopes::new(graph);
    let node = graph.node(id);
    let [under, exponent] = [0, 1].map(|i| node.inputs().get(i).copied().flatten());
    if node.op_type == "Pow" && !exponent.is_some_and(|e| is_root(&scopes, outermost(e))) {
        return None;
    }
    let norm = Norm::read(&scopes, settled(&scopes, outermost(under?)))?;
    let root = node.outputs().first().copied().flatten()?;
    let role = |value| {
        let whole = norm.parameters(&scopes, value).map(|_| Role::Whole);
        whole.or_else(|| norm.is_inverse_root(&scopes, value).then_some(Role::Extra))
    };
    let found = roots(graph, root, &role)?;
    let (inverse, whole): (Vec<ValueId>, Vec<ValueId>) =
        found.into_iter().partition(|value| norm.is_inverse_root(&scopes, *value));
    let mut sketch = Sketch::new(graph);
    let mut outputs = Vec::with_capacity(whole.len() + inverse.len());
    for value in whole {
        let parameters = norm.parameters(&scopes, value)?;
        // The first gives what else is wanted.
        let more = if outputs.is_empty() { inverse.first().copied() } else { None };
        let node = norm.draw(&mut sketch, value, more, &parameters)?;
        outputs.push((value, Wire::Node(node, 0)));
        let last = if norm.centred { 2 } else { 1 };
        outputs
            .extend(inverse.iter().filter(|_| more.is_some()).map(|value| (*value, Wire::Node(node, last))));
    }
    Some(sketch.replace(if norm.centred { "layer_norm" } else { "rms_norm" }, outputs)?.downward())
}

fn is_root(scopes: &Scopes<'_, '_>, exponent: Place) -> bool {
    scopes.scalar(exponent).is_some_and(|value| value.abs() == 0.5)
}

impl Norm {
    /// `power` as the mean of squares plus an epsilon.
    fn read(scopes: &Scopes<'_, '_>, power: Place) -> Option<Self> {
        let plain = Algebra { scopes, known: &|_| None }.read(power);
        plain.terms().find_map(|(factors, _)| {
            let [(&average, 2)] = factors.iter().collect::<Vec<_>>()[..] else { return None };
            let mean = Mean::read(scopes, average)?;
            let base = scopes.maker(mean.of).filter(|m| m.is("Pow") || m.is("Mul"))?.input(0)?;
            let base = settled(scopes, base);
            let minuend = |place: &Place| Some(settled(scopes, scopes.made_by(*place, "Sub")?.input(0)?));
            // A mean may be taken off twice: the first value is the one that is normalised.
            let bases: Vec<Place> = std::iter::successors(Some(base), minuend).take(3).collect();
            bases.into_iter().rev().find_map(|x| Self::of(scopes, x, power, (average, &mean)))
        })
    }

    /// The same, if it is x that is normalised and `average` is the mean of squares.
    fn of(
        scopes: &Scopes<'_, '_>,
        x: Place,
        power: Place,
        (average, of_squares): (Place, &Mean),
    ) -> Option<Self> {
        let norm = Self {
            x,
            centred: false,
            power,
            axes: of_squares.axes,
            epsilon: 0.0,
            marks: Marks::default(),
            count: Cell::new(of_squares.count),
        };
        let known = |place| norm.known(scopes, place);
        let algebra = Algebra { scopes, known: &known };
        let (squares, mut sum) = (algebra.read(of_squares.of), algebra.read(power));
        let epsilon = sum.take(&Factors::new());
        let (x_, mean) = (Polynomial::of(x), Polynomial::of(mean_of(x)));
        let above = x_.clone().plus(&mean.clone().scaled(-1.0));
        let average = Polynomial::of(average).scaled(1.0 / of_squares.times());
        let less = average.clone().plus(&mean.times(&mean).scaled(-1.0));
        let are = |a: &Polynomial, b: &Polynomial| a.is_near(b, TOLERANCE);
        // The mean of the squares of what is centred, or the mean of the squares less the square of the mean.
        let plain = are(&squares, &x_.times(&x_));
        let centred = are(&squares, &above.times(&above)) && are(&sum, &average) || plain && are(&sum, &less);
        let fits = epsilon >= 0.0 && (centred || plain && are(&sum, &average));
        let marks = squares.marks.and(sum.marks);
        fits.then_some(Self { centred, epsilon, marks, ..norm })
    }

    /// The scale and the bias with which `value` is the result.
    fn parameters(&self, scopes: &Scopes<'_, '_>, value: ValueId) -> Option<Parameters> {
        let known = |place| {
            let known = self.known(scopes, place);
            let constant = || constant_dims(scopes, place).filter(|dims| !dims.is_empty());
            known.or_else(|| constant().map(|dims| Polynomial::constant(place, dims.len())))
        };
        let mut read = Algebra { scopes, known: &known }.read(outermost(value));
        if !read.marks.and(self.marks).fit(scopes, self.x, outermost(value)) {
            return None;
        }
        let (factors, _) = read.terms().find(|(factors, _)| factors.contains_key(&self.x))?;
        let scale = factors.keys().copied().find(|place| *place != self.x && *place != self.power);
        let mut wanted = Polynomial::of(self.x);
        if self.centred {
            wanted = wanted.plus(&Polynomial::of(mean_of(self.x)).scaled(-1.0));
        }
        wanted = wanted.times(&Polynomial::power_of(self.power, -1));
        if let Some(scale) = scale {
            wanted = wanted.times(&Polynomial::of(scale));
        }
        for (factors, coefficient) in wanted.terms() {
            near(read.take(factors), coefficient, TOLERANCE).then_some(())?;
        }
        let bias = match read.terms().count() {
            0 => None,
            _ if !self.centred => return None,
            _ => Some(read.single()?),
        };
        let fit = scale.iter().chain(&bias).all(|place| self.fits(scopes, *place));
        fit.then_some(Parameters { scale, bias })
    }

    /// Whether a value is one over the root, and nothing else.
    fn is_inverse_root(&self, scopes: &Scopes<'_, '_>, value: ValueId) -> bool {
        let known = |place| (place == self.power).then(|| Polynomial::of(place));
        Algebra { scopes, known: &known }.read(outermost(value)) == Polynomial::power_of(self.power, -1)
    }

    /// x itself, its mean, and the mean of what differs from x by its mean.
    fn known(&self, scopes: &Scopes<'_, '_>, place: Place) -> Option<Polynomial> {
        let x = self.x;
        let direct = |place| {
            if place == x {
                return Some(Polynomial::of(x));
            }
            let mean = Mean::read(scopes, place).filter(|mean| (mean.of, mean.axes) == (x, self.axes))?;
            self.count.set(mean.count.or(self.count.get()));
            Some(Polynomial::of(mean_of(x)).scaled(mean.times()))
        };
        direct(place).or_else(|| {
            let averaged = Mean::read(scopes, place).filter(|mean| mean.axes == self.axes)?.of;
            scopes.made_by(averaged, "Sub")?;
            let of_x = Algebra { scopes, known: &direct }.read(averaged);
            let (x, mean) = (Polynomial::of(x), Polynomial::of(mean_of(x)));
            (of_x == x.plus(&mean.scaled(-1.0))).then(Polynomial::default)
        })
    }

    /// Whether `place` is a constant that broadcasts to the normalised axes of x and does not change their sizes.
    fn fits(&self, scopes: &Scopes<'_, '_>, place: Place) -> bool {
        let (Some(dims), Some(shape)) = (constant_dims(scopes, place), scopes.shape(self.x)) else {
            return false;
        };
        let cut: Vec<usize> = dims.iter().copied().skip_while(|&n| n == 1).collect();
        let matches = |(&n, dim): (&usize, &Dim)| n == 1 || *dim == Dim::from(n);
        cut.len() <= self.axes && cut.iter().rev().zip(shape.0.iter().rev()).all(matches)
    }

    /// Draws what makes `value`, and one over the root as `inverse`. Gives the number of the node.
    fn draw<'a>(
        &self,
        sketch: &mut Sketch<'_, 'a>,
        value: ValueId,
        inverse: Option<ValueId>,
        parameters: &Parameters,
    ) -> Option<usize> {
        let ty = sketch.ty(Wire::Old(value))?;
        let mut x = Wire::Old(self.x.value);
        // What is wider than x must not be computed in x's type.
        if ty.element == ElementType::Float {
            x = sketch.cast(x, ty.element)?;
        }
        let old = |place: Option<Place>| place.map(|place| Wire::Old(place.value));
        let mut inputs = vec![Some(x), old(parameters.scale), old(parameters.bias)];
        let op = if self.centred { "LayerNormalization" } else { "RMSNormalization" };
        inputs.truncate(if self.centred { 3 } else { 2 });
        let mut node = Node::new(op, OPSET);
        let attributes = [("axis", Attribute::Int(-(self.axes as i64))), ("as_spelled", Attribute::Int(1))];
        node.attributes.extend(attributes.map(|(name, value)| (name.to_owned(), value)));
        node.attributes.insert("epsilon".to_owned(), Attribute::Float(self.epsilon as f32));
        if let Some(count) = self.count.get() {
            node.attributes.insert("count".to_owned(), Attribute::Int(i64::try_from(count).ok()?));
        }
        let mut outputs = vec![ty];
        if let Some(inverse) = inverse {
            let shape = sketch.ty(Wire::Old(inverse))?.shape;
            let statistic = TensorType { element: ElementType::Float, shape };
            // The mean lies between.
            outputs.resize(if self.centred { 3 } else { 2 }, statistic);
        }
        Some(sketch.node(node, inputs, outputs))
    }
}

/// Stands for the mean of x, which a model may compute more than once.
fn mean_of(x: Place) -> Place {
    Place { depth: usize::MAX, ..x }
}

/// The mean of a value, or its sum.
struct Mean {
    of: Place,
    /// How many of the last axes; they stay with size 1.
    axes: usize,
    /// For a sum, how many elements are declared.
    count: Option<usize>,
}

impl Mean {
    fn read(scopes: &Scopes<'_, '_>, place: Place) -> Option<Self> {
        let mut maker = scopes.maker(place)?;
        let mut moved = false;
        while ["Expand", "Reshape", "Squeeze", "Unsqueeze"].iter().any(|op| maker.is(op)) {
            (maker, moved) = (scopes.maker(settled(scopes, maker.input(0)?))?, true);
        }
        let x = maker.input(0).filter(|_| maker.is("ReduceMean") || maker.is("ReduceSum"))?;
        let axes = last_axes(scopes, &maker, x)?;
        if moved {
            // Back to where the axes were: the shape is that of x, with ones.
            let (mut wanted, shape) = (scopes.shape(x)?, scopes.shape(place)?);
            let kept = wanted.rank() - axes;
            wanted.0[kept..].fill(Dim::Known(1));
            (shape == wanted && !shape.0.contains(&Dim::Unknown)).then_some(())?;
        } else if maker.int_or("keepdims", 1)? != 1 {
            return None;
        }
        let count = match maker.is("ReduceSum") {
            true => {
                Some(scopes.shape(x)?.0.iter().rev().take(axes).map(Dim::known).product::<Option<usize>>()?)
            }
            false => None,
        };
        Some(Self { of: settled(scopes, x), axes, count })
    }

    /// How many means the value is.
    fn times(&self) -> f64 {
        self.count.map_or(1.0, |count| count as f64)
    }
}

/// How many axes a node names, if they are the last ones of x.
fn last_axes(scopes: &Scopes<'_, '_>, maker: &Maker<'_, '_>, x: Place) -> Option<usize> {
    let mut axes = scopes.named_axes(maker)?;
    if axes.iter().any(|&axis| axis >= 0) {
        let rank = scopes.rank(x)?;
        for axis in &mut axes {
            *axis = from_front(*axis, rank)? as i64 - rank as i64;
        }
    }
    axes.sort_unstable();
    let last = axes.iter().rev().zip(1..).all(|(&axis, i)| axis == -i);
    (last && !axes.is_empty()).then_some(axes.len())
}
