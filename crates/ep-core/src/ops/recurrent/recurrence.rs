//! `RNN`, `GRU` and `LSTM`: the loop over time, unrolled, in float32.
//!
//! Directions, sequence lengths, initial states, peepholes, clip, `linear_before_reset` and `layout` are all here; the
//! activations may be `Relu`, `Sigmoid` and `Tanh`.

use mlx_safe::{Array, Dtype, stack, where_, zeros};
use onnx_graph::ElementType;

use super::cell::{Activation, Cell, Kind, State, gather};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

pub(crate) struct Recurrence {
    kind: Kind,
    /// Whether each direction runs backwards.
    directions: Vec<bool>,
    activations: Vec<Activation>,
    clip: Option<f32>,
    /// Layout 1: the batch is the first axis of inputs, outputs and states.
    batch_first: bool,
}

const LENGTHS: usize = 4;
const HIDDEN: usize = 5;
const CELL: usize = 6;
const PEEPHOLES: usize = 7;

impl Op for Recurrence {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("GRU"), OpKey::onnx("LSTM"), OpKey::onnx("RNN")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let kind = match node.op_type() {
            "GRU" => Kind::Gru { linear_before_reset: node.flag_or("linear_before_reset", false)? },
            "LSTM" => Kind::Lstm,
            _ => Kind::Rnn,
        };
        let element = node.expect_float(0)?;
        for i in (1..node.input_count()).filter(|&i| node.has_input(i)) {
            node.expect_type(i, |e| e == if i == LENGTHS { ElementType::Int32 } else { element })?;
        }
        if node.flag_or("input_forget", false)? {
            return Err(Decline::attribute("input_forget", 1));
        }
        // The weights have the hidden size, and the activations here no parameters.
        node.ignore(&["hidden_size", "activation_alpha", "activation_beta"]);
        let directions = match node.string_or("direction", "forward")? {
            "forward" => vec![false],
            "reverse" => vec![true],
            "bidirectional" => vec![false, true],
            other => return Err(Decline::attribute("direction", other)),
        };
        Ok(Self {
            kind,
            activations: activations(node, kind, directions.len())?,
            directions,
            clip: node.float("clip")?,
            batch_first: node.flag_or("layout", false)?,
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the loop over time is unrolled")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let dtype = cx.array(0)?.dtype();
        let sizes = self.sizes(cx)?;
        let lengths = self.lengths(cx, &sizes)?;
        let mut x = cx.array(0)?.astype(Dtype::Float32)?;
        if self.batch_first {
            x = x.swapaxes(0, 1)?;
        }
        let (mut rows, mut hidden, mut cell) = (Vec::new(), Vec::new(), Vec::new());
        for direction in 0..self.directions.len() {
            let (y, last) = self.run(cx, direction, &x, &sizes, &lengths)?;
            rows.push(y);
            hidden.push(last.hidden);
            cell.extend(last.cell);
        }
        let y = stack(&rows, 1)?;
        let y = if self.batch_first { y.transpose(&[2, 0, 1, 3])? } else { y };
        cx.emit(0, y.astype(dtype)?)?;
        for (i, states) in [(1, hidden), (2, cell)] {
            if cx.wants(i) {
                let states = gather(&states)?;
                let states = if self.batch_first { states.swapaxes(0, 1)? } else { states };
                cx.emit(i, states.astype(dtype)?)?;
            }
        }
        Ok(())
    }
}

/// The activations of all directions, one after another.
fn activations(node: &NodeRef<'_>, kind: Kind, directions: usize) -> Result<Vec<Activation>, Decline> {
    let names = node.strings("activations")?.unwrap_or_default();
    if names.is_empty() {
        return Ok(kind.activations().repeat(directions));
    }
    if names.len() != kind.activations().len() * directions {
        return Err(Decline::invalid("the activations are not as many as the gates ask for"));
    }
    names
        .into_iter()
        .map(|name| Activation::parse(name).ok_or_else(|| Decline::attribute("activations", name)))
        .collect()
}

/// Which sequences have a step `t`, as (B, 1).
fn alive(lengths: &[i64], t: usize) -> mlx_safe::Result<Array> {
    let alive: Vec<bool> = lengths.iter().map(|&n| (t as i64) < n).collect();
    Array::from_slice(&alive, &[lengths.len() as i32, 1])
}

struct Sizes {
    time: i32,
    batch: i32,
    hidden: i32,
}

impl Recurrence {
    /// Reads the sizes and checks every input against them.
    fn sizes(&self, cx: &Lowering<'_>) -> Result<Sizes, LowerError> {
        let (x, recurrent) = (cx.shape(0)?, cx.shape(2)?);
        let (&[first, second, input], &[_, _, hidden]) = (x.as_slice(), recurrent.as_slice()) else {
            return Err(LowerError::invalid(format!("input {x:?} and recurrent weights {recurrent:?}")));
        };
        let (time, batch) = if self.batch_first { (second, first) } else { (first, second) };
        let (d, rows) = (self.directions.len() as i32, self.kind.gates() * hidden);
        let state = if self.batch_first { vec![batch, d, hidden] } else { vec![d, batch, hidden] };
        let wanted = [
            (1, vec![d, rows, input]),
            (2, vec![d, rows, hidden]),
            (3, vec![d, 2 * rows]),
            (LENGTHS, vec![batch]),
            (HIDDEN, state.clone()),
            (CELL, state),
            (PEEPHOLES, vec![d, 3 * hidden]),
        ];
        for (i, wanted) in wanted {
            if cx.has_input(i) && cx.shape(i)? != wanted {
                let detail = format!("input {i} is {:?}, not {wanted:?}", cx.shape(i)?);
                return Err(LowerError::invalid(detail));
            }
        }
        Ok(Sizes { time, batch, hidden })
    }

