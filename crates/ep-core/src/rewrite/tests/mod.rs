//! Spellings that are recognised and near misses that are not, each right at two sizes.

mod attention;
mod chains;
mod loops;
mod near_misses;
mod scans;

use onnx_graph::{Dim, Graph, GraphBuilder, NodeBuilder, Tensor, ValueId};

use crate::testing::graphs::{agrees, floats_by_default, kernels};
use crate::testing::{E, uniform};

/// Opset of the models.
const OPSET: i64 = 18;

/// T, B, D, N.
type Sizes = [usize; 4];

/// Twice, so that nothing holds for one size alone.
const SIZES: [Sizes; 2] = [[5, 2, 3, 4], [9, 1, 6, 2]];

/// Writes nodes in few words.
struct Writer {
    b: GraphBuilder<'static>,
}

impl Writer {
    fn new(name: &str) -> Self {
        Self { b: GraphBuilder::new(name, OPSET) }
    }

    fn op(&mut self, op: &str, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        self.b.node(op, &inputs).output()
    }

    fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.op("Mul", &[a, b])
    }

    fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.op("Add", &[a, b])
    }

    fn ints(&mut self, values: &[i64]) -> ValueId {
        self.b.node("Constant", &[]).attr("value", Tensor::from_ints(values)).output()
    }

    fn number(&mut self, value: f32) -> ValueId {
        self.b.node("Constant", &[]).attr("value", Tensor::scalar(value)).output()
    }

    fn unsqueeze(&mut self, value: ValueId, axis: i64) -> ValueId {
        let axes = self.ints(&[axis]);
        self.op("Unsqueeze", &[value, axes])
    }

    fn squeeze(&mut self, value: ValueId, axis: i64) -> ValueId {
        let axes = self.ints(&[axis]);
        self.op("Squeeze", &[value, axes])
    }

    fn transpose(&mut self, value: ValueId, perm: &[i64]) -> ValueId {
        self.b.node("Transpose", &[Some(value)]).attr("perm", perm.to_vec()).output()
    }

    fn sum(&mut self, value: ValueId, axis: i64) -> ValueId {
        let axes = self.ints(&[axis]);
        self.b.node("ReduceSum", &[Some(value), Some(axes)]).attr("keepdims", 0i64).output()
    }

    fn matmul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.op("MatMul", &[a, b])
    }

    fn einsum(&mut self, equation: &str, a: ValueId, b: ValueId) -> ValueId {
        let equation = onnx_graph::Attribute::String(equation.as_bytes().to_vec());
        self.b.node("Einsum", &[Some(a), Some(b)]).attr("equation", equation).output()
    }

    fn pick(&mut self, value: ValueId, axis: i64, index: i64) -> ValueId {
        let index = self.b.node("Constant", &[]).attr("value_int", index).output();
        self.b.node("Gather", &[Some(value), Some(index)]).attr("axis", axis).output()
    }

    fn finish(self) -> Graph<'static> {
        floats_by_default(self.b.build().unwrap())
    }

    /// The step as Mamba-1 is written most often: next state and y.
    fn plain_step(&mut self, s: &Values) -> (ValueId, ValueId) {
        let decay = self.decay(s.dt, s.a);
        let u = self.plain_input(s);
        let kept = self.mul(decay, s.h);
        let next = self.add(kept, u);
        let y = self.plain_sum(next, s.c);
        (next, y)
    }

    /// exp(dt A).
    fn decay(&mut self, dt: ValueId, a: ValueId) -> ValueId {
        let column = self.unsqueeze(dt, -1);
        let log = self.mul(column, a);
        self.op("Exp", &[log])
    }

    /// (dt x) b.
    fn plain_input(&mut self, s: &Values) -> ValueId {
        let dx = self.mul(s.dt, s.x);
        let (dx, b) = (self.unsqueeze(dx, -1), self.unsqueeze(s.b, 1));
        self.mul(dx, b)
    }

    /// Sum over the states of h c.
    fn plain_sum(&mut self, h: ValueId, c: ValueId) -> ValueId {
        let c = self.unsqueeze(c, 1);
        let product = self.mul(h, c);
        self.sum(product, -1)
    }
}

