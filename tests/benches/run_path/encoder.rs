//! A BERT-base-shaped encoder over hidden states x (B, L, 768): 12 layers of attention with 12 heads and of a network
//! 3072 wide, each followed by the sum with what came in and a layer normalisation. Written out in ONNX as exporters do.

use std::f32::consts::SQRT_2;

use mlx_safe::fast::{Mask, layer_norm, scaled_dot_product_attention};
use mlx_safe::{Array, Closure, Result, compile};
use onnx_graph::ValueId;

use crate::onnx::Onnx;
use crate::weights::{Precision, Random, Weight};

const LAYERS: usize = 12;
const HEADS: usize = 12;
const WIDTH: usize = 768;
const HIDDEN: usize = 3072;
const EPSILON: f32 = 1e-5;
/// The shape of the input that is measured.
pub const SHAPE: [usize; 3] = [8, 128, WIDTH];

struct Linear {
    weight: Weight,
    bias: Weight,
}

struct Norm {
    scale: Weight,
    bias: Weight,
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    after_attention: Norm,
    up: Linear,
    down: Linear,
    after_network: Norm,
}

/// The weights of all layers.
pub struct Encoder(Vec<Layer>);

fn linear(random: &mut Random, from: usize, to: usize) -> Linear {
    let spread = (3.0 / from as f32).sqrt();
    Linear { weight: random.weight(&[from, to], 0.0, spread), bias: random.weight(&[to], 0.0, 0.1) }
}

fn norm(random: &mut Random) -> Norm {
    Norm { scale: random.weight(&[WIDTH], 1.0, 0.1), bias: random.weight(&[WIDTH], 0.0, 0.1) }
}

impl Encoder {
    pub fn new() -> Self {
        let r = &mut Random(1);
        let layer = |_| Layer {
            query: linear(r, WIDTH, WIDTH),
            key: linear(r, WIDTH, WIDTH),
            value: linear(r, WIDTH, WIDTH),
            out: linear(r, WIDTH, WIDTH),
            after_attention: norm(r),
            up: linear(r, WIDTH, HIDDEN),
            down: linear(r, HIDDEN, WIDTH),
            after_network: norm(r),
        };
        Self((0..LAYERS).map(layer).collect())
    }

    /// The model, with inputs `x` and outputs `y` of free batch and length.
    pub fn onnx(&self, precision: Precision) -> Vec<u8> {
        let dims = ["B".into(), "L".into(), WIDTH.into()];
        let (mut onnx, mut x) = Onnx::new(precision, &dims);
        for layer in &self.0 {
            x = onnx.layer(layer, x);
        }
        onnx.model(x, &dims)
    }

    /// The same in MLX's own terms.
    pub fn mlx(&self, precision: Precision) -> Closure {
        let layers: Vec<MlxLayer> = self.0.iter().map(|layer| MlxLayer::new(layer, precision)).collect();
        compile(move |inputs| {
            let mut x = inputs[0].clone();
            for layer in &layers {
                x = layer.apply(&x)?;
            }
            Ok(vec![x])
        })
        .unwrap()
    }
}

impl Onnx {
    fn linear(&mut self, linear: &Linear, x: ValueId) -> ValueId {
        let weight = self.weight(&linear.weight);
        let bias = self.weight(&linear.bias);
        let product = self.op("MatMul", &[x, weight]);
        self.op("Add", &[product, bias])
    }

    fn norm(&mut self, norm: &Norm, x: ValueId) -> ValueId {
        let scale = self.weight(&norm.scale);
        let bias = self.weight(&norm.bias);
        let node = self.b.node("LayerNormalization", &[Some(x), Some(scale), Some(bias)]);
        node.attr("axis", -1).attr("epsilon", EPSILON).output()
    }

    fn transpose(&mut self, x: ValueId, perm: &[i64]) -> ValueId {
        self.b.node("Transpose", &[Some(x)]).attr("perm", perm.to_vec()).output()
    }

    fn heads(&mut self, linear: &Linear, x: ValueId, perm: &[i64]) -> ValueId {
        let all = self.linear(linear, x);
        let shape = self.shape(&[0, 0, HEADS as i64, (WIDTH / HEADS) as i64]);
        let heads = self.op("Reshape", &[all, shape]);
        self.transpose(heads, perm)
    }