    /// The length of each sequence of the batch, if one is shorter than the input.
    fn lengths(&self, cx: &Lowering<'_>, sizes: &Sizes) -> Result<Option<Vec<i64>>, LowerError> {
        let Some(lengths) = cx.optional_ints(LENGTHS)? else { return Ok(None) };
        let time = i64::from(sizes.time);
        if let Some(bad) = lengths.iter().find(|n| !(0..=time).contains(n)) {
            return Err(LowerError::invalid(format!("a sequence of length {bad} in {time} steps")));
        }
        Ok(lengths.iter().any(|&n| n < time).then_some(lengths))
    }

    /// Part `direction` of an optional input (D, ...), in float32.
    fn part(&self, cx: &Lowering<'_>, i: usize, direction: usize) -> Result<Option<Array>, LowerError> {
        let Some(x) = cx.optional_array(i)? else { return Ok(None) };
        let axis = if self.batch_first && matches!(i, HIDDEN | CELL) { 1 } else { 0 };
        let index = Array::scalar(direction as u32);
        Ok(Some(x.take(&index, axis)?.astype(Dtype::Float32)?))
    }

    /// Runs one direction over `x` (T, B, I): all hidden states (T, B, H), and the last.
    fn run(
        &self,
        cx: &Lowering<'_>,
        direction: usize,
        x: &Array,
        sizes: &Sizes,
        lengths: &Option<Vec<i64>>,
    ) -> Result<(Array, State), LowerError> {
        let &Sizes { time, batch, hidden } = sizes;
        let zero_state = zeros(&[batch, hidden], Dtype::Float32)?;
        let initial = |i| -> Result<Array, LowerError> {
            // A sequence of no steps ends in zeros, whatever it began with.
            Ok(match (self.part(cx, i, direction)?, lengths) {
                (Some(given), Some(lengths)) => where_(&alive(lengths, 0)?, &given, &zero_state)?,
                (Some(given), None) if time > 0 => given,
                _ => zero_state.clone(),
            })
        };
        let mut state = State {
            hidden: initial(HIDDEN)?,
            cell: (self.kind == Kind::Lstm).then(|| initial(CELL)).transpose()?,
        };
        if time == 0 || batch == 0 {
            return Ok((zeros(&[time, batch, hidden], Dtype::Float32)?, state));
        }
        let rows = self.kind.gates() * hidden;
        let missing = || LowerError::Bug("weights are missing".into());
        let weights = self.part(cx, 1, direction)?.ok_or_else(missing)?;
        let biases = match self.part(cx, 3, direction)? {
            Some(both) => both.split(&[rows], 0)?,
            None => vec![zeros(&[rows], Dtype::Float32)?; 2],
        };
        let steps = x.matmul(&weights.swapaxes(0, 1)?)?.add(&biases[0])?;
        let count = self.kind.activations().len();
        let cell = Cell {
            kind: self.kind,
            activations: &self.activations[direction * count..(direction + 1) * count],
            clip: self.clip,
            recurrent: self.part(cx, 2, direction)?.ok_or_else(missing)?.swapaxes(0, 1)?,
            bias: biases[1].clone(),
            peepholes: match self.part(cx, PEEPHOLES, direction)? {
                Some(all) => Some(all.split(&[hidden, 2 * hidden], 0)?),
                None => None,
            },
        };
        let steps = steps.split(&(1..time).collect::<Vec<_>>(), 0)?;
        let mut rows = vec![zero_state.clone(); steps.len()];
        let order: Vec<usize> = if self.directions[direction] {
            (0..steps.len()).rev().collect()
        } else {
            (0..steps.len()).collect()
        };
        for t in order {
            let next = cell.step(&steps[t].squeeze(&[0])?, &state)?;
            (rows[t], state) = match lengths {
                None => (next.hidden.clone(), next),
                Some(lengths) => {
                    // A sequence that is over keeps its state and gives zeros.
                    let alive = alive(lengths, t)?;
                    let row = where_(&alive, &next.hidden, &zero_state)?;
                    let cell = match (&next.cell, &state.cell) {
                        (Some(new), Some(old)) => Some(where_(&alive, new, old)?),
                        _ => None,
                    };
                    (row, State { hidden: where_(&alive, &next.hidden, &state.hidden)?, cell })
                }
            };
        }
        Ok((stack(&rows, 0)?, state))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    const T: usize = 4;
    const B: usize = 3;
    const I: usize = 5;
    const H: usize = 2;

    fn gates(op: &str) -> usize {
        match op {
            "RNN" => 1,
            "GRU" => 3,
            _ => 4,
        }
    }

    /// Input and weights; the next input is the bias.
    fn bare(op: &'static str, directions: usize) -> Case {
        let rows = gates(op) * H;
        let weights = |columns| uniform(E::Float, [directions, rows, columns], -0.9, 0.9);
        let outputs = if op == "LSTM" { 3 } else { 2 };
        let x = case(op, 14).x(f32s([T, B, I])).c(weights(I)).c(weights(H));
        let x = x.attr("hidden_size", H as i64).outputs(outputs);
        if directions == 2 { x.attr("direction", "bidirectional") } else { x }
    }

    fn cell(op: &'static str, directions: usize) -> Case {
        bare(op, directions).c(uniform(E::Float, [directions, 2 * gates(op) * H], -0.5, 0.5))
    }

    fn lengths(values: [f64; B]) -> onnx_graph::Tensor<'static> {
        tensor(E::Int32, [B], &values)
    }

