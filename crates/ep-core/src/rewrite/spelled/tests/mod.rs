//! Spellings that are recognised and near misses that are not, each right at two sizes.

mod activation_table;
mod activations;
mod bodies;
mod convs;
mod norm_table;
mod norms;
mod ranks;
mod rotaries;
mod rounding;

use onnx_graph::Tensor;

use crate::testing::graphs::{agrees_within, kernels};
use crate::testing::{E, f32s, random, text, tol, uniform};

/// A model over x (B, 3, 8) that returns y.
struct Model {
    opset: i64,
    initializers: Vec<(&'static str, Tensor<'static>)>,
    tolerance: tol::Tolerance,
}

impl Model {
    fn new() -> Self {
        let w = ("w", uniform(E::Float, [8], 0.5, 1.5));
        let initializers = vec![w, ("b", f32s([8])), ("wh", random(E::Float16, [8])), ("c", f32s([3, 8]))];
        Self { opset: 18, initializers, tolerance: tol::F32_SUM }
    }

    /// Checks which operators stand for `nodes`, and that the numbers are ONNX Runtime's.
    fn check(&self, nodes: &str, wanted: &[&str]) {
        assert_eq!(self.run(nodes), wanted, "{nodes}");
    }

    /// The operators that stand for `nodes`; checks that the numbers are ONNX Runtime's.
    fn run(&self, nodes: &str) -> Vec<&'static str> {
        let used = |name: &str| nodes.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
        let initializers: Vec<_> = self.initializers.iter().filter(|(name, _)| used(name)).cloned().collect();
        let graph = text::graph(self.opset, &[("x", E::Float, &[0, 3, 8])], &initializers, nodes, &["y"]);
        for batch in [1, 4] {
            agrees_within(&graph, self.opset, &[("x", f32s([batch, 3, 8]))], self.tolerance);
        }
        kernels(&graph)
    }
}

/// A float32 model.
fn check(nodes: &str, wanted: &[&str]) {
    Model::new().check(nodes, wanted);
}

/// A float16 model from h to o.
fn in_half(nodes: &str, wanted: &[&str]) {
    let half = Model { tolerance: tol::F16, ..Model::new() };
    // The reshape keeps the casts apart.
    let to_half = "c16 = Cast<to=10>(x); h:0x3x8 = Reshape(c16, [-1, 3, 8])";
    half.check(&format!("{to_half}; {nodes}; r32 = Reshape(o, [-1, 3, 8]); y = Cast<to=1>(r32)"), wanted);
}

/// Checks all rows, of nodes and the operators that stand for them, and tells those that are wrong together.
fn rows(model: &Model, rows: &[(&str, &[&str])]) {
    let found = rows.iter().map(|&(nodes, wanted)| (nodes, wanted, model.run(nodes)));
    let wrong: Vec<String> = found
        .filter(|(_, wanted, found)| found != wanted)
        .map(|(nodes, wanted, found)| format!("{found:?}, not {wanted:?}: {nodes}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