    fn layer(&mut self, layer: &Layer, x: ValueId) -> ValueId {
        let q = self.heads(&layer.query, x, &[0, 2, 1, 3]);
        let k = self.heads(&layer.key, x, &[0, 2, 3, 1]);
        let v = self.heads(&layer.value, x, &[0, 2, 1, 3]);
        let products = self.op("MatMul", &[q, k]);
        let root = self.scalar(((WIDTH / HEADS) as f32).sqrt());
        let scores = self.op("Div", &[products, root]);
        let weights = self.b.node("Softmax", &[Some(scores)]).attr("axis", -1).output();
        let heads = self.op("MatMul", &[weights, v]);
        let heads = self.transpose(heads, &[0, 2, 1, 3]);
        let shape = self.shape(&[0, 0, WIDTH as i64]);
        let attended = self.op("Reshape", &[heads, shape]);
        let attended = self.linear(&layer.out, attended);
        let sum = self.op("Add", &[attended, x]);
        let x = self.norm(&layer.after_attention, sum);

        let up = self.linear(&layer.up, x);
        let (root, one, half) = (self.scalar(SQRT_2), self.scalar(1.0), self.scalar(0.5));
        let scaled = self.op("Div", &[up, root]);
        let erf = self.op("Erf", &[scaled]);
        let shifted = self.op("Add", &[erf, one]);
        let twice = self.op("Mul", &[up, shifted]);
        let gelu = self.op("Mul", &[twice, half]);
        let down = self.linear(&layer.down, gelu);
        let sum = self.op("Add", &[down, x]);
        self.norm(&layer.after_network, sum)
    }
}

/// Weight and bias of a product.
struct MlxLinear(Array, Array);

/// Scale and bias of a normalisation.
struct MlxNorm(Array, Array);

struct MlxLayer {
    query: MlxLinear,
    key: MlxLinear,
    value: MlxLinear,
    out: MlxLinear,
    after_attention: MlxNorm,
    up: MlxLinear,
    down: MlxLinear,
    after_network: MlxNorm,
    /// 1 / sqrt(2), 1 and 0.5 in the network's type.
    gelu: [Array; 3],
}

impl MlxLinear {
    fn apply(&self, x: &Array) -> Result<Array> {
        self.1.addmm(x, &self.0, 1.0, 1.0)
    }
}

impl MlxNorm {
    fn apply(&self, x: &Array) -> Result<Array> {
        layer_norm(x, Some(&self.0), Some(&self.1), EPSILON)
    }
}

impl MlxLayer {
    fn new(layer: &Layer, precision: Precision) -> Self {
        let linear = |l: &Linear| MlxLinear(l.weight.array(precision), l.bias.array(precision));
        let norm = |n: &Norm| MlxNorm(n.scale.array(precision), n.bias.array(precision));
        let scalar = |value| Weight { dims: Vec::new(), values: vec![value] }.array(precision);
        Self {
            query: linear(&layer.query),
            key: linear(&layer.key),
            value: linear(&layer.value),
            out: linear(&layer.out),
            after_attention: norm(&layer.after_attention),
            up: linear(&layer.up),
            down: linear(&layer.down),
            after_network: norm(&layer.after_network),
            gelu: [SQRT_2.recip(), 1.0, 0.5].map(scalar),
        }
    }

    fn apply(&self, x: &Array) -> Result<Array> {
        let (batch, length) = (x.shape()[0], x.shape()[1]);
        let (heads, size) = (HEADS as i32, (WIDTH / HEADS) as i32);
        let split = |linear: &MlxLinear| {
            linear.apply(x)?.reshape(&[batch, length, heads, size])?.transpose(&[0, 2, 1, 3])
        };
        let (q, k, v) = (split(&self.query)?, split(&self.key)?, split(&self.value)?);
        let attended = scaled_dot_product_attention(&q, &k, &v, (size as f32).sqrt().recip(), Mask::None)?;
        let attended = attended.transpose(&[0, 2, 1, 3])?.reshape(&[batch, length, WIDTH as i32])?;
        let x = self.after_attention.apply(&self.out.apply(&attended)?.add(x)?)?;

        let up = self.up.apply(&x)?;
        let [scale, one, half] = &self.gelu;
        let gelu = up.multiply(&up.multiply(scale)?.erf()?.add(one)?)?.multiply(half)?;
        self.after_network.apply(&self.down.apply(&gelu)?.add(&x)?)
    }
}