    fn state(directions: usize) -> onnx_graph::Tensor<'static> {
        uniform(E::Float, [directions, B, H], -1.0, 1.0)
    }

    fn half(op: &'static str) -> Case {
        let rows = gates(op) * H;
        let weights = |columns| uniform(E::Float16, [1, rows, columns], -0.9, 0.9);
        case(op, 14)
            .x(random(E::Float16, [T, B, I]))
            .c(weights(I))
            .c(weights(H))
            .attr("hidden_size", H as i64)
    }

    op_cases! {
        rnn: cell("RNN", 1) => close(tol::F32_SUM);
        rnn_without_bias: bare("RNN", 1) => close(tol::F32_SUM);
        rnn_both_ways: cell("RNN", 2).x(lengths([4.0, 2.0, 1.0])).x(state(2)) => close(tol::F32_SUM);
        rnn_relu: cell("RNN", 1).attr("activations", vec!["Relu"]) => close(tol::F32_SUM);
        rnn_affine: cell("RNN", 1).attr("activations", vec!["Affine"]) => declines();
        gru: cell("GRU", 1) => close(tol::F32_SUM);
        gru_without_bias: bare("GRU", 1) => close(tol::F32_SUM);
        gru_linear_before_reset: cell("GRU", 1).attr("linear_before_reset", 1) => close(tol::F32_SUM);
        gru_reverse: cell("GRU", 1).x(lengths([4.0, 2.0, 1.0])).c(state(1)).attr("direction", "reverse") => close(tol::F32_SUM);
        gru_both_ways: cell("GRU", 2).c(lengths([1.0, 4.0, 2.0])).x(state(2)).attr("linear_before_reset", 1) => close(tol::F32_SUM);
        gru_clip: cell("GRU", 1).attr("clip", 0.4_f32) => close(tol::F32_SUM);
        gru_f16: half("GRU").outputs(2) => close(tol::F16);
        lstm: cell("LSTM", 1) => close(tol::F32_SUM);
        lstm_opset_7: case("LSTM", 7).x(f32s([T, B, I])).c(f32s([1, 8, I])).c(f32s([1, 8, H])).attr("hidden_size", 2).outputs(3) => close(tol::F32_SUM);
        lstm_states: cell("LSTM", 1).none().x(state(1)).x(state(1)) => close(tol::F32_SUM);
        lstm_peepholes: cell("LSTM", 1).none().none().none().c(f32s([1, 3 * H])) => close(tol::F32_SUM);
        lstm_reverse: cell("LSTM", 1).x(lengths([4.0, 2.0, 1.0])).x(state(1)).x(state(1)).attr("direction", "reverse") => close(tol::F32_SUM);
        lstm_both_ways: cell("LSTM", 2).x(lengths([2.0, 4.0, 3.0])).x(state(2)).x(state(2)).c(f32s([2, 3 * H])) => close(tol::F32_SUM);
        lstm_clip: cell("LSTM", 1).attr("clip", 0.4_f32) => close(tol::F32_SUM);
        lstm_length_0: cell("LSTM", 1).x(lengths([4.0, 0.0, 2.0])) => close(tol::F32_SUM);
        lstm_length_0_with_states: cell("LSTM", 1).x(lengths([4.0, 0.0, 2.0])).x(state(1)).x(state(1)) => close(tol::F32_SUM);
        gru_length_0_with_state: cell("GRU", 1).x(lengths([4.0, 0.0, 2.0])).x(state(1)) => close(tol::F32_SUM);
        rnn_length_0_with_state: cell("RNN", 1).x(lengths([4.0, 0.0, 2.0])).x(state(1)) => close(tol::F32_SUM);
        lstm_f16: half("LSTM").outputs(3) => close(tol::F16);
        lstm_input_forget: cell("LSTM", 1).attr("input_forget", 1) => declines();
        too_long: cell("LSTM", 1).x(lengths([5.0, 2.0, 3.0])) => fails("length 5");
        no_steps_with_state: case("RNN", 14).x(f32s([0, B, I])).c(f32s([1, H, I])).c(f32s([1, H, H])).none().none().x(state(1)).attr("hidden_size", 2).outputs(2) => exact();
        no_steps: case("RNN", 14).x(f32s([0, B, I])).c(f32s([1, H, I])).c(f32s([1, H, H])).attr("hidden_size", 2).outputs(2) => exact();
    }

