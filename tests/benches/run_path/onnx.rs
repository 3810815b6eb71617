//! A model under construction.

use onnx_graph::{Dim, GraphBuilder, Tensor, ValueId};

use crate::weights::{Precision, Weight};

pub struct Onnx {
    pub b: GraphBuilder<'static>,
    precision: Precision,
    constants: usize,
}

impl Onnx {
    /// An empty graph of opset 17, and its input `x`.
    pub fn new(precision: Precision, x: &[Dim]) -> (Self, ValueId) {
        let mut b = GraphBuilder::new("network", 17);
        let x = b.input("x", precision.element(), x);
        (Self { b, precision, constants: 0 }, x)
    }

    /// The bytes of the model with output `y`.
    pub fn model(mut self, y: ValueId, dims: &[Dim]) -> Vec<u8> {
        let y = self.b.node("Identity", &[Some(y)]).output_as("y");
        self.b.declare(y, self.precision.element(), dims);
        self.b.output(y);
        ort_mlx_tests::model(&self.b.build().unwrap(), 17)
    }

    pub fn op(&mut self, name: &str, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        self.b.node(name, &inputs).output()
    }

    pub fn weight(&mut self, weight: &Weight) -> ValueId {
        let tensor = weight.tensor(self.precision);
        self.constant(tensor)
    }

    pub fn scalar(&mut self, value: f32) -> ValueId {
        self.weight(&Weight { dims: Vec::new(), values: vec![value] })
    }

    pub fn shape(&mut self, dims: &[i64]) -> ValueId {
        self.constant(Tensor::from_ints(dims))
    }

    fn constant(&mut self, tensor: Tensor<'static>) -> ValueId {
        self.constants += 1;
        self.b.initializer(&format!("constant{}", self.constants), tensor)
    }
}
