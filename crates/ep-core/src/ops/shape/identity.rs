//! Identity, and Dropout outside training.

use mlx_safe::Array;

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// Passes the input on. Dropout's mask has one value everywhere: ONNX Runtime's is false before opset 12.
pub(crate) struct Identity {
    mask: Option<f64>,
}

impl Op for Identity {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Identity"), OpKey::onnx("Dropout")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        if node.op_type() == "Dropout" && node.version() >= 12 && node.has_input(2) {
            match node.constant_ints(2).as_deref() {
                Some([0]) => {}
                Some(_) => return Err(Decline::form("training_mode is on")),
                None => return Err(Decline::form("training_mode is not a constant")),
            }
        }
        // Nothing is dropped: neither how much nor which matters.
        node.ignore(&["ratio", "seed"]);
        let value = if node.version() >= 12 { 1.0 } else { 0.0 };
        Ok(Self { mask: node.has_output(1).then_some(value) })
    }

    fn shape_mode(&self) -> ShapeMode {
        match self.mask {
            Some(_) => ShapeMode::Keyed("the mask has the input's shape"),
            None => ShapeMode::Shapeless,
        }
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        cx.forward(0, 0)?;
        if let Some(value) = self.mask {
            let value = Array::scalar_of(value, cx.output_dtype(1)?)?;
            let mask = mlx_safe::full(&cx.shape(0)?, &value)?;
            cx.emit(1, mask)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        identity: case("Identity", 13).x(f32s([2, 3])) => exact();
        identity_host: case("Identity", 1).x(i64s(&[4, 5])) => exact();
        identity_constant: case("Identity", 16).c(f32s([2])) => exact();
        identity_f16: case("Identity", 13).x(random(E::Float16, [3])) => exact();
        identity_empty: case("Identity", 13).x(f32s([0, 3])) => exact();
        dropout_7: case("Dropout", 7).x(f32s([2, 3])).attr("ratio", 0.3f32) => exact();
        dropout_10_mask: case("Dropout", 10).x(f32s([2, 3])).outputs(2) => exact();
        dropout_7_mask: case("Dropout", 7).x(f32s([2, 3])).outputs(2) => exact();
        dropout_13_mask: case("Dropout", 13).x(f32s([2, 3])).c(tensor(E::Float, [], &[0.4])).outputs(2) => exact();
        dropout_22_off: case("Dropout", 22).x(f32s([2, 3])).none().c(tensor(E::Bool, [], &[0.0])).outputs(2) => exact();
        dropout_empty: case("Dropout", 13).x(f32s([0, 3])).outputs(2) => exact();
        dropout_on: case("Dropout", 13).x(f32s([2, 3])).none().c(tensor(E::Bool, [], &[1.0])) => declines();
        dropout_unknown: case("Dropout", 13).x(f32s([2, 3])).none().x(tensor(E::Bool, [], &[1.0])) => declines();
    }
}
