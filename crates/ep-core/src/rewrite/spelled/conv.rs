//! A `Conv` or `ConvTranspose` whose channels are scaled and shifted by constants after it, by `BatchNormalization`, `Mul`, `Add` or `Sub`: one
//! convolution with other weights. They are drawn as operators on constants, which are done when the program is made. Only in
//! float32: 16-bit weights would be rounded once more.

use onnx_graph::pattern::{Maker, Place, Scopes};
use onnx_graph::{Attribute, ElementType, Graph, Node, NodeId, Shape, Tensor, TensorType, ValueId};

use crate::rewrite::sketch::{Replacement, Sketch, Wire, ranked};
use crate::rewrite::spelled::operands::{constant_dims, is_fixed};

/// A convolution with fixed weights, of which only one node reads the result.
struct Convolution<'g, 'a> {
    node: &'g Node<'a>,
    x: ValueId,
    weight: Place,
    bias: Option<Place>,
    /// Sizes of the weights.
    dims: Vec<usize>,
    /// Which axis of the weights runs along the channels of the result.
    axis: usize,
}

/// What is done to each channel: times `scale`, then plus `shift`, each of shape (C) or (1).
#[derive(Default)]
struct Affine {
    scale: Option<Wire>,
    shift: Option<Wire>,
}

/// Looks from what may come after a `Conv`.
pub(super) fn rule<'a>(graph: &Graph<'a>, id: NodeId) -> Option<Replacement<'a>> {
    let scopes = Scopes::new(graph);
    let maker = Maker { depth: 0, id, node: graph.node(id), output: 0 };
    let [Some(output), ref unwanted @ ..] = *maker.node.outputs() else { return None };
    unwanted.iter().all(Option::is_none).then_some(())?;
    let commutes = maker.is("Mul") || maker.is("Add");
    let [first, second] = [maker.input(0)?, maker.input(1)?];
    let (conv, other) = match Convolution::read(graph, &scopes, first) {
        Some(conv) => (conv, second),
        None if commutes => (Convolution::read(graph, &scopes, second)?, first),
        None => return None,
    };
    let mut sketch = Sketch::new(graph);
    let affine = if maker.is("BatchNormalization") {
        normalisation(&scopes, &mut sketch, &maker)?
    } else {
        let other = conv.by_channel(&scopes, &mut sketch, other)?;
        match maker.node.op_type.as_str() {
            "Mul" => Affine { scale: Some(other), shift: None },
            "Add" => Affine { scale: None, shift: Some(other) },
            _ => {
                let ty = sketch.ty(other)?;
                let minus = sketch.op("Neg", &[other], &[], ty);
                Affine { scale: None, shift: Some(minus) }
            }
        }
    };
    let ty = sketch.ty(Wire::Old(output))?;
    let wire = conv.draw(&mut sketch, &affine, ty)?;
    Some(sketch.replace("conv", vec![(output, wire)])?.downward())
}

/// Scale and shift of a `BatchNormalization` that is not in training.
fn normalisation<'a>(
    scopes: &Scopes<'_, '_>,
    sketch: &mut Sketch<'_, 'a>,
    maker: &Maker<'_, 'a>,
) -> Option<Affine> {
    let parameters: Vec<Place> = (1..5).map(|i| maker.input(i)).collect::<Option<_>>()?;
    let fixed = parameters.iter().all(|place| is_fixed(scopes, *place) && is_float(scopes, *place));
    let by_channel = maker.node.version >= 9 || maker.int_or("spatial", 1)? == 1;
    if !fixed || maker.int_or("training_mode", 0)? != 0 || maker.node.version < 7 || !by_channel {
        return None;
    }
    let epsilon = match maker.node.attributes.get("epsilon") {
        None => 1e-5,
        Some(Attribute::Float(epsilon)) => *epsilon,
        Some(_) => return None,
    };
    let [scale, bias, mean, variance] = [0, 1, 2, 3].map(|i: usize| Wire::Old(parameters[i].value));
    let ty = sketch.ty(variance)?;
    let epsilon = sketch.constant(Tensor::scalar(epsilon));
    let sum = sketch.op("Add", &[variance, epsilon], &[], ty.clone());
    let deviation = sketch.op("Sqrt", &[sum], &[], ty.clone());
    let scale = sketch.op("Div", &[scale, deviation], &[], ty.clone());
    let moved = sketch.op("Mul", &[mean, scale], &[], ty.clone());
    let shift = sketch.op("Sub", &[bias, moved], &[], ty);
    Some(Affine { scale: Some(scale), shift: Some(shift) })
}

