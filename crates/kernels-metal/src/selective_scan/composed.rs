//! The selective scan in MLX's operations, one step after another.

use mlx_safe::{Array, Dtype, stack, zeros};

use super::{Inputs, Outputs, SelectiveScan};
use crate::Result;

pub(super) fn forward(scan: SelectiveScan, inputs: &Inputs) -> Result<Outputs> {
    let sizes = inputs.sizes()?;
    let f32s = |x: &Array| x.astype(Dtype::Float32);
    let (dt, x, b, c, a) =
        (f32s(&inputs.dt)?, f32s(&inputs.x)?, f32s(&inputs.b)?, f32s(&inputs.c)?, f32s(&inputs.a)?);
    let mut h = match &inputs.h0 {
        Some(h0) => f32s(h0)?,
        None => zeros(&inputs.state_shape()?, Dtype::Float32)?,
    };
    if sizes.steps == 0 {
        return Ok(Outputs { y: inputs.x.clone(), h });
    }
    let mut ys = Vec::with_capacity(sizes.steps);
    for step in 0..sizes.steps as i32 {
        let t = if scan.reverse { sizes.steps as i32 - 1 - step } else { step };
        let dt_t = at(&dt, t)?.expand_dims(&[-1])?;
        let decay = dt_t.multiply(&a)?.exp()?;
        let input =
            dt_t.multiply(&at(&x, t)?.expand_dims(&[-1])?)?.multiply(&at(&b, t)?.expand_dims(&[1])?)?;
        h = decay.multiply(&h)?.add(&input)?;
        ys.push(h.multiply(&at(&c, t)?.expand_dims(&[1])?)?.sum(&[-1], false)?);
    }
    if scan.reverse {
        ys.reverse();
    }
    Ok(Outputs { y: stack(&ys, 0)?.astype(inputs.x.dtype())?, h })
}

/// Entry `t` of the first axis.
fn at(array: &Array, t: i32) -> Result<Array> {
    let shape = array.shape();
    let (mut start, mut stop) = (vec![0; shape.len()], shape.to_vec());
    (start[0], stop[0]) = (t, t + 1);
    Ok(array.slice(&start, &stop, &vec![1; shape.len()])?.squeeze(&[0])?)
}
