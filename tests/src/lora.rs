//! The training step of the example `lora` of kernels-metal as one ONNX graph: forward, backward and Adam, for the same
//! weights, adapters and batch. Attention is this project's operators, or spelled out as exporters do.

use onnx_graph::{ElementType, Graph, GraphBuilder, Tensor, ValueId};
use ort::session::{Session, SessionInputValue};

const LENGTH: usize = 32;
const WIDTH: usize = 32;
const HEADS: usize = 2;
const LAYERS: usize = 2;
/// Weights of a layer: q, k, v, o (D, D), up (D, 4D), down (4D, D).
const WEIGHTS: usize = 6;
/// Adapters of a layer: A (D, R) and B (R, D) for q, then for v.
const ADAPTERS: usize = 4;
const RATE: f32 = 2e-2;

/// A tensor of floats.
pub struct Floats {
    /// Its sizes.
    pub dims: Vec<usize>,
    /// Its elements in order.
    pub data: Vec<f32>,
}

/// What the example starts its second training from.
pub struct Start {
    /// The embedding (C, D), positions (T, D), and the layers' weights.
    pub weights: Vec<Floats>,
    /// The adapters, layer after layer.
    pub adapters: Vec<Floats>,
    /// Tokens, T for each row of the batch.
    pub tokens: Vec<i64>,
    /// The tokens that follow them.
    pub next: Vec<i64>,
}

/// How attention and its pullback are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// `ScaledDotProductAttention` and `ScaledDotProductAttentionGrad` of ai.ortmlx.
    Operators,
    /// Products, a mask and a softmax.
    Spelled,
}

/// One step of training as a graph of opset 17. Inputs are the adapters p0, p1 .., their means m0 .. and squares s0 ..,
/// `step`, counted from 1, and `tokens`; outputs `loss`, and the next of the former under the names with `_next`.
///
/// # Errors
/// If sizes do not fit.
pub fn step(start: &Start, attention: Attention) -> Result<Graph<'static>, onnx_graph::Error> {
    let mut b = GraphBuilder::new("lora", 17);
    let constant = |b: &mut GraphBuilder<'static>, name: &str, floats: &Floats| {
        let data: Vec<u8> = floats.data.iter().flat_map(|v| v.to_le_bytes()).collect();
        Ok::<_, onnx_graph::Error>(
            b.initializer(name, Tensor::new(ElementType::Float, floats.dims.clone(), data)?),
        )
    };
    let mut weights = Vec::new();
    for (i, floats) in start.weights.iter().enumerate() {
        weights.push(constant(&mut b, &format!("w{i}"), floats)?);
    }
    let state = |b: &mut GraphBuilder<'static>, kind: &str| {
        let inputs = start.adapters.iter().enumerate().map(|(i, floats)| {
            let dims: Vec<_> = floats.dims.iter().map(|&n| n.into()).collect();
            b.input(&format!("{kind}{i}"), ElementType::Float, &dims)
        });
        inputs.collect::<Vec<ValueId>>()
    };
    let (adapters, means, squares) = (state(&mut b, "p"), state(&mut b, "m"), state(&mut b, "s"));
    let number = b.input("step", ElementType::Float, &[]);
    let rows = start.tokens.len() / LENGTH;
    let tokens = b.input("tokens", ElementType::Int64, &[rows.into(), LENGTH.into()]);
    let characters = start.weights.first().map_or(0, |embedding| embedding.dims[0]);
    let hot = |&token: &i64| (0..characters).map(move |c| f32::from(u8::from(c as i64 == token)));
    let target =
        Floats { dims: vec![rows, LENGTH, characters], data: start.next.iter().flat_map(hot).collect() };
    let target = constant(&mut b, "target", &target)?;
    let visible = (0..LENGTH * LENGTH).map(|i| if i % LENGTH > i / LENGTH { f32::NEG_INFINITY } else { 0.0 });
    let mask = constant(&mut b, "mask", &Floats { dims: vec![LENGTH, LENGTH], data: visible.collect() })?;

    let mut net = Net { b, attention, mask, rows: rows as i64 };
    let (loss, gradients) = net.loss(&weights, &adapters, tokens, target, (rows * LENGTH) as f32);
    let mut outputs = vec![net.named("Identity", &[loss], "loss")];
    for (i, &gradient) in gradients.iter().enumerate() {
        outputs.extend(net.adam(i, [adapters[i], means[i], squares[i]], gradient, number));
    }
    outputs.into_iter().for_each(|output| net.b.output(output));
    net.b.build()
}