fn is_float(scopes: &Scopes<'_, '_>, place: Place) -> bool {
    scopes.element(place) == Some(ElementType::Float)
}

impl<'g, 'a> Convolution<'g, 'a> {
    fn read(graph: &'g Graph<'a>, scopes: &Scopes<'g, 'a>, place: Place) -> Option<Self> {
        let maker = scopes.maker(place).filter(|maker| maker.is("Conv") || maker.is("ConvTranspose"))?;
        // The weights of a transposed convolution have the channels of one group on their second axis.
        let axis = usize::from(maker.is("ConvTranspose"));
        (axis == 0 || maker.int_or("group", 1)? == 1).then_some(())?;
        let read_once = graph.value(place.value).uses().len() == 1 && !graph.outputs().contains(&place.value);
        let (weight, bias) = (maker.input(1)?, maker.input(2));
        let fixed = |place: &Place| is_fixed(scopes, *place) && is_float(scopes, *place);
        let dims = scopes.shape(weight)?.known()?;
        let fits = read_once && fixed(&weight) && bias.iter().all(fixed) && dims.len() > 2;
        fits.then_some(Self { node: maker.node, x: maker.input(0)?.value, weight, bias, dims, axis })
    }

    /// A constant that has one element, or one for each channel, as a vector.
    fn by_channel(&self, scopes: &Scopes<'_, '_>, sketch: &mut Sketch<'_, 'a>, place: Place) -> Option<Wire> {
        let dims = constant_dims(scopes, place).filter(|_| is_float(scopes, place))?;
        let (rank, channels) = (self.dims.len(), self.dims[self.axis]);
        let axes = dims.iter().rev().enumerate();
        let alone = axes.clone().all(|(back, &n)| n == 1 || back + 2 == rank && n == channels);
        (alone && dims.len() <= rank).then_some(())?;
        let flat = sketch.ints(&[-1]);
        let count = dims.iter().product();
        Some(sketch.op("Reshape", &[Wire::Old(place.value), flat], &[], float(&[count])))
    }

    /// The convolution with its channels scaled and shifted.
    fn draw(&self, sketch: &mut Sketch<'_, 'a>, affine: &Affine, ty: TensorType) -> Option<Wire> {
        let channels = float(&[self.dims[self.axis]]);
        let mut weight = Wire::Old(self.weight.value);
        let mut bias = self.bias.map(|bias| Wire::Old(bias.value));
        if let Some(scale) = affine.scale {
            let mut shape = vec![1; self.dims.len()];
            shape[self.axis] = -1;
            let shape = sketch.ints(&shape);
            let rank = self.dims.len();
            let column = sketch.op("Reshape", &[scale, shape], &[], ranked(ElementType::Float, rank));
            weight = sketch.op("Mul", &[weight, column], &[], float(&self.dims));
            bias = bias.map(|bias| sketch.op("Mul", &[bias, scale], &[], channels.clone()));
        }
        if let Some(shift) = affine.shift {
            bias = Some(match bias {
                Some(bias) => sketch.op("Add", &[bias, shift], &[], channels),
                None => {
                    let count = sketch.ints(&[self.dims[self.axis] as i64]);
                    sketch.op("Expand", &[shift, count], &[], channels)
                }
            });
        }
        let mut node = Node::new(&self.node.op_type, self.node.version);
        node.attributes.clone_from(&self.node.attributes);
        let inputs = [Some(Wire::Old(self.x)), Some(weight), bias];
        Some(Wire::Node(sketch.node(node, inputs.into_iter().filter(Option::is_some).collect(), vec![ty]), 0))
    }
}

fn float(dims: &[usize]) -> TensorType {
    TensorType { element: ElementType::Float, shape: Some(Shape::fixed(dims)) }
}
