//! A graph as a program: constants on the device, and lowerings in order over numbered slots.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use mlx_safe::Dtype;

use crate::executable::origins::Origins;
use crate::host::{HostTensor, shape_i32};
use crate::lowering::{Lowering, Value};
use crate::op::AnyOp;
use crate::run::Run;
use crate::{Error, LowerError, ShapeMode, dtype};

/// Where a value lives while a program runs: its number in the graph.
pub(crate) type Slot = usize;

/// How messages name a node.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) op_type: String,
    /// The name in quotes, or the index where there is none.
    pub(crate) node: String,
}

impl Label {
    pub(crate) fn error(&self, source: LowerError) -> Error {
        Error::Node { op: self.op_type.clone(), node: self.node.clone(), source }
    }
}

/// One node, ready to be lowered.
pub(crate) struct Step {
    pub(crate) op: Box<dyn AnyOp>,
    pub(crate) label: Rc<Label>,
    /// The node's inputs, and after them what its bodies read from outside.
    pub(crate) inputs: Vec<Option<Slot>>,
    /// Where the outputs go that somebody reads.
    pub(crate) outputs: Vec<Option<Slot>>,
    /// The type of each output that the node names.
    pub(crate) declared: Vec<Option<Dtype>>,
    /// Slots that nothing reads after this step.
    frees: Vec<Slot>,
}

/// Steps between inputs and outputs. It stays on the worker's thread that made it.
pub(crate) struct Program {
    steps: Vec<Step>,
    constants: Vec<(Slot, Value)>,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    /// How many slots the graph has.
    slots: usize,
}

impl Step {
    pub(crate) fn new(
        op: Box<dyn AnyOp>,
        label: Label,
        inputs: Vec<Option<Slot>>,
        outputs: Vec<Option<Slot>>,
        declared: Vec<Option<Dtype>>,
    ) -> Self {
        Self { op, label: Rc::new(label), inputs, outputs, declared, frees: Vec::new() }
    }

    /// The outputs from values by slot.
    pub(crate) fn execute(
        &self,
        values: &[Option<Value>],
        run: &mut Run,
    ) -> Result<Vec<Option<Value>>, LowerError> {
        let inputs: Vec<Option<Value>> = self.inputs.iter().map(|slot| values[(*slot)?].clone()).collect();
        let Some(folded) = self.fold(&inputs)? else { return self.lower(&inputs, run) };
        let origins = Origins::union(self.folded(&inputs).iter().flatten().map(Value::origins));
        if origins.is_empty() {
            return Ok(folded);
        }
        // A reader on the host makes the inputs part of the key; one on the device does not.
        let lowered = self.lower(&inputs, run)?;
        Ok(folded.into_iter().zip(lowered).map(|pair| both(pair, &origins)).collect())
    }

    /// The inputs that the operator folds.
    fn folded<'a>(&self, inputs: &'a [Option<Value>]) -> &'a [Option<Value>] {
        &inputs[..inputs.len().min(self.op.fold_inputs())]
    }

    /// The outputs on the host, if the inputs are there and the operator folds.
    fn fold(&self, inputs: &[Option<Value>]) -> Result<Option<Vec<Option<Value>>>, LowerError> {
        let held: Option<Vec<Option<&HostTensor>>> = self
            .folded(inputs)
            .iter()
            .map(|v| v.as_ref().map_or(Some(None), |v| v.held().map(Some)))
            .collect();
        let outputs = held.map(|held| self.op.fold(&held)).transpose()?.flatten();
        outputs.map(|outputs| self.fit(outputs)).transpose()
    }

    fn lower(&self, inputs: &[Option<Value>], run: &mut Run) -> Result<Vec<Option<Value>>, LowerError> {
        let mut lowering = Lowering::new(&self.label, inputs, &self.declared, &self.outputs, run);
        self.op.lower(&mut lowering)?;
        let outputs = lowering.finish()?;
        run.count(&outputs);
        Ok(outputs)
    }

    /// Host results as the step's outputs.
    fn fit(&self, outputs: Vec<HostTensor>) -> Result<Vec<Option<Value>>, LowerError> {
        let mut outputs = outputs.into_iter();
        let mut values = Vec::with_capacity(self.declared.len());
        for declared in &self.declared {
            let made = outputs.next();
            let Some(declared) = declared else {
                values.push(None);
                continue;
            };
            let tensor = made.ok_or_else(|| LowerError::Bug("the host made too few outputs".into()))?;
            if dtype::to_mlx(tensor.element()) != Some(*declared) {
                return Err(LowerError::Bug(format!(
                    "the host made {}, {declared:?} is declared",
                    tensor.element()
                )));
            }
            shape_i32(tensor.dims())?;
            values.push(Some(Value::host(tensor)));
        }
        Ok(values)
    }
}

