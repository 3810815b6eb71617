//! `Scan`: a body over the steps of its scan inputs, with states. Opset 8 has a batch of sequences, each with a length of
//! its own; from opset 9 on the axes of inputs and outputs are chosen.

use mlx_safe::{Array, concatenate, stack, zeros};
use onnx_graph::ElementType;

use super::body::{Body, declared_shape, expect_arity, expect_state};
use super::collect::{Assembly, evaluated, stacked};
use super::plan::ScanPlan;
use super::sweep::{Sequence, Sweep};
use super::track::Track;
use crate::compile::Compiler;
use crate::lowering::{Lowering, Value};
use crate::op::{AnyOp, BodyOp, OpKey, ShapeMode};
use crate::run::Run;
use crate::{Decline, LowerError, NodeRef, axes};

pub(crate) struct Scan {
    states: usize,
    inputs: Vec<Way>,
    outputs: Vec<Way>,
    /// The shape of each scan output of a step that never ran.
    rows: Vec<Vec<i32>>,
    /// Opset 8: the first input has lengths, and a batch of sequences is scanned one by one.
    batched: bool,
}

/// How a scan input or output lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    axis: i64,
    reverse: bool,
}

/// A scan with its body taken apart.
pub(crate) struct CompiledScan {
    form: Scan,
    sweep: Sweep,
    captured: Vec<usize>,
}

impl BodyOp for Scan {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Scan")];
    type Compiled = CompiledScan;

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let batched = node.version() < 9;
        let given = node.input_count() - usize::from(batched);
        let sequences = node.int("num_scan_inputs")?.and_then(|n| usize::try_from(n).ok());
        let sequences = sequences.filter(|n| (1..=given).contains(n));
        let sequences =
            sequences.ok_or_else(|| Decline::invalid("num_scan_inputs does not fit the inputs"))?;
        let states = given - sequences;
        let rows = node.output_count().checked_sub(states);
        let rows = rows.ok_or_else(|| Decline::invalid("there are more states than outputs"))?;
        let (inputs, outputs) = if batched {
            if node.has_input(0) {
                node.expect_type(0, |e| e == ElementType::Int64)?;
            }
            (ways(node, sequences, "directions", None)?, vec![Way { axis: 0, reverse: false }; rows])
        } else {
            (
                ways(node, sequences, "scan_input_directions", Some("scan_input_axes"))?,
                ways(node, rows, "scan_output_directions", Some("scan_output_axes"))?,
            )
        };
        let body = node.body("body")?;
        expect_arity(body, given, states + rows)?;
        for i in 0..states {
            expect_state(node, usize::from(batched) + i, body, i, i)?;
        }
        let rows = (states..states + rows).map(|i| declared_shape(body, i)).collect();
        Ok(Self { states, inputs, outputs, rows, batched })
    }

    fn compile(self, node: &NodeRef<'_>, compiler: &Compiler) -> Result<CompiledScan, LowerError> {
        let body = Body::compile(node, "body", compiler)?;
        let captured = body.captured.clone();
        let plan = ScanPlan::new(body, self.states, self.inputs.len());
        Ok(CompiledScan { sweep: Sweep::new(plan), form: self, captured })
    }
}

/// The axis and direction of each of `count` scan inputs or outputs.
fn ways(
    node: &NodeRef<'_>,
    count: usize,
    directions: &'static str,
    axes: Option<&'static str>,
) -> Result<Vec<Way>, Decline> {
    let list = |name: &str| -> Result<Vec<i64>, Decline> {
        let list = node.ints(name)?.unwrap_or_else(|| vec![0; count]);
        if list.len() == count {
            Ok(list)
        } else {
            Err(Decline::invalid(format!("{name} has not {count} entries")))
        }
    };
    let axes = axes.map_or_else(|| Ok(vec![0; count]), list)?;
    let directions = list(directions)?;
    if directions.iter().any(|d| !(0..=1).contains(d)) {
        return Err(Decline::invalid("a direction is neither 0 nor 1"));
    }
    Ok(axes.into_iter().zip(directions).map(|(axis, d)| Way { axis, reverse: d == 1 }).collect())
}

impl AnyOp for CompiledScan {
    fn has_bodies(&self) -> bool {
        true
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the sizes of the scan inputs decide how often the body runs")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let skip = usize::from(self.form.batched);
        let states: Vec<Value> =
            (0..self.form.states).map(|i| cx.input(skip + i).cloned()).collect::<Result<_, _>>()?;
        let outer: Vec<Value> =
            self.captured.iter().map(|&i| cx.input(i).cloned()).collect::<Result<_, _>>()?;
        let inputs = (0..self.form.inputs.len()).map(|i| cx.input(skip + self.form.states + i).cloned());
        let inputs: Vec<Value> = inputs.collect::<Result<_, _>>()?;
        if self.form.batched {
            self.batch(cx, &states, &inputs, &outer)
        } else {
            self.one(cx, states, &inputs, &outer)
        }
    }
}

