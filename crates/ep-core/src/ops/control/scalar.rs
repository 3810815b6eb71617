//! The one-element tensors that steer control flow.

use ndarray::{ArrayD, IxDyn};
use onnx_graph::{ElementType, Graph};

use crate::LowerError;
use crate::host::HostTensor;
use crate::lowering::Value;

/// The only element of an integer or boolean `value`. Waits for the device where it is not known on the host.
pub(super) fn read(value: &Value, what: &str) -> Result<i64, LowerError> {
    let shape = value.shape()?;
    if shape.iter().product::<i32>() != 1 {
        return Err(LowerError::invalid(format!(
            "{what} must have exactly one element, its shape is {shape:?}"
        )));
    }
    let ints = value.download()?.to_ints();
    let only = ints.and_then(|ints| ints.first().copied());
    only.ok_or_else(|| LowerError::invalid(format!("{what} is neither an integer nor a boolean")))
}

/// How a body declares a one-element input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scalar {
    element: ElementType,
    rank: usize,
}

impl Scalar {
    /// As input `i` of `body` is declared; of rank 0 where no shape is.
    pub(super) fn of_input(body: &Graph<'_>, i: usize, element: ElementType) -> Self {
        let value = body.value(body.inputs()[i]);
        let rank = value.tensor_type().and_then(|t| t.shape.as_ref()).map_or(0, |shape| shape.rank());
        Self { element, rank }
    }

    /// `value` in that form, known on the host.
    pub(super) fn value(self, value: i64) -> Value {
        Value::host(HostTensor::ints(self.element, ArrayD::from_elem(IxDyn(&vec![1; self.rank]), value)))
    }
}