/// Runs `steps` steps. Returns the losses before each.
///
/// # Errors
/// What ONNX Runtime says.
pub fn train(session: &mut Session, start: &Start, steps: usize) -> ort::Result<Vec<f32>> {
    let values = |kind: &'static str, zero: bool| {
        start.adapters.iter().enumerate().map(move |(i, floats)| {
            let data = if zero { vec![0.0; floats.data.len()] } else { floats.data.clone() };
            (format!("{kind}{i}"), floats.dims.clone(), data)
        })
    };
    let mut state: Vec<(String, Vec<usize>, Vec<f32>)> =
        values("p", false).chain(values("m", true)).chain(values("s", true)).collect();
    let mut losses = Vec::new();
    for step in 1..=steps {
        let mut inputs: Vec<(String, SessionInputValue<'_>)> = Vec::new();
        for (name, dims, data) in &state {
            inputs.push((name.clone(), ort::value::Tensor::from_array((dims.clone(), data.clone()))?.into()));
        }
        let number = ort::value::Tensor::from_array((Vec::<usize>::new(), vec![step as f32]))?;
        inputs.push(("step".to_owned(), number.into()));
        let rows = start.tokens.len() / LENGTH;
        let tokens = ort::value::Tensor::from_array(([rows, LENGTH], start.tokens.clone()))?;
        inputs.push(("tokens".to_owned(), tokens.into()));
        let outputs = session.run(inputs)?;
        losses.push(outputs["loss"].try_extract_tensor::<f32>()?.1[0]);
        for (name, _, data) in &mut state {
            *data = outputs[format!("{name}_next").as_str()].try_extract_tensor::<f32>()?.1.to_vec();
        }
    }
    Ok(losses)
}

/// What a layer remembers for its gradient.
struct Layer {
    x: ValueId,
    h: ValueId,
    q: ValueId,
    k: ValueId,
    v: ValueId,
    p: Option<ValueId>,
    middle: ValueId,
    up: ValueId,
    /// h A of the adapters of q and v.
    inner: [ValueId; 2],
}

/// Writes the network.
struct Net {
    b: GraphBuilder<'static>,
    attention: Attention,
    mask: ValueId,
    rows: i64,
}

impl Net {
    fn op(&mut self, op: &str, inputs: &[ValueId]) -> ValueId {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        self.b.node(op, &inputs).output()
    }

    fn named(&mut self, op: &str, inputs: &[ValueId], name: &str) -> ValueId {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        self.b.node(op, &inputs).output_as(name)
    }

    fn constant(&mut self, tensor: Tensor<'static>) -> ValueId {
        self.b.node("Constant", &[]).attr("value", tensor).output()
    }

    fn times(&mut self, value: ValueId, by: f32) -> ValueId {
        let by = self.constant(Tensor::scalar(by));
        self.op("Mul", &[value, by])
    }

    fn plus(&mut self, value: ValueId, more: f32) -> ValueId {
        let more = self.constant(Tensor::scalar(more));
        self.op("Add", &[value, more])
    }

    fn transposed(&mut self, value: ValueId, perm: &[i64]) -> ValueId {
        self.b.node("Transpose", &[Some(value)]).attr("perm", perm.to_vec()).output()
    }

    fn reshaped(&mut self, value: ValueId, dims: &[i64]) -> ValueId {
        let dims = self.constant(Tensor::from_ints(dims));
        self.op("Reshape", &[value, dims])
    }

    /// The sum of a^T b over the batch: (B, T, D) and (B, T, E) to (D, E).
    fn outer(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let a = self.transposed(a, &[0, 2, 1]);
        let products = self.op("MatMul", &[a, b]);
        let axes = self.constant(Tensor::from_ints(&[0]));
        self.b.node("ReduceSum", &[Some(products), Some(axes)]).attr("keepdims", 0i64).output()
    }

    /// x W^T.
    fn back(&mut self, x: ValueId, w: ValueId) -> ValueId {
        let w = self.transposed(w, &[1, 0]);
        self.op("MatMul", &[x, w])
    }

    fn mean(&mut self, x: ValueId) -> ValueId {
        self.b.node("ReduceMean", &[Some(x)]).attr("axes", vec![-1i64]).output()
    }

    /// 1 / rms(x), and x times it.
    fn normed(&mut self, x: ValueId) -> [ValueId; 2] {
        let square = self.op("Mul", &[x, x]);
        let mean = self.mean(square);
        let mean = self.plus(mean, 1e-5);
        let root = self.op("Sqrt", &[mean]);
        let scale = self.op("Reciprocal", &[root]);
        [scale, self.op("Mul", &[x, scale])]
    }