impl CompiledScan {
    /// Opset 9 and later.
    fn one(
        &self,
        cx: &mut Lowering<'_>,
        states: Vec<Value>,
        inputs: &[Value],
        outer: &[Value],
    ) -> Result<(), LowerError> {
        let mut length = None;
        let mut sequences = Vec::with_capacity(inputs.len());
        for (value, way) in inputs.iter().zip(&self.form.inputs) {
            let shape = value.shape()?;
            let axis = axes::axis(way.axis, shape.len())?;
            agree(&mut length, shape[axis], "lengths")?;
            let value = match axis {
                0 => value.clone(),
                _ => Value::device(value.array()?.moveaxis(axis as i32, 0)?),
            };
            sequences.push(Sequence { value, reverse: way.reverse });
        }
        let length = length.unwrap_or(0);
        let (states, outputs) = self.scan(states, &sequences, outer, length, cx.run())?;
        let count = states.len();
        for (i, state) in states.into_iter().enumerate() {
            cx.emit_value(i, state)?;
        }
        for (i, output) in outputs.into_iter().enumerate() {
            if let Some(output) = output {
                cx.emit(count + i, output)?;
            } else if cx.wants(count + i) {
                let mut shape = self.form.rows[i].clone();
                shape.insert(axes::axis(self.form.outputs[i].axis, shape.len() + 1)?, 0);
                let none = zeros(&shape, cx.output_dtype(count + i)?)?;
                cx.emit(count + i, none)?;
            }
        }
        Ok(())
    }

    /// Opset 8: the first axis of everything is the batch, the second of scan inputs and outputs the step.
    fn batch(
        &self,
        cx: &mut Lowering<'_>,
        states: &[Value],
        inputs: &[Value],
        outer: &[Value],
    ) -> Result<(), LowerError> {
        let (mut batch, mut longest) = (None, None);
        for (value, least) in states.iter().map(|s| (s, 1)).chain(inputs.iter().map(|i| (i, 2))) {
            let shape = value.shape()?;
            if shape.len() < least {
                return Err(LowerError::invalid(format!("a scan input of shape {shape:?} has too few axes")));
            }
            agree(&mut batch, shape[0], "batch sizes")?;
            if least == 2 {
                agree(&mut longest, shape[1], "lengths")?;
            }
        }
        let (batch, longest) = (batch.unwrap_or(0), longest.unwrap_or(0));
        let lengths = cx.has_input(0).then(|| cx.ints(0)).transpose()?;
        let lengths = lengths.unwrap_or_else(|| vec![longest.into(); batch as usize]);
        if lengths.len() != batch as usize || lengths.iter().any(|&n| n < 0 || n > longest.into()) {
            return Err(LowerError::invalid(format!(
                "sequence_lens {lengths:?} do not fit a batch of {batch} sequences of {longest} steps"
            )));
        }
        let row = |value: &Value, b: usize| Track::of_sequence(value, b, 1, false)?.at(0);
        let mut finals: Vec<Vec<Value>> = vec![Vec::new(); states.len()];
        let mut rows: Vec<Vec<Array>> = vec![Vec::new(); self.form.outputs.len()];
        let before = cx.run().pending;
        for (b, &length) in lengths.iter().enumerate() {
            let length = length as i32;
            let states = states.iter().map(|state| row(state, b)).collect::<Result<_, _>>()?;
            let mut sequences = Vec::with_capacity(inputs.len());
            for (value, way) in inputs.iter().zip(&self.form.inputs) {
                let steps = row(value, b)?.array()?.slice_axis(0, ..length)?;
                sequences.push(Sequence { value: Value::device(steps), reverse: way.reverse });
            }
            let (states, outputs) = self.scan(states, &sequences, outer, length, cx.run())?;
            finals.iter_mut().zip(states).for_each(|(all, state)| all.push(state));
            for (i, output) in outputs.into_iter().enumerate() {
                let output = match output {
                    Some(output) if length == longest => output,
                    Some(output) => {
                        let mut rest = output.shape().to_vec();
                        rest[0] = longest - length;
                        concatenate(&[output.clone(), zeros(&rest, output.dtype())?], 0)?
                    }
                    None => {
                        let shape: Vec<i32> =
                            std::iter::once(longest).chain(self.form.rows[i].iter().copied()).collect();
                        zeros(&shape, cx.output_dtype(self.form.states + i)?)?
                    }
                };
                rows[i].push(output);
            }
            if cx.run().pending.is_enough(before) {
                let mut arrays: Vec<Array> = rows.iter().flatten().cloned().collect();
                finals.iter().for_each(|states| arrays.extend(evaluated(states)));
                cx.run().settle(&arrays)?;
                cx.run().pending = before;
            }
        }
        for (i, finals) in finals.iter().enumerate() {
            let all = if batch == 0 { states[i].array()?.clone() } else { stacked(finals)? };
            cx.emit(i, all)?;
        }
        for (i, rows) in rows.iter().enumerate() {
            let i_out = self.form.states + i;
            if !cx.wants(i_out) {
                continue;
            }
            let all = if batch == 0 {
                let shape: Vec<i32> =
                    [0, longest].into_iter().chain(self.form.rows[i].iter().copied()).collect();
                zeros(&shape, cx.output_dtype(i_out)?)?
            } else {
                stack(rows, 0)?
            };
            cx.emit(i_out, all)?;
        }
        Ok(())
    }

    /// The final states and the scan outputs, which are `None` where there was no step.
    fn scan(
        &self,
        states: Vec<Value>,
        sequences: &[Sequence],
        outer: &[Value],
        length: i32,
        run: &mut Run,
    ) -> Result<(Vec<Value>, Vec<Option<Array>>), LowerError> {
        let outputs = self.form.outputs.iter();
        let mut outputs: Vec<Assembly> =
            outputs.map(|way| Assembly::new(way.axis, way.reverse, length)).collect();
        let states = match length {
            0 => states,
            _ => self.sweep.run(states, sequences, outer, length as usize, &mut outputs, run)?,
        };
        Ok((states, outputs.into_iter().map(Assembly::finish).collect()))
    }
}

/// Keeps the first of sizes that must be equal.
fn agree(first: &mut Option<i32>, size: i32, what: &str) -> Result<(), LowerError> {
    let first = *first.get_or_insert(size);
    if first == size {
        return Ok(());
    }
    Err(LowerError::invalid(format!("the scan inputs have different {what}: {first} and {size}")))
}
