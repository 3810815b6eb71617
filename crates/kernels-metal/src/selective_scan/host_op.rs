//! The host dialect as an operation of MLX's graph.

use half::{bf16, f16};
use mlx_safe::{Array, Dtype, HostError, HostOp, HostView, HostViewMut, Spec};

use super::{SelectiveScan, Sizes, host};
use crate::Result;
use crate::sample::Sample;

pub(super) fn forward(scan: SelectiveScan, primals: &[Array]) -> Result<Vec<Array>> {
    let op = HostOp::new(
        "selective_scan/host",
        |specs| {
            let (x, sizes) = (&specs[1], sizes(&specs[1].shape, &specs[4].shape));
            Ok(vec![x.clone(), state(sizes)])
        },
        move |inputs, outputs| match inputs[1].dtype() {
            Dtype::Float32 => run_forward::<f32>(scan, inputs, outputs),
            Dtype::Float16 => run_forward::<f16>(scan, inputs, outputs),
            Dtype::Bfloat16 => run_forward::<bf16>(scan, inputs, outputs),
            other => Err(format!("{other:?} is not for this kernel").into()),
        },
    );
    Ok(op.call(&primals.iter().collect::<Vec<_>>())?)
}

/// `primals`, dy and dh in this order; a missing h0 is told by the number of inputs.
pub(super) fn grad(scan: SelectiveScan, primals: &[Array], dy: &Array, dh: &Array) -> Result<Vec<Array>> {
    let op = HostOp::new(
        "selective_scan_grad/host",
        |specs| {
            let sizes = sizes(&specs[1].shape, &specs[4].shape);
            Ok(specs[..5].iter().cloned().chain([state(sizes)]).collect())
        },
        move |inputs, outputs| match inputs[1].dtype() {
            Dtype::Float32 => run_grad::<f32>(scan, inputs, outputs),
            Dtype::Float16 => run_grad::<f16>(scan, inputs, outputs),
            Dtype::Bfloat16 => run_grad::<bf16>(scan, inputs, outputs),
            other => Err(format!("{other:?} is not for this kernel").into()),
        },
    );
    Ok(op.call(&primals.iter().chain([dy, dh]).collect::<Vec<_>>())?)
}

fn state(sizes: Sizes) -> Spec {
    Spec::new(&[sizes.batch, sizes.channels, sizes.states].map(|n| n as i32), Dtype::Float32)
}

/// Sizes from the shapes of x (T, B, D) and a (D, N), which were checked before.
fn sizes(x: &[i32], a: &[i32]) -> Sizes {
    let [steps, batch, channels, states] = [x[0], x[1], x[2], a[1]].map(|n| n as usize);
    Sizes { steps, batch, channels, states }
}

fn slices<'a, T: Sample>(inputs: &[HostView<'a>], h0: bool) -> Result<host::Inputs<'a, T>, HostError> {
    Ok(host::Inputs {
        dt: inputs[0].as_slice()?,
        x: inputs[1].as_slice()?,
        b: inputs[2].as_slice()?,
        c: inputs[3].as_slice()?,
        a: inputs[4].as_slice()?,
        h0: if h0 { Some(inputs[5].as_slice()?) } else { None },
    })
}

fn run_forward<T: Sample>(
    scan: SelectiveScan,
    inputs: &[HostView<'_>],
    outputs: &mut [HostViewMut<'_>],
) -> Result<(), HostError> {
    let sizes = sizes(inputs[1].shape(), inputs[4].shape());
    let [y, h] = outputs else { return Err("y and h are the outputs".into()) };
    let outputs = host::Outputs { y: y.as_mut_slice::<T>()?, h: h.as_mut_slice()? };
    Ok(host::forward(sizes, &slices(inputs, inputs.len() == 6)?, outputs, scan.reverse)?)
}

fn run_grad<T: Sample>(
    scan: SelectiveScan,
    inputs: &[HostView<'_>],
    outputs: &mut [HostViewMut<'_>],
) -> Result<(), HostError> {
    let sizes = sizes(inputs[1].shape(), inputs[4].shape());
    let [dt, x, b, c, a, h0] = outputs else { return Err("there are six derivatives".into()) };
    let [.., dy, dh] = inputs else { return Err("dy and dh are the last inputs".into()) };
    let (dy, dh) = (dy.as_slice::<T>()?, dh.as_slice()?);
    let grads = host::Grads {
        dt: dt.as_mut_slice()?,
        x: x.as_mut_slice()?,
        b: b.as_mut_slice()?,
        c: c.as_mut_slice()?,
        a: a.as_mut_slice()?,
        h0: h0.as_mut_slice()?,
    };
    Ok(host::grad(sizes, &slices(inputs, inputs.len() == 8)?, dy, Some(dh), grads, scan.reverse)?)
}
