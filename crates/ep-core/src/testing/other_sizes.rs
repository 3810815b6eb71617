//! Every row whose operator says that it does not look at sizes: recorded with its inputs, and replayed with others of other
//! sizes.

use std::collections::HashMap;

use onnx_graph::{Tensor, TensorType};

use super::ours::run;
use super::{Case, Given, compare, engine, tol};
use crate::Mode;

impl Case {
    /// Checks that one recording is right for the row and for another where all sizes differ that may.
    pub(super) fn check_other_sizes(
        &self,
        wanted: &[Tensor<'static>],
        types: &[Option<TensorType>],
        tolerance: tol::Tolerance,
    ) {
        let graph = self.graph(&self.inputs, types, true);
        let executable = engine().compile(&graph).expect("as before");
        if self.given().is_empty() || !executable.infer_shapes() {
            return;
        }
        let other = self.with_other_sizes();
        let Ok(wanted_other) = other.reference() else { return };
        for (case, wanted) in [(self, wanted), (&other, &wanted_other), (self, wanted)] {
            let got = run(&executable, &graph, &case.given()).expect("a recording for other sizes");
            for (i, (wanted, got)) in wanted.iter().zip(&got).enumerate() {
                compare(i, wanted, got, tolerance);
            }
        }
        let mode = executable.mode().expect("a worker");
        assert!(
            matches!(mode, Mode::Shapeless(_)),
            "the operator says that it does not look at sizes: {mode}"
        );
    }

    /// Sizes that are equal stay equal; 0, 1 and the sizes of constants stay as they are.
    fn with_other_sizes(&self) -> Self {
        let constants = self.inputs.iter().flatten().filter(|given| given.constant);
        let mut sizes: HashMap<usize, usize> = constants
            .flat_map(|given| given.tensor.dims().to_vec())
            .chain([0, 1])
            .map(|size| (size, size))
            .collect();
        let mut next = 11;
        let mut other = |tensor: &Tensor<'static>| -> Tensor<'static> {
            let dims: Vec<usize> = (tensor.dims().iter())
                .map(|&size| {
                    *sizes.entry(size).or_insert_with(|| {
                        next += 1;
                        next
                    })
                })
                .collect();
            let count: usize = dims.iter().product();
            let bytes = tensor.element().bytes(count).expect("a small tensor");
            let data: Vec<u8> = tensor.data().iter().copied().cycle().take(bytes).collect();
            Tensor::new(tensor.element(), dims, data).expect("as many bytes")
        };
        let inputs = self.inputs.iter().map(|given| {
            given.as_ref().map(|given| match given.constant {
                true => given.clone(),
                false => Given { tensor: other(&given.tensor), constant: false },
            })
        });
        Self { inputs: inputs.collect(), ..self.clone() }
    }
}
