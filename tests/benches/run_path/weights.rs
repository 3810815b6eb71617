//! Random weights, the same at every run, for two spellings of one network.

use half::f16;
use mlx_safe::{Array, Dtype};
use onnx_graph::{ElementType, Tensor};

/// The element type of a network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    Float32,
    Float16,
}

/// A tensor in float32, from which either spelling takes what it needs.
pub struct Weight {
    pub dims: Vec<usize>,
    pub values: Vec<f32>,
}

/// A generator of numbers in -1..1.
pub struct Random(pub u64);

impl Precision {
    pub fn element(self) -> ElementType {
        match self {
            Self::Float32 => ElementType::Float,
            Self::Float16 => ElementType::Float16,
        }
    }

    pub fn dtype(self) -> Dtype {
        match self {
            Self::Float32 => Dtype::Float32,
            Self::Float16 => Dtype::Float16,
        }
    }

    /// Little-endian elements.
    pub fn bytes(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::Float32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Self::Float16 => values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
        }
    }
}

impl Random {
    pub fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Numbers in `middle` +- `spread`.
    pub fn weight(&mut self, dims: &[usize], middle: f32, spread: f32) -> Weight {
        let count = dims.iter().product();
        Weight { dims: dims.to_vec(), values: (0..count).map(|_| middle + spread * self.next()).collect() }
    }
}

impl Weight {
    pub fn tensor(&self, precision: Precision) -> Tensor<'static> {
        Tensor::new(precision.element(), self.dims.clone(), precision.bytes(&self.values)).unwrap()
    }

    pub fn array(&self, precision: Precision) -> Array {
        let shape: Vec<i32> = self.dims.iter().map(|&dim| dim as i32).collect();
        Array::from_bytes(precision.dtype(), &shape, &precision.bytes(&self.values)).unwrap()
    }
}