/// What a step made on the host and on the device, as one value.
fn both((host, device): (Option<Value>, Option<Value>), origins: &Origins) -> Option<Value> {
    match (host.as_ref().and_then(Value::held), device) {
        (Some(host), Some(device)) => Some(match device.on_device() {
            Some(array) => Value::traced(array.clone(), host.clone(), origins.clone()),
            None => device,
        }),
        (_, device) => device,
    }
}

impl Program {
    /// `steps` must come in an order in which each follows those whose outputs it reads.
    pub(crate) fn new(
        steps: Vec<Step>,
        constants: Vec<(Slot, Value)>,
        inputs: Vec<Slot>,
        outputs: Vec<Slot>,
        slots: usize,
    ) -> Self {
        let mut program = Self { steps, constants, inputs, outputs, slots };
        program.plan_frees();
        program
    }

    /// For which shapes the program's recorded steps are right, and the first step that says so.
    pub(crate) fn shape_mode(&self) -> (ShapeMode, Option<&Label>) {
        let modes = self.steps.iter().map(|step| (step.op.shape_mode(), Some(&*step.label)));
        modes
            .into_iter()
            .find(|(mode, _)| *mode != ShapeMode::Shapeless)
            .unwrap_or((ShapeMode::Shapeless, None))
    }

    /// Lowers every step on `inputs`, one for each input slot in order; gives a value for each output slot.
    ///
    /// # Errors
    /// [`Error::Node`] naming the step that failed.
    pub(crate) fn call(
        &self,
        inputs: impl IntoIterator<Item = Value>,
        run: &mut Run,
    ) -> Result<Vec<Value>, Error> {
        let mut values = vec![None; self.slots];
        for (slot, value) in &self.constants {
            values[*slot] = Some(value.clone());
        }
        let mut inputs = inputs.into_iter();
        for &slot in &self.inputs {
            let input =
                inputs.next().ok_or_else(|| Error::Bug("a program was given too few inputs".into()))?;
            values[slot] = Some(input);
        }
        for step in &self.steps {
            let outputs = step.execute(&values, run).map_err(|source| step.label.error(source))?;
            for (slot, output) in step.outputs.iter().zip(outputs) {
                if let (Some(slot), Some(output)) = (slot, output) {
                    values[*slot] = Some(output);
                }
            }
            for &slot in &step.frees {
                values[slot] = None;
            }
        }
        let missing = || Error::Bug("an output was never made".into());
        self.outputs.iter().map(|&slot| values[slot].clone().ok_or_else(missing)).collect()
    }