    /// The derivative by x of a loss whose derivative by x / rms(x) is `dy`: (dy - y mean(y dy)) / rms(x).
    fn normed_back(&mut self, x: ValueId, dy: ValueId) -> ValueId {
        let [scale, y] = self.normed(x);
        let product = self.op("Mul", &[y, dy]);
        let mean = self.mean(product);
        let share = self.op("Mul", &[y, mean]);
        let rest = self.op("Sub", &[dy, share]);
        self.op("Mul", &[rest, scale])
    }

    /// (B, T, D) to (B, H, T, D / H).
    fn heads(&mut self, x: ValueId) -> ValueId {
        let x = self.reshaped(x, &[self.rows, LENGTH as i64, HEADS as i64, (WIDTH / HEADS) as i64]);
        self.transposed(x, &[0, 2, 1, 3])
    }

    fn merged(&mut self, x: ValueId) -> ValueId {
        let x = self.transposed(x, &[0, 2, 1, 3]);
        self.reshaped(x, &[self.rows, LENGTH as i64, WIDTH as i64])
    }

    fn scale() -> f32 {
        ((WIDTH / HEADS) as f32).sqrt().recip()
    }

    /// The mean cross entropy, and its derivatives by the adapters.
    fn loss(
        &mut self,
        weights: &[ValueId],
        adapters: &[ValueId],
        tokens: ValueId,
        target: ValueId,
        count: f32,
    ) -> (ValueId, Vec<ValueId>) {
        let embedded = self.op("Gather", &[weights[0], tokens]);
        let mut x = self.op("Add", &[embedded, weights[1]]);
        let of_layer = |layer: usize| {
            let weights = &weights[2 + layer * WEIGHTS..][..WEIGHTS];
            (weights, &adapters[layer * ADAPTERS..][..ADAPTERS])
        };
        let mut layers = Vec::new();
        for layer in 0..LAYERS {
            let (weights, adapters) = of_layer(layer);
            let (remembered, next) = self.layer(x, weights, adapters);
            layers.push(remembered);
            x = next;
        }
        let [_, last] = self.normed(x);
        let logits = self.back(last, weights[0]);
        let log = self.b.node("LogSoftmax", &[Some(logits)]).attr("axis", -1i64).output();
        let hit = self.op("Mul", &[log, target]);
        let sum = self.b.node("ReduceSum", &[Some(hit)]).attr("keepdims", 0i64).output();
        let loss = self.times(sum, -1.0 / count);

        let p = self.b.node("Softmax", &[Some(logits)]).attr("axis", -1i64).output();
        let d = self.op("Sub", &[p, target]);
        let d = self.times(d, 1.0 / count);
        let d = self.op("MatMul", &[d, weights[0]]);
        let mut d = self.normed_back(x, d);
        let mut gradients = Vec::new();
        for (layer, remembered) in layers.iter().enumerate().rev() {
            let (weights, adapters) = of_layer(layer);
            let (of_adapters, before) = self.layer_back(remembered, d, weights, adapters);
            gradients.splice(0..0, of_adapters);
            d = before;
        }
        (loss, gradients)
    }

    fn layer(&mut self, x: ValueId, w: &[ValueId], adapters: &[ValueId]) -> (Layer, ValueId) {
        let [_, h] = self.normed(x);
        let adapted = |net: &mut Self, w: ValueId, adapter: &[ValueId]| {
            let (whole, inner) = (net.op("MatMul", &[h, w]), net.op("MatMul", &[h, adapter[0]]));
            let small = net.op("MatMul", &[inner, adapter[1]]);
            (net.op("Add", &[whole, small]), inner)
        };
        let ((q, q_inner), (v, v_inner)) =
            (adapted(self, w[0], &adapters[..2]), adapted(self, w[2], &adapters[2..]));
        let k = self.op("MatMul", &[h, w[1]]);
        let [q, k, v] = [q, k, v].map(|value| self.heads(value));
        let (p, y) = self.attend(q, k, v);
        let y = self.merged(y);
        let y = self.op("MatMul", &[y, w[3]]);
        let middle = self.op("Add", &[x, y]);
        let [_, g] = self.normed(middle);
        let up = self.op("MatMul", &[g, w[4]]);
        let sigmoid = self.op("Sigmoid", &[up]);
        let gated = self.op("Mul", &[up, sigmoid]);
        let down = self.op("MatMul", &[gated, w[5]]);
        let next = self.op("Add", &[middle, down]);
        (Layer { x, h, q, k, v, p, middle, up, inner: [q_inner, v_inner] }, next)
    }

