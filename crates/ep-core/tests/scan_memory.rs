//! A long scan takes no more memory than its inputs, its outputs and one chunk. A process of its own: MLX counts for all.
#![allow(clippy::unwrap_used)]

use ep_core::{Elements, Engine, Options, OutputSink, TensorView};
use onnx_graph::{Dim, ElementType as E, Graph, GraphBuilder, TensorType, ValueType};

const WIDTH: usize = 64;

/// h' = 0.5 h + tanh(x); y = exp(-h'), of rows of `WIDTH` floats.
fn scan() -> Graph<'static> {
    let row = [Dim::Known(WIDTH)];
    let mut b = GraphBuilder::new("body", 21);
    let (h, x) = (b.input("h", E::Float, &row), b.input("x", E::Float, &row));
    let half = b.initializer("half", onnx_graph::Tensor::scalar(0.5));
    let t = b.node("Tanh", &[Some(x)]).output();
    let decayed = b.node("Mul", &[Some(h), Some(half)]).output();
    let next = b.node("Add", &[Some(decayed), Some(t)]).output();
    let negative = b.node("Neg", &[Some(next)]).output();
    let y = b.node("Exp", &[Some(negative)]).output();
    for value in [t, decayed, next, negative, y] {
        b.declare(value, E::Float, &row);
    }
    b.output(next);
    b.output(y);
    let body = b.build().unwrap();
    let rows = ["T".into(), Dim::Known(WIDTH)];
    let mut b = GraphBuilder::new("g", 21);
    let (h0, xs) = (b.input("h0", E::Float, &row), b.input("xs", E::Float, &rows));
    let node = b.node("Scan", &[Some(h0), Some(xs)]).attr("body", body).attr("num_scan_inputs", 1);
    let [last, ys] = node.outputs();
    b.output(last);
    b.output(ys);
    let mut graph = b.build().unwrap();
    for output in [last, ys] {
        graph.set_type(output, ValueType::Tensor(TensorType { element: E::Float, shape: None }));
    }
    graph
}

struct Floats(Vec<Vec<f32>>);

impl OutputSink for Floats {
    fn write(
        &mut self,
        index: usize,
        _: E,
        _: &[usize],
        elements: Elements<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0[index] =
            elements.to_vec()?.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        Ok(())
    }
}

#[test]
fn memory_does_not_grow_with_the_length_beyond_inputs_and_outputs() {
    let engine = Engine::new(&Options::parse([("claim", "all"), ("device", "cpu")]).unwrap()).unwrap();
    let executable = engine.compile(&scan()).unwrap();
    let beyond = |length: usize| {
        let xs: Vec<f32> = (0..length * WIDTH).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
        let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let (h0, data) = (bytes(&[0.25; WIDTH]), bytes(&xs));
        let inputs = [
            TensorView { element: E::Float, shape: &[WIDTH], data: &h0 },
            TensorView { element: E::Float, shape: &[length, WIDTH], data: &data },
        ];
        let mut sink = Floats(vec![Vec::new(); 2]);
        mlx_safe::memory::clear_cache().unwrap();
        mlx_safe::memory::reset_peak().unwrap();
        let before = mlx_safe::memory::active().unwrap();
        executable.run(&inputs, &mut sink).unwrap();
        let peak = mlx_safe::memory::peak().unwrap() - before;
        let mut h = [0.25f64; WIDTH];
        for (x, y) in xs.chunks(WIDTH).zip(sink.0[1].chunks(WIDTH)) {
            for ((h, &x), &y) in h.iter_mut().zip(x).zip(y) {
                *h = 0.5 * *h + f64::from(x).tanh();
                assert!((f64::from(y) - (-*h).exp()).abs() < 1e-4);
            }
        }
        peak.saturating_sub(2 * data.len())
    };
    let (short, long) = (beyond(4_000), beyond(20_000));
    assert!(
        long < short + (1 << 20),
        "{long} bytes beyond inputs and outputs for 20000 steps, {short} for 4000"
    );
    assert!(long < 16 << 20, "{long}");
}
