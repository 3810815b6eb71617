//! Indices looked at: one that is out of range fails the run, as on ONNX Runtime's CPU. mlx-safe keeps it inside meanwhile.

use mlx_safe::{Array, Dtype};

use crate::LowerError;
use crate::host::{HostTensor, shape_i32};
use crate::lowering::Lowering;

/// Input `i`, indices into an axis of `size` elements, for operations of mlx-safe; negative ones count from the end.
pub(crate) fn checked(cx: &mut Lowering<'_>, i: usize, size: i32) -> Result<Array, LowerError> {
    if let Some(host) = cx.known(i) {
        let indices: Vec<i32> = wrapped(host, size.into())?.into_iter().map(|i| i as i32).collect();
        return Ok(Array::from_slice(&indices, &shape_i32(host.dims())?)?);
    }
    let indices = cx.array(i)?;
    checked_array(cx, indices, size)
}

/// As [`checked`], for indices that are on the device.
pub(crate) fn checked_array(cx: &mut Lowering<'_>, indices: Array, size: i32) -> Result<Array, LowerError> {
    if indices.size() == 0 {
        return Ok(indices.astype(Dtype::Int32)?);
    }
    if size == 0 {
        return Err(LowerError::invalid("an index into an axis of no elements"));
    }
    let indices = if indices.dtype() == Dtype::Int64 { indices } else { indices.astype(Dtype::Int32)? };
    let scalar = |value: i32| Array::scalar_of(value.into(), indices.dtype());
    let within = indices
        .greater_equal(&scalar(-size)?)?
        .logical_and(&indices.less(&scalar(size)?)?)?
        .all(.., false)?;
    cx.require(within, out_of_range(size.into()));
    Ok(indices)
}

/// The same on the host, counted from the start.
pub(crate) fn wrapped(indices: &HostTensor, size: i64) -> Result<Vec<i64>, LowerError> {
    let indices = indices.to_ints().ok_or_else(|| LowerError::invalid("the indices are not integers"))?;
    let wrap = |i: i64| if i < 0 { i.saturating_add(size) } else { i };
    indices
        .into_iter()
        .map(|i| match wrap(i) {
            at if (0..size).contains(&at) => Ok(at),
            _ => Err(LowerError::invalid(format!("index {i}: {}", out_of_range(size)))),
        })
        .collect()
}

fn out_of_range(size: i64) -> String {
    format!("an index is out of range for an axis of {size} elements")
}

/// 0, 1, ... along `axis` of a tensor of rank `rank`, to be broadcast along the others.
pub(crate) fn positions(size: i32, axis: usize, rank: usize) -> Result<Array, LowerError> {
    let mut shape = vec![1; rank];
    shape[axis] = size;
    Ok(mlx_safe::arange(0.0, size.into(), 1.0, Dtype::Int32)?.reshape(&shape)?)
}
