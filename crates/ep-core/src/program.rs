//! A cluster as a program: constants on the device, lowerings in order, inputs and outputs bound.

use mlx_safe::{Array, Dtype, eval};
use onnx_graph::{ElementType, Graph, NodeId, ValueId, topological_order};

use crate::engine::{OutputSink, TensorView};
use crate::host::{HostTensor, shape_i32};
use crate::lowering::{Check, Lowering, Value};
use crate::op::AnyOp;
use crate::{Error, LowerError, NodeRef, ShapeMode, dtype, registry};

/// Where a value lives while a program runs.
type Slot = usize;

struct Step {
    op: Box<dyn AnyOp>,
    op_type: String,
    node: String,
    inputs: Vec<Option<Slot>>,
    outputs: Vec<Option<Slot>>,
    /// The declared type of each output that is asked for.
    wanted: Vec<Option<Dtype>>,
    /// Slots that nothing reads after this step.
    frees: Vec<Slot>,
}

struct Input {
    slot: Slot,
    element: ElementType,
    name: String,
}

/// A cluster, ready to run on the worker's thread that made it.
pub(crate) struct Program {
    steps: Vec<Step>,
    constants: Vec<(Slot, Value)>,
    inputs: Vec<Input>,
    outputs: Vec<Slot>,
    slots: usize,
    /// The most bytes that one array may take.
    limit: usize,
}

impl Program {
    /// Claims every node of `graph` and uploads its constants. Call on the worker's thread.
    pub(crate) fn new(graph: &Graph<'_>, device: mlx_safe::DeviceType) -> Result<Self, Error> {
        let order = topological_order(graph)?;
        let mut steps = Vec::with_capacity(order.len());
        for id in order {
            steps.push(step(graph, id, device)?);
        }
        let outputs: Vec<Slot> = graph.outputs().iter().map(|v| v.0).collect();
        let mut constants = Vec::new();
        for (id, value) in graph.values() {
            let Some(tensor) = &value.constant else { continue };
            if !value.uses().is_empty() || outputs.contains(&id.0) {
                constants.push((id.0, constant(&value.name, tensor)?));
            }
        }
        let free = graph
            .inputs()
            .iter()
            .chain(&graph.outer_values().collect::<Vec<_>>())
            .copied()
            .collect::<Vec<_>>();
        let mut inputs: Vec<Input> = Vec::with_capacity(free.len());
        for id in free {
            inputs.push(input(graph, id)?);
        }
        plan_frees(&mut steps, &outputs, &constants);
        Ok(Self {
            steps,
            constants,
            inputs,
            outputs,
            slots: graph.value_count(),
            limit: mlx_safe::memory::limit()?,
        })
    }

    /// How the program may be compiled: as its most demanding step asks.
    pub(crate) fn shape_mode(&self) -> ShapeMode {
        let rank = |mode: &ShapeMode| match mode {
            ShapeMode::Shapeless => 0,
            ShapeMode::Keyed(_) => 1,
            ShapeMode::Eager(_) => 2,
        };
        self.steps.iter().map(|s| s.op.shape_mode()).max_by_key(rank).unwrap_or(ShapeMode::Shapeless)
    }

    /// Runs on `inputs`, one for each of the graph's inputs in order, and writes every output.
    pub(crate) fn run(&self, inputs: &[TensorView<'_>], sink: &mut dyn OutputSink) -> Result<(), Error> {
        let mut values = self.bind(inputs)?;
        let mut checks = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let outputs =
                self.execute(index, step, &values, &mut checks).map_err(|source| step.error(source))?;
            for (slot, output) in step.outputs.iter().zip(outputs) {
                if let (Some(slot), Some(output)) = (slot, output) {
                    values[*slot] = Some(output);
                }
            }
            for &slot in &step.frees {
                values[slot] = None;
            }
        }
        self.deliver(&values, &checks, sink)
    }