    /// The derivatives by the adapters and by the layer's input, from that by its output.
    fn layer_back(
        &mut self,
        layer: &Layer,
        d: ValueId,
        w: &[ValueId],
        adapters: &[ValueId],
    ) -> (Vec<ValueId>, ValueId) {
        let gated = self.back(d, w[5]);
        // The derivative of u s is s + u s (1 - s).
        let sigmoid = self.op("Sigmoid", &[layer.up]);
        let value = self.op("Mul", &[layer.up, sigmoid]);
        let share = self.op("Mul", &[value, sigmoid]);
        let slope = self.op("Sub", &[value, share]);
        let slope = self.op("Add", &[sigmoid, slope]);
        let up = self.op("Mul", &[gated, slope]);
        let g = self.back(up, w[4]);
        let g = self.normed_back(layer.middle, g);
        let middle = self.op("Add", &[d, g]);
        let y = self.back(middle, w[3]);
        let dy = self.heads(y);
        let [q, k, v] = self.attend_back(layer, dy).map(|value| self.merged(value));
        let mut h = self.back(k, w[1]);
        let mut gradients = Vec::new();
        for (i, (d, w)) in [(q, w[0]), (v, w[2])].into_iter().enumerate() {
            let inner = self.back(d, adapters[2 * i + 1]);
            gradients.push(self.outer(layer.h, inner));
            gradients.push(self.outer(layer.inner[i], d));
            let (whole, small) = (self.back(d, w), self.back(inner, adapters[2 * i]));
            h = self.op("Add", &[h, whole]);
            h = self.op("Add", &[h, small]);
        }
        let x = self.normed_back(layer.x, h);
        (gradients, self.op("Add", &[middle, x]))
    }

    fn attend(&mut self, q: ValueId, k: ValueId, v: ValueId) -> (Option<ValueId>, ValueId) {
        if self.attention == Attention::Operators {
            let inputs = [q, k, v].map(Some);
            let node = self.b.node("ScaledDotProductAttention", &inputs).domain("ai.ortmlx", 1);
            return (None, node.attr("is_causal", 1i64).output());
        }
        let k = self.transposed(k, &[0, 1, 3, 2]);
        let scores = self.op("MatMul", &[q, k]);
        let scores = self.times(scores, Self::scale());
        let scores = self.op("Add", &[scores, self.mask]);
        let p = self.b.node("Softmax", &[Some(scores)]).attr("axis", -1i64).output();
        (Some(p), self.op("MatMul", &[p, v]))
    }

    fn attend_back(&mut self, layer: &Layer, dy: ValueId) -> [ValueId; 3] {
        let Layer { q, k, v, p, .. } = *layer;
        let Some(p) = p else {
            let inputs = [q, k, v, dy].map(Some);
            let node = self.b.node("ScaledDotProductAttentionGrad", &inputs).domain("ai.ortmlx", 1);
            return node.attr("is_causal", 1i64).outputs();
        };
        let turned = |net: &mut Self, value| net.transposed(value, &[0, 1, 3, 2]);
        let columns = turned(self, v);
        let dp = self.op("MatMul", &[dy, columns]);
        let weighted = self.op("Mul", &[dp, p]);
        let axes = self.constant(Tensor::from_ints(&[-1]));
        let sums = self.op("ReduceSum", &[weighted, axes]);
        let share = self.op("Mul", &[p, sums]);
        let ds = self.op("Sub", &[weighted, share]);
        let ds = self.times(ds, Self::scale());
        let (rows, columns) = (turned(self, ds), turned(self, p));
        [(ds, k), (rows, q), (columns, dy)].map(|(a, b)| self.op("MatMul", &[a, b]))
    }

    /// The next of an adapter, its mean and its square, under their names.
    fn adam(&mut self, i: usize, [p, mean, square]: [ValueId; 3], g: ValueId, step: ValueId) -> [ValueId; 3] {
        let mixed = |net: &mut Self, old, new, decay: f32, name: String| {
            let (old, new) = (net.times(old, decay), net.times(new, 1.0 - decay));
            net.named("Add", &[old, new], &name)
        };
        let gg = self.op("Mul", &[g, g]);
        let mean = mixed(self, mean, g, 0.9, format!("m{i}_next"));
        let square = mixed(self, square, gg, 0.999, format!("s{i}_next"));
        let corrected = |net: &mut Self, value, decay: f32| {
            let decay = net.constant(Tensor::scalar(decay));
            let power = net.op("Pow", &[decay, step]);
            let one = net.constant(Tensor::scalar(1.0));
            let share = net.op("Sub", &[one, power]);
            net.op("Div", &[value, share])
        };
        let (m, s) = (corrected(self, mean, 0.9), corrected(self, square, 0.999));
        let deviation = self.op("Sqrt", &[s]);
        let deviation = self.plus(deviation, 1e-8);
        let change = self.op("Div", &[m, deviation]);
        let change = self.times(change, RATE);
        [self.named("Sub", &[p, change], &format!("p{i}_next")), mean, square]
    }
}
