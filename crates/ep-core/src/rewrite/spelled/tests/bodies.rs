//! Spellings in bodies, whose constants and whose x may be those of the graph around.

use onnx_graph::{Attribute, Graph, GraphBuilder, Shape, Tensor, TensorType, ValueType};

use crate::testing::graphs::{agrees, kernels};
use crate::testing::{E, f32s, tensor, text, uniform};

const OPSET: i64 = 18;
const NORM: &str = "m = ReduceMean(x, axes); d = Sub(x, m); q = Pow(d, two); v = ReduceMean(q, axes); e = Add(v, eps); s = Sqrt(e);
    n = Div(d, s); t = Mul(n, w); o:0x3x8 = Add(t, b)";
const GELU: &str = "u = Div(x, root); f = Erf(u); p = Add(f, one); t = Mul(x, p); o:0x3x8 = Mul(t, half)";
const ATTENTION: &str = "c:0x8x3 = Transpose<perm=[0, 2, 1]>(x); p:0x3x3 = MatMul(x, c); s:0x3x3 = Mul(p, half); k:0x3x3 = Add(s, mask);
    f:0x3x3 = Softmax<axis=-1>(k); o:0x3x8 = MatMul(f, x)";

/// The nodes over x (B, 3, 8), which is read from outside or an input.
fn body(nodes: &str, more: &[(&str, E, &[usize])]) -> Graph<'static> {
    let mut body = text::graph(OPSET, more, &[], nodes, &["o"]);
    for outer in body.outer_values().collect::<Vec<_>>() {
        let (element, dims) = match body.value(outer).name.as_str() {
            "axes" => (E::Int64, vec![1.into()]),
            "x" | "y0" => (E::Float, vec!["B".into(), 3.into(), 8.into()]),
            "w" | "b" => (E::Float, vec![8.into()]),
            "mask" => (E::Float, vec![3.into(), 3.into()]),
            _ => (E::Float, Vec::new()),
        };
        body.set_type(outer, ValueType::Tensor(TensorType { element, shape: Some(Shape(dims)) }));
    }
    body
}

/// A graph with the constants that the bodies read.
fn around() -> GraphBuilder<'static> {
    let mut b = GraphBuilder::new("g", OPSET);
    let numbers =
        [("two", 2.0), ("half", 0.5), ("one", 1.0), ("eps", 1e-5), ("root", std::f32::consts::SQRT_2)];
    for (name, number) in numbers {
        b.initializer(name, Tensor::scalar(number));
    }
    b.initializer("axes", Tensor::from_ints(&[-1]));
    b.initializer("w", uniform(E::Float, [8], 0.5, 1.5));
    b.initializer("b", f32s([8]));
    b.initializer("mask", tensor(E::Float, [3, 3], &[0.0, -1e9, -1e9, 0.0, 0.0, -1e9, 0.0, 0.0, 0.0]));
    b
}

fn choice(nodes: &str) -> Graph<'static> {
    let mut b = around();
    b.input("x", E::Float, &["B".into(), 3.into(), 8.into()]);
    let c = b.input("chosen", E::Bool, &[]);
    let then = b.node("If", &[Some(c)]).attr("then_branch", body(nodes, &[]));
    let y = then.attr("else_branch", body("o:0x3x8 = Mul(x, half)", &[])).output_as("y");
    b.declare(y, E::Float, &["B".into(), 3.into(), 8.into()]);
    b.output(y);
    b.build().unwrap()
}

fn scan(nodes: &str) -> Graph<'static> {
    let mut b = around();
    let all = b.input("all", E::Float, &["T".into(), "B".into(), 3.into(), 8.into()]);
    let step = body(nodes, &[("x", E::Float, &[0, 3, 8])]);
    let y = b.node("Scan", &[Some(all)]).attr("body", step).attr("num_scan_inputs", 1i64).output_as("y");
    b.declare(y, E::Float, &["T".into(), "B".into(), 3.into(), 8.into()]);
    b.output(y);
    b.build().unwrap()
}

