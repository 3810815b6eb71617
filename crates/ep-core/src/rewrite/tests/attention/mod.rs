//! Spellings of attention and its pullback that are recognised, and near misses that are not, each right at two sizes.

mod causal;
mod fillings;
mod forward;
mod gradient;
mod near_misses;

use onnx_graph::{Attribute, Dim, Graph, GraphBuilder, Tensor, ValueId};

use super::OPSET;
use crate::testing::graphs::{agrees, kernels};
use crate::testing::{E, tensor, uniform};

const FORWARD: &str = "ScaledDotProductAttention";
const BACKWARD: &str = "ScaledDotProductAttentionGrad";

/// B, H, L, S, E, Ev. Twice, so that nothing holds for one size alone.
const SIZES: [[usize; 6]; 2] = [[2, 3, 5, 7, 4, 6], [3, 2, 9, 2, 8, 5]];

/// Writes nodes and declares what they make.
struct Writer {
    b: GraphBuilder<'static>,
}

/// A value and its sizes, by name, number, or names with stars between.
#[derive(Clone)]
struct Value {
    id: ValueId,
    dims: Vec<&'static str>,
    element: E,
}

fn dims(names: &[&str]) -> Vec<Dim> {
    names.iter().map(|n| n.parse::<usize>().map_or_else(|_| (*n).into(), Dim::Known)).collect()
}

impl Writer {
    fn new() -> Self {
        Self { b: GraphBuilder::new("g", OPSET) }
    }

