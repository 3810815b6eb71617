//! Every row once more, inside a `Scan`: lowerings must work under MLX's `vmap`, or fail where that can be noticed.

use onnx_graph::{Dim, Graph, GraphBuilder, Tensor, TensorType, ValueType};

use super::ours::rotated;
use super::{Case, Given, compare, engine, run_ours, tol};

impl Case {
    /// Runs the node as the body of a `Scan` over three steps, the last with its inputs' elements rotated: the first step
    /// is lowered as ever, the others are one vectorised trace where MLX can do that.
    pub(super) fn check_in_scan(
        &self,
        wanted: &[Tensor<'static>],
        types: &[Option<TensorType>],
        tolerance: tol::Tolerance,
    ) {
        let rotated = Case {
            inputs: self.inputs.iter().map(|given| given.as_ref().map(Given::rotated)).collect(),
            ..self.clone()
        };
        let fits = |other: &[Tensor<'static>]| other.iter().zip(wanted).all(|(o, w)| o.dims() == w.dims());
        let (last, wanted_last) = match rotated.reference() {
            Ok(outputs) if fits(&outputs) => (&rotated, outputs),
            _ => (self, wanted.to_vec()),
        };
        let given: Vec<_> = self.inputs.iter().zip(&last.inputs).flat_map(|(a, b)| a.iter().zip(b)).collect();
        let given: Vec<Tensor<'static>> = (given.into_iter().filter(|(a, _)| !a.constant))
            .map(|(a, b)| stacked(&[&a.tensor, &a.tensor, &b.tensor]))
            .collect();
        if given.is_empty() {
            return;
        }
        let body = self.graph(&self.inputs, types, true);
        let graph = scan_over(body, &given);
        if let Err(decline) = &engine().claim(&graph, &|_| None).expect("no cycle").nodes[0] {
            panic!("declined in a scan: {decline}");
        }
        let got = run_ours(&graph, &given.iter().collect::<Vec<_>>()).expect("a scan over the node");
        for (i, got) in got.iter().enumerate() {
            for (step, wanted) in [&wanted[i], &wanted[i], &wanted_last[i]].into_iter().enumerate() {
                compare(i, wanted, &row(got, step), tolerance);
            }
        }
    }
}

impl Given {
    /// The same elements, each one place further. ONNX Runtime's answer to NaN depends on its place: it stays.
    fn rotated(&self) -> Self {
        let nan = self.tensor.floats().is_some_and(|values| values.iter().any(|v| v.is_nan()));
        if self.constant || nan {
            self.clone()
        } else {
            Self { tensor: rotated(&self.tensor), constant: false }
        }
    }
}

/// Tensors of one shape along a new first axis.
fn stacked(tensors: &[&Tensor<'static>]) -> Tensor<'static> {
    let mut dims = tensors[0].dims().to_vec();
    dims.insert(0, tensors.len());
    let data: Vec<u8> = tensors.iter().flat_map(|t| t.data().to_vec()).collect();
    Tensor::new(tensors[0].element(), dims, data).expect("as many bytes")
}

/// Row `i` of the first axis.
fn row(tensor: &Tensor<'static>, i: usize) -> Tensor<'static> {
    let bytes = tensor.data().len() / tensor.dims()[0];
    let data = tensor.data()[i * bytes..(i + 1) * bytes].to_vec();
    Tensor::new(tensor.element(), &tensor.dims()[1..], data).expect("as many bytes")
}

/// A `Scan` without states of `body` over the first axes of `given`.
fn scan_over(body: Graph<'static>, given: &[Tensor<'static>]) -> Graph<'static> {
    let mut b = GraphBuilder::new("scan", 21);
    let inputs: Vec<_> = (given.iter().enumerate())
        .map(|(i, t)| {
            let dims: Vec<Dim> = t.dims().iter().map(|&d| d.into()).collect();
            Some(b.input(&format!("s{i}"), t.element(), &dims))
        })
        .collect();
    let types: Vec<TensorType> =
        body.outputs().iter().map(|&o| body.value(o).tensor_type().expect("a typed body").clone()).collect();
    let names: Vec<String> = (0..types.len()).map(|i| format!("z{i}")).collect();
    let node = b.node("Scan", &inputs).attr("num_scan_inputs", given.len() as i64).attr("body", body);
    let outputs = node.outputs_as(&names.iter().map(String::as_str).collect::<Vec<_>>());
    outputs.iter().flatten().for_each(|&output| b.output(output));
    let mut graph = b.build().expect("a well-formed scan");
    for (output, ty) in outputs.iter().zip(types) {
        let ty = ValueType::Tensor(TensorType { element: ty.element, shape: None });
        graph.set_type(output.expect("named"), ty);
    }
    graph
}