/// A loop of three turns in which an `If` has the nodes.
fn nested(nodes: &str) -> Graph<'static> {
    let mut inner = GraphBuilder::new("turn", OPSET);
    inner.input("i", E::Int64, &[]);
    let on = inner.input("on", E::Bool, &[]);
    inner.input("x", E::Float, &["B".into(), 3.into(), 8.into()]);
    let same = inner.node("Identity", &[Some(on)]).output();
    inner.declare(same, E::Bool, &[]);
    let then = inner.node("If", &[Some(on)]).attr("then_branch", body(nodes, &[]));
    let next = then.attr("else_branch", body("o:0x3x8 = Mul(x, half)", &[])).output_as("next");
    inner.declare(next, E::Float, &["B".into(), 3.into(), 8.into()]);
    inner.output(same);
    inner.output(next);
    let mut b = around();
    let x = b.input("first", E::Float, &["B".into(), 3.into(), 8.into()]);
    let count = b.initializer("count", tensor(E::Int64, [], &[3.0]));
    let y = b.node("Loop", &[Some(count), None, Some(x)]).attr("body", inner.build().unwrap()).output_as("y");
    b.declare(y, E::Float, &["B".into(), 3.into(), 8.into()]);
    b.output(y);
    b.build().unwrap()
}

#[test]
fn constants_stand_outside() {
    for (nodes, wanted) in [(NORM, "layer_norm"), (GELU, "gelu"), (ATTENTION, "ScaledDotProductAttention")] {
        for batch in [1, 4] {
            let x = f32s([batch, 3, 8]);
            let graph = choice(nodes);
            assert_eq!(kernels(&graph), [wanted], "If: {nodes}");
            for chosen in [0.0, 1.0] {
                agrees(&graph, OPSET, &[("x", x.clone()), ("chosen", tensor(E::Bool, [], &[chosen]))]);
            }
            let graph = scan(nodes);
            assert_eq!(kernels(&graph), [wanted], "Scan: {nodes}");
            agrees(&graph, OPSET, &[("all", f32s([5, batch, 3, 8]))]);
            let graph = nested(nodes);
            assert_eq!(kernels(&graph), [wanted], "Loop: {nodes}");
            agrees(&graph, OPSET, &[("first", x)]);
        }
    }
}

/// A body's own value hides one of the same name outside, and what is computed outside is no constant.
#[test]
fn near_misses() {
    let other = "m = ReduceMean(x, axes); two = ReduceMax(m, axes); q = Pow(x, two); v = ReduceMean(q, axes); s = Sqrt(v); o:0x3x8 = Div(x, s)";
    for nodes in [other, "f = Sigmoid(x); o:0x3x8 = Mul(y0, f)"] {
        let mut graph = choice(nodes);
        if nodes.contains("y0") {
            let x = graph.find_value("x");
            let y0 = graph.value_named("y0");
            let ty = graph.value(x.unwrap()).ty.clone();
            graph.set_type(y0, ty);
            graph
                .add_node(onnx_graph::Node::new("Tanh", OPSET), vec![x], vec![Some(y0)], Vec::new())
                .unwrap();
        }
        assert_eq!(kernels(&graph), [""; 0], "{nodes}");
    }
    // The same constant is seen twice, and stays outside.
    let graph = choice(NORM);
    let mut rewritten = graph.clone();
    let rules = crate::rewrite::Rules { selective_scan: true, spelled: true };
    crate::rewrite::apply(&mut rewritten, rules, mlx_safe::DeviceType::Cpu).unwrap();
    let (_, node) = rewritten.nodes().next().unwrap();
    let Some(Attribute::Graph(body)) = node.attributes.get("then_branch") else { panic!("no body") };
    assert!(body.values().all(|(_, value)| value.constant.is_none()), "a weight was copied");
}