    fn input(&mut self, name: &str, element: E, names: &[&'static str]) -> Value {
        let id = self.b.input(name, element, &dims(names));
        Value { id, dims: names.to_vec(), element }
    }

    /// q, k, v and the derivative by the result.
    fn inputs(&mut self) -> [Value; 4] {
        [
            ("q", ["B", "H", "L", "E"]),
            ("k", ["B", "H", "S", "E"]),
            ("v", ["B", "H", "S", "V"]),
            ("dy", ["B", "H", "L", "V"]),
        ]
        .map(|(name, names)| self.input(name, E::Float, &names))
    }

    fn node(
        &mut self,
        op: &str,
        inputs: &[&Value],
        attributes: &[(&str, Attribute<'static>)],
        names: &[&'static str],
        element: E,
    ) -> Value {
        let inputs: Vec<_> = inputs.iter().map(|v| Some(v.id)).collect();
        let mut node = self.b.node(op, &inputs);
        for (name, value) in attributes {
            node = node.attr(name, value.clone());
        }
        let id = node.output();
        self.b.declare(id, element, &dims(names));
        Value { id, dims: names.to_vec(), element }
    }

    fn op(&mut self, op: &str, inputs: &[&Value], names: &[&'static str]) -> Value {
        self.node(op, inputs, &[], names, E::Float)
    }

    /// An operator whose result has the sizes of its first input.
    fn like(&mut self, op: &str, inputs: &[&Value]) -> Value {
        let names = inputs[0].dims.clone();
        self.op(op, inputs, &names)
    }

    fn constant(&mut self, tensor: Tensor<'static>) -> Value {
        let element = tensor.element();
        let id = self.b.node("Constant", &[]).attr("value", tensor).output();
        self.b.declare(id, element, &[]);
        Value { id, dims: Vec::new(), element }
    }

    fn number(&mut self, value: f32) -> Value {
        self.constant(Tensor::scalar(value))
    }

    fn times(&mut self, value: &Value, by: f32) -> Value {
        let by = self.number(by);
        self.like("Mul", &[value, &by])
    }

    /// The last two axes exchanged.
    fn turned(&mut self, value: &Value) -> Value {
        let n = value.dims.len();
        let mut perm: Vec<usize> = (0..n).collect();
        perm.swap(n - 2, n - 1);
        self.transposed(value, &perm)
    }

    fn transposed(&mut self, value: &Value, perm: &[usize]) -> Value {
        let names: Vec<_> = perm.iter().map(|&i| value.dims[i]).collect();
        let perm: Vec<i64> = perm.iter().map(|&i| i as i64).collect();
        self.node("Transpose", &[value], &[("perm", Attribute::Ints(perm))], &names, value.element)
    }

    fn matmul(&mut self, a: &Value, b: &Value) -> Value {
        let mut names = a.dims.clone();
        names.pop();
        names.extend(b.dims.last());
        self.op("MatMul", &[a, b], &names)
    }

    fn softmax(&mut self, value: &Value) -> Value {
        self.node("Softmax", &[value], &[("axis", Attribute::Int(-1))], &value.dims.clone(), E::Float)
    }

    fn row_sums(&mut self, value: &Value, axis: i64) -> Value {
        let axes = self.constant(Tensor::from_ints(&[axis]));
        let mut names = value.dims.clone();
        let n = names.len() as i64;
        names[(axis + n) as usize] = "1";
        self.op("ReduceSum", &[value, &axes], &names)
    }

    /// The value with sizes of `names`, taken from the inputs' sizes at run time: `B*H` is a product.
    fn reshaped(&mut self, value: &Value, names: &[&'static str]) -> Value {
        let [q, v] = ["q", "v"].map(|name| self.b.outer(name));
        let mut parts = Vec::new();
        for name in names {
            let sizes: Vec<ValueId> = name.split('*').map(|name| self.size(name, q, v)).collect();
            let product = sizes.into_iter().reduce(|a, b| {
                let product = self.b.node("Mul", &[Some(a), Some(b)]).output();
                self.b.declare(product, E::Int64, &[1.into()]);
                product
            });
            parts.extend(product);
        }
        let parts: Vec<_> = parts.into_iter().map(Some).collect();
        let shape = self.b.node("Concat", &parts).attr("axis", 0i64).output();
        self.b.declare(shape, E::Int64, &[names.len().into()]);
        let shape = Value { id: shape, dims: vec![], element: E::Int64 };
        self.node("Reshape", &[value, &shape], &[("allowzero", Attribute::Int(1))], names, value.element)
    }

    fn size(&mut self, name: &str, q: ValueId, v: ValueId) -> ValueId {
        let (of, axis) = match name {
            "B" => (q, 0),
            "H" => (q, 1),
            "L" => (q, 2),
            "E" => (q, 3),
            "S" => (v, 2),
            "V" => (v, 3),
            number => {
                let number = number.parse().expect("a number");
                return self.b.node("Constant", &[]).attr("value", Tensor::from_ints(&[number])).output();
            }
        };
        let size = self.b.node("Shape", &[Some(of)]).attr("start", axis).attr("end", axis + 1i64).output();
        self.b.declare(size, E::Int64, &[1.into()]);
        size
    }

    fn finish(mut self, outputs: &[&Value]) -> Graph<'static> {
        for output in outputs {
            self.b.output(output.id);
        }
        self.b.build().unwrap()
    }
}

/// Inputs by name: q, k, v, dy, an additive mask, and one of bools in which no row is empty.
fn data([b, h, l, s, e, ev]: [usize; 6]) -> Vec<(&'static str, Tensor<'static>)> {
    let visible: Vec<f64> =
        (0..b * l * s).map(|i| f64::from(u8::from(i % s == (i / s) % s || i % 3 == 0))).collect();
    let blind: Vec<f64> =
        (0..b * l * s).map(|i| f64::from(u8::from((i / s) % l != 1 && i % 3 != 1))).collect();
    vec![
        ("q", uniform(E::Float, [b, h, l, e], -1.0, 1.0)),
        ("k", uniform(E::Float, [b, h, s, e], -1.0, 1.0)),
        ("v", uniform(E::Float, [b, h, s, ev], -1.0, 1.0)),
        ("dy", uniform(E::Float, [b, h, l, ev], -1.0, 1.0)),
        ("bias", uniform(E::Float, [h, l, s], -1.0, 1.0)),
        ("visible", tensor(E::Bool, [b, 1, l, s], &visible)),
        ("blind", tensor(E::Bool, [b, 1, l, s], &blind)),
    ]
}

/// Checks which kernels run, and that the numbers are ONNX Runtime's.
fn check(graph: &Graph<'static>, wanted: &[&str]) {
    assert_eq!(kernels(graph), wanted);
    SIZES.into_iter().for_each(|sizes| agrees_at(graph, sizes));
}

/// Checks that the numbers are ONNX Runtime's at these sizes.
fn agrees_at(graph: &Graph<'static>, sizes: [usize; 6]) {
    let mut inputs = data(sizes);
    inputs.retain(|(name, _)| graph.inputs().iter().any(|&id| graph.value(id).name == *name));
    agrees(graph, OPSET, &inputs);
}
