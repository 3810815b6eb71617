//! `LinearScan` (ai.ortmlx 1): h = a * h + u, element by element, over the steps; see `kernels_metal::linear_scan`. Rules
//! draw it; it is not meant for models.
//!
//! Inputs a and u (T, M...), broadcast against each other, h0 (M...); attribute `reverse`. Outputs all states (T, M...)
//! and the last (M...).

use kernels_metal::linear_scan::{Inputs, LinearScan as Kernel};

use crate::host::shape_i32;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey};
use crate::{Decline, LowerError, NodeRef, ShapeMode, broadcast};

/// The operator.
pub(crate) struct LinearScan {
    kernel: Kernel,
}

impl Op for LinearScan {
    const KEYS: &'static [OpKey] = &[OpKey::own("LinearScan")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let element = node.expect_float(0)?;
        node.expect_type(1, |e| e == element)?;
        node.expect_float(2)?;
        Ok(Self { kernel: Kernel { reverse: node.flag_or("reverse", false)? } })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the kernel is made for its sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (a, u, h0) = (cx.array(0)?, cx.array(1)?, cx.array(2)?);
        let dims = |shape: &[i32]| shape.iter().map(|&d| d as usize).collect::<Vec<_>>();
        let (a_dims, u_dims, h_dims) = (dims(a.shape()), dims(u.shape()), dims(h0.shape()));
        let sizes = shape_i32(&broadcast::shape(&[&a_dims, &u_dims, &h_dims])?)?;
        let Some((_, state)) = sizes.split_first() else {
            return Err(LowerError::invalid("a scan without steps"));
        };
        let inputs = Inputs { u: u.broadcast_to(&sizes)?, h0: Some(h0.broadcast_to(state)?), a };
        let outputs = self.kernel.forward(&inputs)?;
        for (i, array) in [outputs.states, outputs.last].into_iter().enumerate() {
            if cx.wants(i) {
                let array = array.astype(cx.output_dtype(i)?)?;
                cx.emit(i, array)?;
            }
        }
        Ok(())
    }
}
