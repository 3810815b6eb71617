//! A cluster, ready to run: a program between the caller's tensors.

use std::cell::Cell;

use mlx_safe::{Array, DeviceType, Loans};
use onnx_graph::{ElementType, Graph, ValueId};

use crate::compile::Compiler;
use crate::host::{HostTensor, shape_i32};
use crate::io::{Elements, OutputSink, TensorView, Traffic};
use crate::lowering::Value;
use crate::program::Program;
use crate::rewrite::{self, Rules};
use crate::run::Run;
use crate::{Error, ShapeMode, dtype};

/// A compiled cluster. It stays on the worker's thread that made it.
pub(crate) struct ClusterProgram {
    program: Program,
    inputs: Vec<Input>,
    device: DeviceType,
    /// The most bytes that one array may take.
    limit: usize,
}

struct Input {
    element: ElementType,
    name: String,
}

/// Integer and boolean inputs up to this many elements are followed on the host: they may be shapes, lengths, axes.
const INPUT_HOST_LIMIT: usize = 64;

impl ClusterProgram {
    /// Claims every node of `graph` and uploads its constants. Call on the worker's thread.
    pub(crate) fn new(graph: &Graph<'_>, device: DeviceType, rules: Rules) -> Result<Self, Error> {
        let mut graph = graph.clone();
        // What is read from outside stays an input, whatever becomes of its readers.
        graph.outer_values().collect::<Vec<_>>().into_iter().for_each(|value| graph.add_input(value));
        rewrite::apply(&mut graph, rules, device)?;
        let program = Compiler::new(device).program(&graph)?;
        let inputs = graph.inputs().iter().map(|&id| input(&graph, id)).collect::<Result<_, _>>()?;
        Ok(Self { program, inputs, device, limit: mlx_safe::memory::limit()? })
    }

    /// How the program may be compiled.
    pub(crate) fn shape_mode(&self) -> ShapeMode {
        self.program.shape_mode()
    }

    /// Runs on `inputs`, one for each of the graph's inputs in order, and writes every output.
    pub(crate) fn run(&self, inputs: &[TensorView<'_>], sink: &mut dyn OutputSink) -> Result<Traffic, Error> {
        if inputs.len() != self.inputs.len() {
            let detail =
                format!("the program takes {} inputs, {} were given", self.inputs.len(), inputs.len());
            return Err(Error::Input { index: inputs.len(), detail });
        }
        mlx_safe::lend(|loans| {
            let mut values = Vec::with_capacity(inputs.len());
            for (index, (view, input)) in inputs.iter().zip(&self.inputs).enumerate() {
                values.push(bind(index, view, input, loans)?);
            }
            let mut run = Run::new(self.limit);
            let outputs = self.program.call(values, &mut run)?;
            let copied_out = self.deliver(&outputs, &mut run, loans, sink)?;
            let mlx_safe::Traffic { copied, lent } = loans.traffic();
            Ok(Traffic { copied_in: copied, read_in_place: lent, copied_out })
        })
    }

    /// Computes everything and hands it over; how many bytes the host copied.
    fn deliver(
        &self,
        outputs: &[Value],
        run: &mut Run,
        loans: &Loans<'_>,
        sink: &mut dyn OutputSink,
    ) -> Result<usize, Error> {
        let mut arrays = Vec::with_capacity(outputs.len());
        for value in outputs {
            let array = value.array().map_err(|e| Error::Bug(e.to_string()))?;
            // A GPU rearranges while it computes; on a CPU the copy to the caller does so on its way.
            arrays.push(if self.device == DeviceType::Gpu { array.contiguous()? } else { array.clone() });
        }
        run.settle(&arrays)?;
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
}

fn input(graph: &Graph<'_>, id: ValueId) -> Result<Input, Error> {
    let value = graph.value(id);
    let element = value.tensor_type().map(|t| t.element);
    let element = element.ok_or_else(|| Error::Bug(format!("input '{}' has no tensor type", value.name)))?;
    Ok(Input { element, name: value.name.clone() })
}

fn bind<'env>(
    index: usize,
    view: &TensorView<'env>,
    input: &Input,
    loans: &Loans<'env>,
) -> Result<Value, Error> {
    let fail = |detail: String| Error::Input { index, detail: format!("'{}' {detail}", input.name) };
    if view.element != input.element {
        return Err(fail(format!("is {}, the model takes {}", view.element, input.element)));
    }
    let shape = shape_i32(view.shape).map_err(|e| fail(e.to_string()))?;
    let dtype = dtype::to_mlx(view.element).ok_or_else(|| fail(format!("is {}", view.element)))?;
    let follow = !view.element.is_float() && view.shape.iter().product::<usize>() <= INPUT_HOST_LIMIT;
    let host = follow.then(|| HostTensor::from_bytes(view.element, view.shape, view.data)).flatten();
    Ok(match host {
        Some(host) => Value::host(host),
        None => Value::device(loans.array(dtype, &shape, view.data)?),
    })
}
