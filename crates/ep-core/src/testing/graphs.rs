//! Whole graphs against ONNX Runtime's CPU provider, for rules that replace many nodes.

use std::collections::BTreeMap;

use mlx_safe::DeviceType;
use onnx_graph::{Graph, Tensor, TensorType, ValueId, ValueType, write_bytes};

use crate::rewrite::{self, Rules};
use crate::testing::{E, compare, run_on_ort_cpu, run_ours, tol};

/// The graph with every value that has no type declared to hold floats, of any shape.
pub(crate) fn floats_by_default(mut graph: Graph<'static>) -> Graph<'static> {
    let open: Vec<ValueId> =
        (graph.values().filter(|(_, v)| v.ty == ValueType::Unknown)).map(|(id, _)| id).collect();
    for id in open {
        graph.set_type(id, ValueType::Tensor(TensorType { element: E::Float, shape: None }));
    }
    graph
}

/// The operators that the rules put into `graph`.
pub(crate) fn kernels(graph: &Graph<'_>) -> Vec<&'static str> {
    let rules = Rules { selective_scan: true, spelled: true };
    let fused = rewrite::apply(&mut graph.clone(), rules, DeviceType::Cpu).expect("no cycle");
    fused.into_iter().map(|fused| fused.operator).collect()
}

/// Runs `graph` here and on ONNX Runtime's CPU provider, with `inputs` for the graph's inputs by name, and compares.
pub(crate) fn agrees(graph: &Graph<'static>, opset: i64, inputs: &[(&str, Tensor<'static>)]) {
    agrees_within(graph, opset, inputs, tol::F32_SUM);
}

/// The same within a tolerance.
pub(crate) fn agrees_within(
    graph: &Graph<'static>,
    opset: i64,
    inputs: &[(&str, Tensor<'static>)],
    tolerance: tol::Tolerance,
) {
    agrees_with([graph, graph], opset, inputs, tolerance);
}

/// The same for two graphs of which ONNX Runtime runs the second: it may lack an operator of the first.
pub(crate) fn agrees_with(
    [graph, theirs]: [&Graph<'static>; 2],
    opset: i64,
    inputs: &[(&str, Tensor<'static>)],
    tolerance: tol::Tolerance,
) {
    let named: Vec<(String, Tensor<'static>)> =
        inputs.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect();
    let bytes = write_bytes(theirs, &BTreeMap::from([(String::new(), opset)]), 8);
    let wanted = run_on_ort_cpu(&bytes, &named).expect("ONNX Runtime runs it");
    let tensors: Vec<&Tensor<'_>> = graph
        .inputs()
        .iter()
        .map(|&id| {
            let name = &graph.value(id).name;
            &inputs.iter().find(|(n, _)| n == name).expect("an input for each").1
        })
        .collect();
    let got = run_ours(graph, &tensors).expect("ours runs it");
    assert_eq!(wanted.len(), got.len(), "number of outputs");
    for (i, (wanted, got)) in wanted.iter().zip(&got).enumerate() {
        compare(i, wanted, got, tolerance);
    }
}