/// What a step works with.
#[derive(Clone, Copy)]
struct Values {
    h: ValueId,
    dt: ValueId,
    x: ValueId,
    b: ValueId,
    c: ValueId,
    a: ValueId,
}

/// dt, x (T, B, D), b, c (T, B, N), A (D, N), h0 (B, D, N), by name. dt A is far below 0 in places.
fn data([t, b, d, n]: Sizes) -> Vec<(&'static str, Tensor<'static>)> {
    vec![
        ("dt", uniform(E::Float, [t, b, d], 0.01, 2.5)),
        ("x", uniform(E::Float, [t, b, d], -1.0, 1.0)),
        ("b", uniform(E::Float, [t, b, n], -1.0, 1.0)),
        ("c", uniform(E::Float, [t, b, n], -1.0, 1.0)),
        ("a", uniform(E::Float, [d, n], -40.0, -0.01)),
        ("h0", uniform(E::Float, [b, d, n], -1.0, 1.0)),
    ]
}

/// The graph's inputs of these names and sizes.
fn inputs(w: &mut Writer) -> Values {
    let mut input = |name: &str, dims: &[&str]| {
        let dims: Vec<Dim> = dims.iter().map(|&d| d.into()).collect();
        w.b.input(name, E::Float, &dims)
    };
    Values {
        dt: input("dt", &["T", "B", "D"]),
        x: input("x", &["T", "B", "D"]),
        b: input("b", &["T", "B", "N"]),
        c: input("c", &["T", "B", "N"]),
        a: input("a", &["D", "N"]),
        h: input("h0", &["B", "D", "N"]),
    }
}

/// A model with one `Scan` over dt, x, b and c, whose body `step` writes: it gives the next state and what is collected.
fn scan(step: impl Fn(&mut Writer, &Values) -> (ValueId, ValueId)) -> Graph<'static> {
    scan_with(step, |node| node)
}

fn scan_with(
    step: impl Fn(&mut Writer, &Values) -> (ValueId, ValueId),
    attributes: impl for<'b> Fn(NodeBuilder<'b, 'static>) -> NodeBuilder<'b, 'static>,
) -> Graph<'static> {
    let mut body = Writer::new("body");
    let mut input = |name: &str, dims: &[&str]| {
        let dims: Vec<Dim> = dims.iter().map(|&d| d.into()).collect();
        body.b.input(name, E::Float, &dims)
    };
    let (h, dt, x) = (input("h_in", &["B", "D", "N"]), input("dt_t", &["B", "D"]), input("x_t", &["B", "D"]));
    let (b, c) = (input("b_t", &["B", "N"]), input("c_t", &["B", "N"]));
    let a = body.b.outer("a");
    let (next, y) = step(&mut body, &Values { h, dt, x, b, c, a });
    // A body's outputs are apart, even where a step collects its state.
    let y = body.op("Identity", &[y]);
    body.b.output(next);
    body.b.output(y);
    let body = body.finish();
    let mut w = Writer::new("g");
    let v = inputs(&mut w);
    let given = [v.h, v.dt, v.x, v.b, v.c].map(Some);
    let node = w.b.node("Scan", &given).attr("body", body).attr("num_scan_inputs", 4i64);
    for output in attributes(node).outputs_as(&["last", "y"]).into_iter().flatten() {
        w.b.output(output);
    }
    w.finish()
}

/// Checks which kernels run, and that the numbers are ONNX Runtime's.
fn check(graph: &Graph<'static>, wanted: &[&str]) {
    assert_eq!(kernels(graph), wanted);
    for sizes in SIZES {
        agrees(graph, OPSET, &data(sizes));
    }
}
