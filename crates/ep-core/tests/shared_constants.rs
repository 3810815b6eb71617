//! Sessions with the same weights hold them once. A process of its own: MLX counts for all.
#![allow(clippy::unwrap_used)]

use ep_core::{Elements, Engine, Options, OutputSink, TensorView};
use mlx_safe::memory;
use onnx_graph::{Dim, ElementType as E, Graph, GraphBuilder, Tensor, TensorType, ValueType};

const SIZE: usize = 256;

/// y = x w, with w all `first` but for one element in the middle.
fn product(first: f32, odd: f32) -> Graph<'static> {
    let mut b = GraphBuilder::new("g", 21);
    let x = b.input("x", E::Float, &[Dim::Known(1), Dim::Known(SIZE)]);
    let mut weights = vec![first; SIZE * SIZE];
    weights[SIZE * SIZE / 3] = odd;
    let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let w = b.initializer("w", Tensor::new(E::Float, vec![SIZE, SIZE], bytes).unwrap());
    let y = b.node("MatMul", &[Some(x), Some(w)]).output();
    b.output(y);
    let mut graph = b.build().unwrap();
    graph.set_type(y, ValueType::Tensor(TensorType { element: E::Float, shape: None }));
    graph
}

struct Sum(f32);

impl OutputSink for Sum {
    fn write(
        &mut self,
        _: usize,
        _: E,
        _: &[usize],
        elements: Elements<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0 = elements.to_vec()?.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes)).sum();
        Ok(())
    }
}

#[test]
fn equal_weights_are_held_once_and_unequal_ones_are_told_apart() {
    let engine = Engine::new(&Options::parse([("claim", "all"), ("device", "cpu")]).unwrap()).unwrap();
    let weights = SIZE * SIZE * 4;
    let start = memory::active().unwrap();
    let held = || memory::active().unwrap() - start;
    let one = engine.compile(&product(1.0, 3.0)).unwrap();
    assert!((weights..2 * weights).contains(&held()));
    let same = engine.compile(&product(1.0, 3.0)).unwrap();
    assert!(held() < 2 * weights);
    // Alike wherever a sample is taken.
    let other = engine.compile(&product(1.0, 4.0)).unwrap();
    assert!((2 * weights..3 * weights).contains(&held()));
    let run = |executable: &ep_core::Executable| {
        let ones: Vec<u8> = [1.0f32; SIZE].iter().flat_map(|x| x.to_ne_bytes()).collect();
        let mut sum = Sum(0.0);
        let x = TensorView { element: E::Float, shape: &[1, SIZE], data: &ones };
        executable.run(&[x], &mut sum).unwrap();
        sum.0
    };
    let all = (SIZE * SIZE) as f32;
    assert_eq!([run(&one), run(&same), run(&other)], [all + 2.0, all + 2.0, all + 3.0]);
    drop(one);
    assert_eq!(run(&same), all + 2.0);
    drop((same, other));
    assert!(held() < weights);
    let again = engine.compile(&product(1.0, 3.0)).unwrap();
    assert_eq!(run(&again), all + 2.0);
}
