//! `LinearStep` (ai.ortmlx 1): a h + u, one step of a diagonal recurrence in the body of a `Scan`. Rules draw it; the scan's
//! plan replaces it by a kernel over many steps where it can.

use crate::lowering::Lowering;
use crate::op::{Op, OpKey};
use crate::{Decline, LowerError, NodeRef, ShapeMode};

/// The operator: inputs a, u and h.
pub(crate) struct LinearStep;

impl Op for LinearStep {
    const KEYS: &'static [OpKey] = &[OpKey::own("LinearStep")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let element = node.expect_float(2)?;
        node.expect_type(0, |e| e == element)?;
        node.expect_type(1, |e| e == element)?;
        Ok(Self)
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let next = cx.array(0)?.multiply(&cx.array(2)?)?.add(&cx.array(1)?)?;
        cx.emit(0, next)
    }
}
