//! A ResNet-50-shaped net over pictures x (B, 3, 224, 224), giving 1000 numbers each: He et al., "Deep Residual Learning
//! for Image Recognition", table 1, with the stride in the 3x3 convolutions. In ONNX with its batch normalisations; in MLX
//! with those folded into the convolutions, as one would write it.

use mlx_safe::{Array, Closure, PadMode, Result, compile};
use onnx_graph::ValueId;

use crate::onnx::Onnx;
use crate::weights::{Precision, Random, Weight};

const EPSILON: f32 = 1e-5;
const CLASSES: usize = 1000;
/// The shape of the input that is measured.
pub const SHAPE: [usize; 4] = [8, 3, 224, 224];

/// A convolution and the batch normalisation after it.
struct Conv {
    /// (O, C, K, K).
    weight: Weight,
    scale: Weight,
    bias: Weight,
    mean: Weight,
    variance: Weight,
    stride: usize,
}

struct Block {
    convs: [Conv; 3],
    shortcut: Option<Conv>,
}

/// All weights.
pub struct ResNet {
    stem: Conv,
    blocks: Vec<Block>,
    /// (2048, 1000).
    weight: Weight,
    bias: Weight,
}

fn conv(random: &mut Random, from: usize, to: usize, size: usize, stride: usize, gain: f32) -> Conv {
    let spread = (6.0 / (from * size * size) as f32).sqrt();
    Conv {
        weight: random.weight(&[to, from, size, size], 0.0, spread),
        scale: random.weight(&[to], gain, 0.1 * gain),
        bias: random.weight(&[to], 0.0, 0.1),
        mean: random.weight(&[to], 0.0, 0.1),
        variance: random.weight(&[to], 1.0, 0.2),
        stride,
    }
}

impl ResNet {
    pub fn new() -> Self {
        let r = &mut Random(2);
        let stem = conv(r, 3, 64, 7, 2, 1.0);
        let (mut blocks, mut from) = (Vec::new(), 64);
        for (stage, count) in [3, 4, 6, 3].into_iter().enumerate() {
            let width = 64 << stage;
            for index in 0..count {
                let stride = if index == 0 && stage > 0 { 2 } else { 1 };
                // A small gain at the end of a block keeps sums over many blocks in range.
                let convs = [
                    conv(r, from, width, 1, 1, 1.0),
                    conv(r, width, width, 3, stride, 1.0),
                    conv(r, width, 4 * width, 1, 1, 0.2),
                ];
                let shortcut = (index == 0).then(|| conv(r, from, 4 * width, 1, stride, 1.0));
                blocks.push(Block { convs, shortcut });
                from = 4 * width;
            }
        }
        let weight = r.weight(&[from, CLASSES], 0.0, (3.0 / from as f32).sqrt());
        Self { stem, blocks, weight, bias: r.weight(&[CLASSES], 0.0, 0.1) }
    }

    /// The model, with input `x` and output `y` of a free batch.
    pub fn onnx(&self, precision: Precision) -> Vec<u8> {
        let dims = ["B".into(), SHAPE[1].into(), SHAPE[2].into(), SHAPE[3].into()];
        let (mut onnx, x) = Onnx::new(precision, &dims);
        let x = onnx.conv(&self.stem, x);
        let x = onnx.op("Relu", &[x]);
        let pool = onnx.b.node("MaxPool", &[Some(x)]).attr("kernel_shape", vec![3, 3]);
        let mut x = pool.attr("strides", vec![2, 2]).attr("pads", vec![1, 1, 1, 1]).output();
        for block in &self.blocks {
            let mut y = x;
            for (index, conv) in block.convs.iter().enumerate() {
                y = onnx.conv(conv, y);
                if index < 2 {
                    y = onnx.op("Relu", &[y]);
                }
            }
            let shortcut = match &block.shortcut {
                Some(conv) => onnx.conv(conv, x),
                None => x,
            };
            let sum = onnx.op("Add", &[y, shortcut]);
            x = onnx.op("Relu", &[sum]);
        }
        let x = onnx.op("GlobalAveragePool", &[x]);
        let x = onnx.op("Flatten", &[x]);
        let (weight, bias) = (onnx.weight(&self.weight), onnx.weight(&self.bias));
        let y = onnx.op("Gemm", &[x, weight, bias]);
        onnx.model(y, &["B".into(), CLASSES.into()])
    }

