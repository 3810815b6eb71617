//! Reductions of tensors that the host knows.

use ndarray::{ArrayD, Axis};
use onnx_graph::ElementType;

use super::extreme::Extreme;
use super::reduction::Kind;
use crate::host::{HostTensor, HostValues};

/// Reduces `x` over `axes` (ascending); `None` for what is left to the device.
pub(super) fn fold(kind: Kind, x: &HostTensor, axes: &[i32], keepdims: bool) -> Option<HostTensor> {
    let count: i64 = axes.iter().map(|&a| x.dims()[a as usize] as i64).product();
    if count == 0 || matches!(x.element(), ElementType::Bool | ElementType::Uint64) {
        return None;
    }
    match x.values() {
        HostValues::Ints(v) => {
            let y = match kind {
                Kind::Sum => over(v, axes, keepdims, 0, i64::wrapping_add),
                Kind::Mean => over(v, axes, keepdims, 0, i64::wrapping_add).mapv(|sum| sum / count),
                Kind::Prod => over(v, axes, keepdims, 1, i64::wrapping_mul),
                Kind::Extreme(Extreme::Max) => over(v, axes, keepdims, i64::MIN, i64::max),
                Kind::Extreme(Extreme::Min) => over(v, axes, keepdims, i64::MAX, i64::min),
                _ => return None,
            };
            Some(HostTensor::ints(x.element(), y))
        }
        HostValues::Floats(v) => {
            let y = match kind {
                Kind::Sum => over(v, axes, keepdims, 0.0, |a, b| a + b),
                Kind::Mean => over(v, axes, keepdims, 0.0, |a, b| a + b).mapv(|sum| sum / count as f64),
                Kind::Prod => over(v, axes, keepdims, 1.0, |a, b| a * b),
                // The device knows what NaN does.
                Kind::Extreme(_) if v.iter().any(|v| v.is_nan()) => return None,
                Kind::Extreme(Extreme::Max) => over(v, axes, keepdims, f64::NEG_INFINITY, f64::max),
                Kind::Extreme(Extreme::Min) => over(v, axes, keepdims, f64::INFINITY, f64::min),
                _ => return None,
            };
            Some(HostTensor::floats(x.element(), y))
        }
    }
}

fn over<T: Copy>(x: &ArrayD<T>, axes: &[i32], keepdims: bool, init: T, f: impl Fn(T, T) -> T) -> ArrayD<T> {
    axes.iter().rev().fold(x.clone(), |y, &axis| {
        let axis = Axis(axis as usize);
        let y = y.fold_axis(axis, init, |&a, &b| f(a, b));
        if keepdims { y.insert_axis(axis) } else { y }
    })
}
