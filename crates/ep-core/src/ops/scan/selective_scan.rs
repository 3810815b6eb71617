//! `SelectiveScan` and `SelectiveScanGrad` (ai.ortmlx 1) as one kernel each; see `kernels_metal::selective_scan`.
//!
//! Inputs dt, x (T, B, D), b, c (T, B, N), A (D, N), h0 (B, D, N, optional); attribute `reverse`. Outputs y (T, B, D) and
//! the last state (B, D, N). In nodes that a rule has drawn (attribute `broadcast`), sizes of 1 are broadcast.

use kernels_metal::selective_scan::{Inputs, SelectiveScan as Kernel};
use mlx_safe::Array;

use crate::broadcast;
use crate::host::shape_i32;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey};
use crate::ops::scan::expect_rank;
use crate::{Decline, LowerError, NodeRef, ShapeMode};

/// Names and ranks of the inputs that both operators have.
const INPUTS: [(&str, usize); 6] = [("dt", 3), ("x", 3), ("b", 3), ("c", 3), ("A", 2), ("h0", 3)];

/// The forward operator.
pub(crate) struct SelectiveScan {
    kernel: Kernel,
    broadcast: bool,
}

/// Its derivative: the same inputs, then dy (T, B, D) and optionally dh (B, D, N); outputs ddt, dx, db, dc, dA, dh0.
pub(crate) struct SelectiveScanGrad {
    kernel: Kernel,
}

fn claim(node: &NodeRef<'_>) -> Result<Kernel, Decline> {
    for (i, (name, rank)) in INPUTS.iter().enumerate() {
        if i < 5 || node.has_input(i) {
            node.expect_float(i)?;
            expect_rank(node, i, name, *rank)?;
        }
    }
    let element = node.input_type(1)?;
    for i in [0, 2, 3] {
        node.expect_type(i, |e| e == element)?;
    }
    Ok(Kernel { reverse: node.flag_or("reverse", false)? })
}

fn inputs(cx: &Lowering<'_>) -> Result<Inputs, LowerError> {
    let mut arrays = (0..5).map(|i| cx.array(i)).collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut next = || arrays.next().ok_or_else(|| LowerError::Bug("five arrays were made".into()));
    Ok(Inputs { dt: next()?, x: next()?, b: next()?, c: next()?, a: next()?, h0: cx.optional_array(5)? })
}

/// The inputs with every size of 1 broadcast to what the others have.
fn broadcast(inputs: Inputs) -> Result<Inputs, LowerError> {
    let dims = |array: &Array| array.shape().iter().map(|&d| d as usize).collect::<Vec<_>>();
    let Inputs { dt, x, b, c, a, h0 } = inputs;
    // Each as (T, B, D, N).
    let place = |array: &Array, axes: [usize; 3]| {
        let mut all = vec![1; 4];
        for (axis, size) in axes.into_iter().zip(dims(array)) {
            all[axis] = size;
        }
        all
    };
    let mut shapes = vec![
        place(&dt, [0, 1, 2]),
        place(&x, [0, 1, 2]),
        place(&b, [0, 1, 3]),
        place(&c, [0, 1, 3]),
        [vec![1, 1], dims(&a)].concat(),
    ];
    shapes.extend(h0.as_ref().map(|h0| place(h0, [1, 2, 3])));
    let sizes = broadcast::shape(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    let [steps, batch, channels, states] = shape_i32(&sizes)?[..] else {
        return Err(LowerError::Bug("four sizes were made".into()));
    };
    let (along, across) = ([steps, batch, channels], [steps, batch, states]);
    Ok(Inputs {
        dt: dt.broadcast_to(&along)?,
        x: x.broadcast_to(&along)?,
        b: b.broadcast_to(&across)?,
        c: c.broadcast_to(&across)?,
        a: a.broadcast_to(&[channels, states])?,
        h0: h0.map(|h0| h0.broadcast_to(&[batch, channels, states])).transpose()?,
    })
}

impl Op for SelectiveScan {
    const KEYS: &'static [OpKey] = &[OpKey::own("SelectiveScan")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(Self { kernel: claim(node)?, broadcast: node.flag_or("broadcast", false)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the kernel is made for its sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let given = inputs(cx)?;
        let outputs = self.kernel.forward(&if self.broadcast { broadcast(given)? } else { given })?;
        for (i, array) in [outputs.y, outputs.h].into_iter().enumerate() {
            if cx.wants(i) {
                let array = array.astype(cx.output_dtype(i)?)?;
                cx.emit(i, array)?;
            }
        }
        Ok(())
    }
}

impl Op for SelectiveScanGrad {
    const KEYS: &'static [OpKey] = &[OpKey::own("SelectiveScanGrad")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let kernel = claim(node)?;
        expect_rank(node, 6, "dy", 3)?;
        node.expect_float(6)?;
        if node.has_input(7) {
            expect_rank(node, 7, "dh", 3)?;
            node.expect_float(7)?;
        }
        Ok(Self { kernel })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the kernel is made for its sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let grads = self.kernel.grad(&inputs(cx)?, &cx.array(6)?, cx.optional_array(7)?.as_ref())?;
        let arrays = [grads.dt, grads.x, grads.b, grads.c, grads.a, grads.h0];
        for (i, array) in arrays.into_iter().enumerate() {
            if cx.wants(i) {
                let array = array.astype(cx.output_dtype(i)?)?;
                cx.emit(i, array)?;
            }
        }
        Ok(())
    }
}
