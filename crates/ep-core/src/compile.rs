//! Graphs to programs, on the worker's thread: nodes claimed and compiled in order, constants uploaded once.

use std::cell::RefCell;
use std::collections::HashMap;

use mlx_safe::DeviceType;
use onnx_graph::{ElementType, Graph, NodeId, Tensor, ValueId, topological_order};

use crate::lowering::Value;
use crate::program::{Label, Program, Step};
use crate::{Error, LowerError, NodeRef, constants, registry};

/// Compiles a cluster and the bodies in it.
pub(crate) struct Compiler {
    device: DeviceType,
    /// What was uploaded, by the contents' place in memory: a weight that several bodies read is one array.
    uploaded: RefCell<HashMap<Contents, Value>>,
}

/// Address and length of the bytes, which stay in place while the graph is compiled, and how they are read.
type Contents = (usize, usize, ElementType, Vec<usize>);

impl Compiler {
    pub(crate) fn new(device: DeviceType) -> Self {
        Self { device, uploaded: RefCell::default() }
    }

    /// The program of `graph`. Its inputs are those of the graph, and then the values that it reads from outside.
    ///
    /// # Errors
    /// [`Error::Node`] for a node that was not claimed, or if MLX cannot hold a constant.
    pub(crate) fn program(&self, graph: &Graph<'_>) -> Result<Program, Error> {
        let steps = topological_order(graph)?.into_iter().map(|id| self.step(graph, id));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        let outputs: Vec<usize> = graph.outputs().iter().map(|v| v.0).collect();
        let mut constants = Vec::new();
        for (id, value) in graph.values() {
            let Some(tensor) = &value.constant else { continue };
            if !value.uses().is_empty() || outputs.contains(&id.0) {
                constants.push((id.0, self.constant(&value.name, tensor)?));
            }
        }
        let inputs = graph.inputs().iter().copied().chain(graph.outer_values()).map(|v| v.0).collect();
        Program::new(steps, constants, inputs, outputs, graph.value_count()).precomputed()
    }

    fn step(&self, graph: &Graph<'_>, id: NodeId) -> Result<Step, Error> {
        let node = graph.node(id);
        let name = if node.name.is_empty() { format!("#{}", id.0) } else { format!("'{}'", node.name) };
        let label = Label { op_type: node.op_type.clone(), node: name };
        let node_ref = NodeRef::new(graph, id, self.device);
        let op = registry::compile(&node_ref, self).map_err(|source| label.error(source))?;
        let mut declared = Vec::with_capacity(node.outputs().len());
        for (i, output) in node.outputs().iter().enumerate() {
            let dtype = output.map(|_| node_ref.output_dtype(i)).transpose();
            declared.push(dtype.map_err(|d| label.error(LowerError::Bug(d.to_string())))?);
        }
        let read =
            |value: &ValueId| !graph.value(*value).uses().is_empty() || graph.outputs().contains(value);
        let outputs: Vec<_> = node.outputs().iter().map(|output| output.filter(read)).collect();
        let slots = |values: &[Option<ValueId>]| values.iter().map(|v| v.map(|v| v.0)).collect::<Vec<_>>();
        let mut inputs = slots(node.inputs());
        inputs.extend(node.implicit_inputs().iter().map(|v| Some(v.0)));
        Ok(Step::new(op, label, inputs, slots(&outputs), declared))
    }

    fn constant(&self, name: &str, tensor: &Tensor<'_>) -> Result<Value, Error> {
        let (element, data) = (tensor.element(), tensor.data());
        let contents = (data.as_ptr().addr(), data.len(), element, tensor.dims().to_vec());
        if let Some(value) = self.uploaded.borrow().get(&contents) {
            return Ok(value.clone());
        }
        let value = constants::value(name, tensor)?;
        self.uploaded.borrow_mut().insert(contents, value.clone());
        Ok(value)
    }
}