    /// ONNX Runtime's CPU provider has no layout 1: its layout 0 is the reference, with the first two axes exchanged.
    #[test]
    fn batch_first() {
        use std::collections::BTreeMap;

        use onnx_graph::{Graph, GraphBuilder, Tensor, TensorType, ValueType, write_bytes};

        fn swapped(tensor: &Tensor<'_>) -> Tensor<'static> {
            let &[a, b, ..] = tensor.dims() else { panic!("rank 2 or more") };
            let data: Vec<&[u8]> = tensor.data().chunks(tensor.data().len() / (a * b)).collect();
            let data = (0..a * b).flat_map(|i| data[i % a * b + i / a].to_vec()).collect::<Vec<_>>();
            let mut dims = tensor.dims().to_vec();
            dims.swap(0, 1);
            Tensor::new(tensor.element(), dims, data).expect("as many values")
        }

        fn graph(inputs: &[(String, Tensor<'static>)], layout: i64) -> Graph<'static> {
            let mut b = GraphBuilder::new("batch_first", 14);
            let mut values = Vec::new();
            for (name, tensor) in inputs {
                let dims: Vec<_> = tensor.dims().iter().map(|&d| d.into()).collect();
                values.push(Some(b.input(name, tensor.element(), &dims)));
            }
            values.splice(3..3, [None, None]);
            let node = b.node("LSTM", &values).attr("hidden_size", H as i64).attr("layout", layout);
            let outputs = node.attr("direction", "bidirectional").outputs_as(&["y", "h", "c"]);
            outputs.iter().flatten().for_each(|&output| b.output(output));
            let mut graph = b.build().expect("a well-formed graph");
            for output in outputs.iter().flatten() {
                let ty = TensorType { element: E::Float, shape: None };
                graph.set_type(*output, ValueType::Tensor(ty));
            }
            graph
        }

        let weights = [f32s([2, 4 * H, I]), f32s([2, 4 * H, H])];
        let time_first = [f32s([T, B, I]), weights[0].clone(), weights[1].clone(), state(2), state(2)];
        let names = |tensors: Vec<Tensor<'static>>| -> Vec<(String, Tensor<'static>)> {
            tensors.into_iter().enumerate().map(|(i, t)| (format!("x{i}"), t)).collect()
        };
        let time_first = names(time_first.to_vec());
        let opsets = BTreeMap::from([(String::new(), 14)]);
        let wanted =
            run_on_ort_cpu(&write_bytes(&graph(&time_first, 0), &opsets, 8), &time_first).expect("a run");

        let mut batch_first = time_first.clone();
        for i in [0, 3, 4] {
            batch_first[i].1 = swapped(&batch_first[i].1);
        }
        let tensors: Vec<&Tensor<'_>> = batch_first.iter().map(|(_, t)| t).collect();
        let got = run_ours(&graph(&batch_first, 1), &tensors).expect("a run");
        for (index, wanted) in wanted.iter().enumerate() {
            // Y goes from (T, D, B, H) to (B, T, D, H).
            let by_step: Vec<f64> = match index {
                0 => {
                    let w = wanted.floats().expect("floats");
                    let at = |b: usize, rest: usize| w[(rest / H * B + b) * H + rest % H];
                    (0..B)
                        .flat_map(|b| (0..T * 2 * H).map(move |rest| (b, rest)))
                        .map(|(b, r)| at(b, r))
                        .collect()
                }
                _ => swapped(wanted).floats().expect("floats"),
            };
            let got = got[index].floats().expect("floats");
            assert!(by_step.iter().zip(&got).all(|(w, g)| (w - g).abs() < 1e-5), "output {index}");
        }
    }
}
