//! Element types of arrays: conversions as ONNX Runtime's CPU provider makes them, on every device.

use mlx_safe::{Array, Dtype, where_};
use onnx_graph::ElementType as E;

use crate::host::{HostTensor, HostValues};

const TWO_POW_31: f64 = 2_147_483_648.0;
const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;

/// A scalar of `x`'s type.
pub(crate) fn like(value: f64, x: &Array) -> mlx_safe::Result<Array> {
    Array::scalar_of(value, x.dtype())
}

/// Applies `f` in float32 and brings the result back to `x`'s type.
pub(crate) fn in_float32(
    x: &Array,
    f: impl FnOnce(&Array) -> mlx_safe::Result<Array>,
) -> mlx_safe::Result<Array> {
    if x.dtype() == Dtype::Float32 { f(x) } else { f(&x.astype(Dtype::Float32)?)?.astype(x.dtype()) }
}

/// `x` as `to`. Integers keep their low bits; floats truncate, and what does not fit becomes what [`truncate`] says.
pub(crate) fn cast(x: &Array, to: Dtype) -> mlx_safe::Result<Array> {
    let from = x.dtype();
    if from == to {
        return Ok(x.clone());
    }
    if to == Dtype::Bool {
        return x.not_equal(&like(0.0, x)?);
    }
    if to.is_float() || !from.is_float() {
        return x.astype(to);
    }
    let x = x.astype(Dtype::Float32)?;
    match to {
        Dtype::Uint64 => {
            // The upper half of the range: the same, less 2^63 before and plus 2^63 after.
            let bound = like(TWO_POW_63, &x)?;
            let low = truncate(&x, Dtype::Int64)?.view(Dtype::Uint64)?;
            let high = truncate(&x.subtract(&bound)?, Dtype::Int64)?.view(Dtype::Uint64)?;
            where_(&x.greater_equal(&bound)?, &high.add(&like(TWO_POW_63, &high)?)?, &low)
        }
        Dtype::Int64 | Dtype::Uint32 => truncate(&x, Dtype::Int64)?.astype(to),
        _ => truncate(&x, Dtype::Int32)?.astype(to),
    }
}

/// Float32 to int32 or int64; NaN and what does not fit become the smallest integer, as on x86.
fn truncate(x: &Array, to: Dtype) -> mlx_safe::Result<Array> {
    let limit = if to == Dtype::Int64 { TWO_POW_63 } else { TWO_POW_31 };
    let fits = x.abs()?.less(&like(limit, x)?)?;
    where_(&fits, x, &like(-limit, x)?)?.astype(to)
}

/// [`cast`] on the host; `None` for uint64, which is not followed there.
pub(crate) fn cast_host(x: &HostTensor, to: E) -> Option<HostTensor> {
    if x.element() == E::Uint64 || to == E::Uint64 {
        return None;
    }
    Some(match x.values() {
        // Every float type is reached by way of float32.
        HostValues::Ints(v) if to.is_float() => HostTensor::floats(to, v.mapv(|v| f64::from(v as f32))),
        HostValues::Ints(v) => HostTensor::ints(to, v.clone()),
        HostValues::Floats(v) if to.is_float() => HostTensor::floats(to, v.clone()),
        HostValues::Floats(v) if to == E::Bool => HostTensor::ints(to, v.mapv(|v| i64::from(v != 0.0))),
        HostValues::Floats(v) => {
            let limit = if matches!(to, E::Int64 | E::Uint32) { TWO_POW_63 } else { TWO_POW_31 };
            HostTensor::ints(to, v.mapv(|v| if v.abs() < limit { v as i64 } else { -limit as i64 }))
        }
    })
}