    fn bind(&self, inputs: &[TensorView<'_>]) -> Result<Vec<Option<Value>>, Error> {
        if inputs.len() != self.inputs.len() {
            let detail =
                format!("the program takes {} inputs, {} were given", self.inputs.len(), inputs.len());
            return Err(Error::Input { index: inputs.len(), detail });
        }
        let mut values = vec![None; self.slots];
        for (slot, value) in &self.constants {
            values[*slot] = Some(value.clone());
        }
        for (index, (view, input)) in inputs.iter().zip(&self.inputs).enumerate() {
            let fail = |detail: String| Error::Input { index, detail: format!("'{}' {detail}", input.name) };
            if view.element != input.element {
                return Err(fail(format!("is {}, the model takes {}", view.element, input.element)));
            }
            let shape = shape_i32(view.shape).map_err(|e| fail(e.to_string()))?;
            let dtype = dtype::to_mlx(view.element).ok_or_else(|| fail(format!("is {}", view.element)))?;
            let follow = !view.element.is_float() && view.shape.iter().product::<usize>() <= INPUT_HOST_LIMIT;
            let host = follow.then(|| HostTensor::from_bytes(view.element, view.shape, view.data)).flatten();
            values[input.slot] = Some(match host {
                Some(host) => Value::host(host),
                None => Value::device(Array::from_bytes(dtype, &shape, view.data)?),
            });
        }
        Ok(values)
    }

    fn execute(
        &self,
        index: usize,
        step: &Step,
        values: &[Option<Value>],
        checks: &mut Vec<Check>,
    ) -> Result<Vec<Option<Value>>, LowerError> {
        let inputs: Vec<Option<Value>> = step.inputs.iter().map(|slot| values[(*slot)?].clone()).collect();
        let known: Option<Vec<Option<&HostTensor>>> =
            inputs.iter().map(|v| v.as_ref().map_or(Some(None), |v| v.known().map(Some))).collect();
        if let Some(outputs) = known.map(|known| step.op.fold(&known)).transpose()?.flatten() {
            return fit(step, outputs);
        }
        let mut lowering = Lowering::new(index, &inputs, &step.wanted, self.limit, checks);
        step.op.lower(&mut lowering)?;
        lowering.finish()
    }

    fn deliver(
        &self,
        values: &[Option<Value>],
        checks: &[Check],
        sink: &mut dyn OutputSink,
    ) -> Result<(), Error> {
        let missing = || Error::Bug("an output was never made".into());
        let outputs: Vec<&Value> = self
            .outputs
            .iter()
            .map(|&slot| values[slot].as_ref().ok_or_else(missing))
            .collect::<Result<_, _>>()?;
        let mut arrays = Vec::with_capacity(outputs.len());
        for value in outputs {
            let array = value.array().map_err(|e| Error::Bug(e.to_string()))?;
            arrays.push(array.contiguous()?);
        }
        eval(arrays.iter().chain(checks.iter().map(|c| &c.holds)))?;
        for check in checks {
            if !check.holds.item::<bool>()? {
                return Err(self.steps[check.step].error(LowerError::Invalid(check.message.clone())));
            }
        }
        for (index, array) in arrays.iter().enumerate() {
            let shape: Vec<usize> = array.shape().iter().map(|&d| d as usize).collect();
            let element = dtype::to_onnx(array.dtype());
            array
                .with_bytes(|data| sink.write(index, element, &shape, data))?
                .map_err(|source| Error::Output { index, source })?;
        }
        Ok(())
    }
}

/// Integer and boolean inputs up to this many elements are followed on the host: they may be shapes, lengths, axes.
const INPUT_HOST_LIMIT: usize = 64;

impl Step {
    fn error(&self, source: LowerError) -> Error {
        Error::Node { op: self.op_type.clone(), node: self.node.clone(), source }
    }
}

fn step(graph: &Graph<'_>, id: NodeId, device: mlx_safe::DeviceType) -> Result<Step, Error> {
    let node = graph.node(id);
    let name = if node.name.is_empty() { format!("#{}", id.0) } else { format!("'{}'", node.name) };
    let bug = |detail: String| Error::Node {
        op: node.op_type.clone(),
        node: name.clone(),
        source: LowerError::Bug(detail),
    };
    let node_ref = NodeRef::new(graph, id, device);
    let op = registry::claim(&node_ref)
        .map_err(|d| bug(format!("claimed before, declined at compilation: {d}")))?;
    let mut wanted = Vec::with_capacity(node.outputs().len());
    for (i, output) in node.outputs().iter().enumerate() {
        let dtype = output.map(|_| node_ref.output_dtype(i)).transpose();
        wanted.push(dtype.map_err(|d| bug(d.to_string()))?);
    }
    let slots = |values: &[Option<ValueId>]| values.iter().map(|v| v.map(|v| v.0)).collect();
    let (inputs, outputs) = (slots(node.inputs()), slots(node.outputs()));
    Ok(Step { op, op_type: node.op_type.clone(), node: name, inputs, outputs, wanted, frees: Vec::new() })
}

fn constant(name: &str, tensor: &onnx_graph::Tensor<'_>) -> Result<Value, Error> {
    let element = tensor.element();
    let fail = |detail: String| Error::Bug(format!("constant '{name}': {detail}"));
    let dtype = dtype::to_mlx(element).ok_or_else(|| fail(format!("{element} has no MLX type")))?;
    let shape = shape_i32(tensor.dims()).map_err(|e| fail(e.to_string()))?;
    let array = Array::from_bytes(dtype, &shape, tensor.data())?;
    Ok(match HostTensor::from_bytes(element, tensor.dims(), tensor.data()) {
        Some(host) => Value::both(array, host),
        None => Value::device(array),
    })
}

fn input(graph: &Graph<'_>, id: ValueId) -> Result<Input, Error> {
    let value = graph.value(id);
    let element = value.tensor_type().map(|t| t.element);
    let element = element.ok_or_else(|| Error::Bug(format!("input '{}' has no tensor type", value.name)))?;
    Ok(Input { slot: id.0, element, name: value.name.clone() })
}

/// Marks, for every slot that no output needs, the last step that reads it.
fn plan_frees(steps: &mut [Step], outputs: &[Slot], constants: &[(Slot, Value)]) {
    let mut done: std::collections::HashSet<Slot> =
        outputs.iter().copied().chain(constants.iter().map(|(slot, _)| *slot)).collect();
    for step in steps.iter_mut().rev() {
        for slot in step.inputs.iter().chain(&step.outputs).flatten() {
            if done.insert(*slot) {
                step.frees.push(*slot);
            }
        }
    }
}

/// Host results as the step's outputs.
fn fit(step: &Step, outputs: Vec<HostTensor>) -> Result<Vec<Option<Value>>, LowerError> {
    let mut outputs = outputs.into_iter();
    let mut values = Vec::with_capacity(step.wanted.len());
    for wanted in &step.wanted {
        let made = outputs.next();
        let Some(wanted) = wanted else {
            values.push(None);
            continue;
        };
        let tensor = made.ok_or_else(|| LowerError::Bug("the host made too few outputs".into()))?;
        if dtype::to_mlx(tensor.element()) != Some(*wanted) {
            return Err(LowerError::Bug(format!(
                "the host made {}, {wanted:?} is declared",
                tensor.element()
            )));
        }
        shape_i32(tensor.dims())?;
        values.push(Some(Value::host(tensor)));
    }
    Ok(values)
}
