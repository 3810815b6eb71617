//! The host dialect as an operation of MLX's graph.

use half::{bf16, f16};
use mlx_safe::{Array, Dtype, HostError, HostOp, HostView, HostViewMut, Spec};

use super::{LinearScan, host};
use crate::Result;
use crate::sample::Sample;

pub(super) fn forward(scan: LinearScan, a: &Array, u: &Array, h0: &Array) -> Result<Vec<Array>> {
    let op = HostOp::new(
        "linear_scan/host",
        |specs| Ok(vec![specs[1].clone(), Spec::new(&specs[1].shape[1..], Dtype::Float32)]),
        move |inputs, outputs| match inputs[1].dtype() {
            Dtype::Float32 => run::<f32>(scan, inputs, outputs),
            Dtype::Float16 => run::<f16>(scan, inputs, outputs),
            Dtype::Bfloat16 => run::<bf16>(scan, inputs, outputs),
            other => Err(format!("{other:?} is not for this kernel").into()),
        },
    );
    Ok(op.call(&[a, u, h0])?)
}

fn run<T: Sample>(
    scan: LinearScan,
    inputs: &[HostView<'_>],
    outputs: &mut [HostViewMut<'_>],
) -> Result<(), HostError> {
    let steps = inputs[1].shape()[0] as usize;
    let [states, last] = outputs else { return Err("there are two outputs".into()) };
    let (a, u, h0) = (inputs[0].as_slice::<T>()?, inputs[1].as_slice::<T>()?, inputs[2].as_slice()?);
    Ok(host::forward(steps, a, u, Some(h0), states.as_mut_slice()?, last.as_mut_slice()?, scan.reverse)?)
}
