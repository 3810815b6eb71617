//! A cluster, ready to run: a program between the caller's tensors.

use std::cell::Cell;

use mlx_safe::{Array, DeviceType, Loans, Spec};
use onnx_graph::{ElementType, Graph, ValueId};

use crate::compile::Compiler;
use crate::executable::key::Call;
use crate::executable::mode::Mode;
use crate::executable::{Executor, Outcome};
use crate::host::{HostTensor, shape_i32};
use crate::io::{Elements, OutputSink, Ran, TensorView, Traffic};
use crate::lowering::Value;
use crate::rewrite::{self, Rules};
use crate::{Error, dtype};

/// A compiled cluster. It stays on the worker's thread that made it.
pub(crate) struct ClusterProgram {
    executor: Executor,
    inputs: Vec<Input>,
}

struct Input {
    element: ElementType,
    name: String,
}

/// Integer and boolean inputs up to this many elements are followed on the host: they may be shapes, lengths, axes.
const INPUT_HOST_LIMIT: usize = 64;

impl ClusterProgram {
    /// Claims every node of `graph` and uploads its constants. `room` is that of [`Executor::new`]. Call on the worker's
    /// thread.
    pub(crate) fn new(
        graph: &Graph<'_>,
        device: DeviceType,
        rules: Rules,
        room: Option<usize>,
    ) -> Result<Self, Error> {
        let mut graph = graph.clone();
        // What is read from outside stays an input, whatever becomes of its readers.
        graph.outer_values().collect::<Vec<_>>().into_iter().for_each(|value| graph.add_input(value));
        rewrite::apply(&mut graph, rules, device)?;
        let program = Compiler::new(device).program(&graph)?;
        let inputs = graph.inputs().iter().map(|&id| input(&graph, id)).collect::<Result<_, _>>()?;
        let executor = Executor::new(program, device, mlx_safe::memory::limit()?, room);
        Ok(Self { executor, inputs })
    }

    /// As [`Executor::infer_shapes`].
    #[cfg(test)]
    pub(crate) fn infer_shapes(&self) {
        self.executor.infer_shapes();
    }

    /// How runs go, as far as is known.
    pub(crate) fn mode(&self) -> Mode {
        self.executor.mode()
    }

    /// Runs on `inputs`, one for each of the graph's inputs in order, and writes every output.
    pub(crate) fn run(&self, inputs: &[TensorView<'_>], sink: &mut dyn OutputSink) -> Result<Ran, Error> {
        if inputs.len() != self.inputs.len() {
            let detail =
                format!("the program takes {} inputs, {} were given", self.inputs.len(), inputs.len());
            return Err(Error::Input { index: inputs.len(), detail });
        }
        let mut specs = Vec::with_capacity(inputs.len());
        for (index, (view, input)) in inputs.iter().zip(&self.inputs).enumerate() {
            specs.push(input.spec(index, view)?);
        }
        let call = Call { views: inputs, specs };
        mlx_safe::lend(|loans| {
            let bound = || inputs.iter().zip(&call.specs);
            let arrays = || bound().map(|(view, spec)| lend(view, spec, loans)).collect();
            let values = || bound().map(|(view, spec)| bind(view, spec, loans)).collect();
            let Outcome { mut outputs, mut run, decision } = self.executor.call(&call, &arrays, &values)?;
            run.settle(&outputs)?;
            let copied_out = deliver(&mut outputs, loans, sink)?;
            let mlx_safe::Traffic { copied, lent } = loans.traffic();
            let traffic = Traffic { copied_in: copied, read_in_place: lent, copied_out };
            Ok(Ran { traffic, decision })
        })
    }
}

fn input(graph: &Graph<'_>, id: ValueId) -> Result<Input, Error> {
    let value = graph.value(id);
    let element = value.tensor_type().map(|t| t.element);
    let element = element.ok_or_else(|| Error::Bug(format!("input '{}' has no tensor type", value.name)))?;
    Ok(Input { element, name: value.name.clone() })
}

impl Input {
    /// What MLX calls the type and shape of `view`, which is given as input `index`.
    fn spec(&self, index: usize, view: &TensorView<'_>) -> Result<Spec, Error> {
        let fail = |detail: String| Error::Input { index, detail: format!("'{}' {detail}", self.name) };
        if view.element != self.element {
            return Err(fail(format!("is {}, the model takes {}", view.element, self.element)));
        }
        let shape = shape_i32(view.shape).map_err(|e| fail(e.to_string()))?;
        let dtype = dtype::to_mlx(view.element).ok_or_else(|| fail(format!("is {}", view.element)))?;
        Ok(Spec { shape, dtype })
    }
}

fn lend<'env>(view: &TensorView<'env>, spec: &Spec, loans: &Loans<'env>) -> Result<Array, Error> {
    Ok(loans.array(spec.dtype, &spec.shape, view.data)?)
}

fn bind<'env>(view: &TensorView<'env>, spec: &Spec, loans: &Loans<'env>) -> Result<Value, Error> {
    let follow = !view.element.is_float() && view.shape.iter().product::<usize>() <= INPUT_HOST_LIMIT;
    let host = follow.then(|| HostTensor::from_bytes(view.element, view.shape, view.data)).flatten();
    Ok(match host {
        Some(host) => Value::host(host),
        None => Value::device(lend(view, spec, loans)?),
    })
}

/// Hands over what was computed; how many bytes the host copied.
fn deliver(arrays: &mut [Array], loans: &Loans<'_>, sink: &mut dyn OutputSink) -> Result<usize, Error> {
    // The caller may have bound an input's memory to an output: nothing is read from there once outputs are written.
    for array in arrays.iter_mut().filter(|array| loans.hold(array)) {
        let (dtype, shape) = (array.dtype(), array.shape().to_vec());
        *array = array.with_bytes(|data| Array::from_bytes(dtype, &shape, data))??;
    }
    let copied = Cell::new(0);
    for (index, array) in arrays.iter().enumerate() {
        let shape: Vec<usize> = array.shape().iter().map(|&d| d as usize).collect();
        let element = dtype::to_onnx(array.dtype());
        sink.write(index, element, &shape, Elements::of(array, &copied))
            .map_err(|source| Error::Output { index, source })?;
    }
    Ok(copied.get())
}
