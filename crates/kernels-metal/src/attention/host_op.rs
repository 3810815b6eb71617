//! The host dialect as operations of MLX's graph.

use half::{bf16, f16};
use mlx_safe::{Dtype, HostError, HostOp, HostView, HostViewMut, Spec};

use super::host::{self, Mask, MaskValues};
use super::{Attention, Grads, Inputs, Outputs, Sizes};
use crate::Result;
use crate::sample::Sample;

/// Instantiates `$run` for the type of the first input.
macro_rules! by_type {
    ($inputs:expr, $run:ident($($pass:expr),*)) => {
        match $inputs[0].dtype() {
            Dtype::Float32 => $run::<f32>($($pass),*),
            Dtype::Float16 => $run::<f16>($($pass),*),
            Dtype::Bfloat16 => $run::<bf16>($($pass),*),
            other => Err(format!("{other:?} is not for this kernel").into()),
        }
    };
}

pub(super) fn forward(attention: Attention, inputs: &Inputs) -> Result<Outputs> {
    let op = HostOp::new(
        "attention/host",
        |specs| {
            let ([b, h, l, _], ev) = (axes(&specs[0].shape)?, axes(&specs[2].shape)?[3]);
            let lse = Spec::new(&[b, h, l], Dtype::Float32);
            Ok(vec![Spec::new(&[b, h, l, ev], specs[0].dtype), lse])
        },
        move |inputs, outputs| by_type!(inputs, run_forward(attention, inputs, outputs)),
    );
    let outputs = op.call(&inputs.primals().iter().collect::<Vec<_>>())?;
    let [y, lse] = &outputs[..] else { unreachable!("two are inferred") };
    Ok(Outputs { y: y.clone(), lse: lse.clone() })
}

pub(super) fn grad(
    attention: Attention,
    inputs: &Inputs,
    dy: &mlx_safe::Array,
    saved: Option<&Outputs>,
) -> Result<Grads> {
    let (primals, saved_given) = (inputs.primals(), saved.is_some());
    let op = HostOp::new(
        "attention_grad/host",
        |specs| Ok(specs[..3].to_vec()),
        move |inputs, outputs| by_type!(inputs, run_grad(attention, saved_given, inputs, outputs)),
    );
    // q, k, v, perhaps the mask, then dy, then perhaps y and lse.
    let saved = saved.iter().flat_map(|saved| [&saved.y, &saved.lse]);
    let grads = op.call(&primals.iter().chain([dy]).chain(saved).collect::<Vec<_>>())?;
    let [q, k, v] = &grads[..] else { unreachable!("three are inferred") };
    Ok(Grads { q: q.clone(), k: k.clone(), v: v.clone() })
}

fn axes(shape: &[i32]) -> Result<[i32; 4], HostError> {
    shape.try_into().map_err(|_| "four axes are needed".into())
}

fn sizes(inputs: &[HostView<'_>]) -> Result<Sizes, HostError> {
    let [batch, heads, queries, width] = axes(inputs[0].shape())?.map(|n| n as usize);
    let [_, key_heads, keys, _] = axes(inputs[1].shape())?.map(|n| n as usize);
    let value_width = axes(inputs[2].shape())?[3] as usize;
    Ok(Sizes { batch, heads, key_heads, queries, keys, width, value_width })
}

fn slices<'a, T: Sample>(inputs: &[HostView<'a>]) -> Result<host::Inputs<'a, T>, HostError> {
    let [q, k, v, mask @ ..] = inputs else { return Err("q, k and v are needed".into()) };
    Ok(host::Inputs {
        q: q.as_slice()?,
        k: k.as_slice()?,
        v: v.as_slice()?,
        mask: mask.first().map(slice_mask).transpose()?,
    })
}

fn slice_mask<'a>(mask: &HostView<'a>) -> Result<Mask<'a>, HostError> {
    let mut sizes = [1; 4];
    let first = 4usize.checked_sub(mask.shape().len()).ok_or("a mask has at most four axes")?;
    for (size, &n) in sizes[first..].iter_mut().zip(mask.shape()) {
        *size = n as usize;
    }
    let values = match mask.dtype() {
        Dtype::Bool => MaskValues::Bool(mask.as_slice()?),
        Dtype::Float32 => MaskValues::Float32(mask.as_slice()?),
        Dtype::Float16 => MaskValues::Float16(mask.as_slice()?),
        Dtype::Bfloat16 => MaskValues::Bfloat16(mask.as_slice()?),
        other => return Err(format!("{other:?} is no mask").into()),
    };
    Ok(Mask { sizes, values })
}

fn run_forward<T: Sample>(
    attention: Attention,
    inputs: &[HostView<'_>],
    outputs: &mut [HostViewMut<'_>],
) -> Result<(), HostError> {
    let [y, lse] = outputs else { return Err("y and lse are the outputs".into()) };
    let outputs = host::Outputs { y: y.as_mut_slice::<T>()?, lse: lse.as_mut_slice()? };
    Ok(host::forward(&attention, sizes(inputs)?, &slices(inputs)?, outputs)?)
}

fn run_grad<T: Sample>(
    attention: Attention,
    saved_given: bool,
    inputs: &[HostView<'_>],
    outputs: &mut [HostViewMut<'_>],
) -> Result<(), HostError> {
    let behind = if saved_given { 3 } else { 1 };
    let (inputs, rest) = inputs.split_at(inputs.len().saturating_sub(behind));
    let saved = match rest {
        [_, y, lse] => Some(host::Saved { y: y.as_slice::<T>()?, lse: lse.as_slice()? }),
        _ => None,
    };
    let [q, k, v] = outputs else { return Err("there are three derivatives".into()) };
    let grads = host::Grads { q: q.as_mut_slice()?, k: k.as_mut_slice()?, v: v.as_mut_slice()? };
    let dy = rest.first().ok_or("dy is needed")?.as_slice::<T>()?;
    Ok(host::grad(&attention, sizes(inputs)?, &slices(inputs)?, dy, saved, grads)?)
}