    /// Takes out the steps for which `compute` gives outputs, asked in order with the constants so far; these outputs are
    /// constants from then on. Constants that no step reads any more go.
    pub(crate) fn with_constants(
        mut self,
        compute: impl Fn(&Step, &[Option<Value>]) -> Option<Vec<Option<Value>>>,
    ) -> Self {
        let mut values = vec![None; self.slots];
        for (slot, value) in self.constants.drain(..) {
            values[slot] = Some(value);
        }
        let mut steps = Vec::with_capacity(self.steps.len());
        for step in self.steps {
            match compute(&step, &values) {
                None => steps.push(step),
                Some(outputs) => {
                    for (slot, output) in step.outputs.iter().zip(outputs) {
                        if let (Some(slot), Some(output)) = (slot, output) {
                            values[*slot] = Some(output);
                        }
                    }
                }
            }
        }
        let mut read: Vec<Slot> =
            steps.iter().flat_map(|step| step.inputs.iter().flatten()).copied().collect();
        read.extend(&self.outputs);
        read.sort_unstable();
        read.dedup();
        let constants = read.into_iter().filter_map(|slot| Some((slot, values[slot].take()?))).collect();
        Self::new(steps, constants, self.inputs, self.outputs, self.slots)
    }

    /// Puts other values in the place of constants, by slot.
    pub(crate) fn replace_constants(&mut self, mut by: HashMap<Slot, Value>) {
        for (slot, value) in &mut self.constants {
            if let Some(other) = by.remove(slot) {
                *value = other;
            }
        }
    }

    /// The steps, in order.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The slots of the inputs, in order.
    pub(crate) fn inputs(&self) -> &[Slot] {
        &self.inputs
    }

    /// The slots of the outputs, in order.
    pub(crate) fn outputs(&self) -> &[Slot] {
        &self.outputs
    }

    /// The constants, by slot.
    pub(crate) fn constants(&self) -> &[(Slot, Value)] {
        &self.constants
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Splits the program into parts that run one after another; step `i` goes to part `part_of[i]`, and no step reads
    /// what a later part makes. The inputs of a part are what it reads, but for constants; its outputs are what it makes
    /// for later parts and for the outputs of the whole.
    pub(crate) fn split<const N: usize>(self, part_of: &[usize]) -> [Program; N] {
        let constant: HashSet<Slot> = self.constants.iter().map(|(slot, _)| *slot).collect();
        let mut parts: [Vec<Step>; N] = std::array::from_fn(|_| Vec::new());
        for (step, &part) in self.steps.into_iter().zip(part_of) {
            parts[part].push(step);
        }
        let reads = |steps: &[Step]| -> Vec<Slot> {
            let mut seen: HashSet<Slot> =
                steps.iter().flat_map(|s| s.outputs.iter().flatten()).copied().collect();
            let read = steps.iter().flat_map(|s| s.inputs.iter().flatten()).copied();
            read.filter(|slot| seen.insert(*slot)).collect()
        };
        let all: Vec<Vec<Slot>> = parts.iter().map(|steps| reads(steps)).collect();
        let mut index = 0;
        parts.map(|steps| {
            index += 1;
            let needed: HashSet<Slot> = all[index..].iter().flatten().chain(&self.outputs).copied().collect();
            let makes = steps.iter().flat_map(|s| s.outputs.iter().flatten()).copied();
            let makes = makes.filter(|slot| needed.contains(slot)).collect();
            let (constants, inputs): (Vec<Slot>, Vec<Slot>) =
                all[index - 1].iter().partition(|slot| constant.contains(slot));
            let constants =
                self.constants.iter().filter(|(slot, _)| constants.contains(slot)).cloned().collect();
            Program::new(steps, constants, inputs, makes, self.slots)
        })
    }

    /// Marks, for every slot that no output needs, the last step that reads it.
    fn plan_frees(&mut self) {
        let constants = self.constants.iter().map(|(slot, _)| *slot);
        let mut done: HashSet<Slot> = self.outputs.iter().copied().chain(constants).collect();
        for step in self.steps.iter_mut().rev() {
            step.frees.clear();
            for slot in step.inputs.iter().chain(&step.outputs).flatten() {
                if done.insert(*slot) {
                    step.frees.push(*slot);
                }
            }
        }
    }
}