    /// The same in MLX's own terms, channels last inside.
    pub fn mlx(&self, precision: Precision) -> Closure {
        let stem = MlxConv::new(&self.stem, precision);
        let blocks: Vec<(Vec<MlxConv>, Option<MlxConv>)> = self
            .blocks
            .iter()
            .map(|block| {
                let convs = block.convs.iter().map(|conv| MlxConv::new(conv, precision)).collect();
                (convs, block.shortcut.as_ref().map(|conv| MlxConv::new(conv, precision)))
            })
            .collect();
        let (weight, bias) = (self.weight.array(precision), self.bias.array(precision));
        let [zero, lowest] = [0.0, f32::NEG_INFINITY]
            .map(|value| Weight { dims: Vec::new(), values: vec![value] }.array(precision));
        compile(move |inputs| {
            let x = stem.apply(&inputs[0].transpose(&[0, 2, 3, 1])?)?.maximum(&zero)?;
            let mut x = max_pool(&x, &lowest)?;
            for (convs, shortcut) in &blocks {
                let y = convs[0].apply(&x)?.maximum(&zero)?;
                let y = convs[1].apply(&y)?.maximum(&zero)?;
                let y = convs[2].apply(&y)?;
                let shortcut = shortcut.as_ref().map_or_else(|| Ok(x.clone()), |conv| conv.apply(&x))?;
                x = y.add(&shortcut)?.maximum(&zero)?;
            }
            Ok(vec![bias.addmm(&x.mean(&[1, 2], false)?, &weight, 1.0, 1.0)?])
        })
        .unwrap()
    }
}

/// 3x3, stride 2, one row and column of padding, over (B, H, W, C).
fn max_pool(x: &Array, lowest: &Array) -> Result<Array> {
    let x = x.pad(&[1, 2], &[1, 1], &[1, 1], lowest, PadMode::Constant)?;
    let [batch, height, width, channels] = *x.shape() else { unreachable!("of rank 4") };
    let mut largest: Option<Array> = None;
    for (row, column) in (0..9).map(|i| (i / 3, i % 3)) {
        let (rows, columns) = ((height - 3) / 2 * 2 + row + 1, (width - 3) / 2 * 2 + column + 1);
        let tap = x.slice(&[0, row, column, 0], &[batch, rows, columns, channels], &[1, 2, 2, 1])?;
        largest = Some(match largest {
            Some(so_far) => so_far.maximum(&tap)?,
            None => tap,
        });
    }
    Ok(largest.unwrap_or(x))
}

impl Onnx {
    fn conv(&mut self, conv: &Conv, x: ValueId) -> ValueId {
        let weight = self.weight(&conv.weight);
        let (stride, pad) = (conv.stride as i64, (conv.weight.dims[2] / 2) as i64);
        let node = self.b.node("Conv", &[Some(x), Some(weight)]);
        let y = node.attr("strides", vec![stride; 2]).attr("pads", vec![pad; 4]).output();
        let rest = [&conv.scale, &conv.bias, &conv.mean, &conv.variance].map(|w| self.weight(w));
        let inputs: Vec<_> = [y].into_iter().chain(rest).map(Some).collect();
        self.b.node("BatchNormalization", &inputs).attr("epsilon", EPSILON).output()
    }
}

struct MlxConv {
    /// (O, K, K, C).
    weight: Array,
    bias: Array,
    stride: i32,
    padding: i32,
}

impl MlxConv {
    fn new(conv: &Conv, precision: Precision) -> Self {
        let [outputs, inputs, size, _] = conv.weight.dims[..] else { unreachable!("of rank 4") };
        let factors: Vec<f32> =
            (0..outputs).map(|o| conv.scale.values[o] / (conv.variance.values[o] + EPSILON).sqrt()).collect();
        let taps = size * size;
        let mut folded = Vec::with_capacity(conv.weight.values.len());
        for (o, tap, i) in
            (0..outputs * taps * inputs).map(|n| (n / inputs / taps, n / inputs % taps, n % inputs))
        {
            folded.push(conv.weight.values[(o * inputs + i) * taps + tap] * factors[o]);
        }
        let bias = (0..outputs).map(|o| conv.bias.values[o] - conv.mean.values[o] * factors[o]).collect();
        Self {
            weight: Weight { dims: vec![outputs, size, size, inputs], values: folded }.array(precision),
            bias: Weight { dims: vec![outputs], values: bias }.array(precision),
            stride: conv.stride as i32,
            padding: (size / 2) as i32,
        }
    }

    fn apply(&self, x: &Array) -> Result<Array> {
        x.conv2d(&self.weight, [self.stride; 2], [self.padding; 2], [1, 1], 1)?.add(&self.bias)
    }
}
