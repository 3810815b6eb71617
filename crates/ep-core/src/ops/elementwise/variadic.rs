//! `Max`, `Min`, `Sum` and `Mean` of any number of inputs that broadcast; NaN wins in `Max` and `Min`.

use mlx_safe::{Array, Dtype};

use crate::convert::like;
use crate::host::{HostTensor, HostValues};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, broadcast};

/// `Max`, `Min`, `Sum`, `Mean`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variadic {
    Max,
    Min,
    Sum,
    Mean,
}

impl Op for Variadic {
    const KEYS: &'static [OpKey] =
        &[OpKey::onnx("Max"), OpKey::onnx("Min"), OpKey::onnx("Sum"), OpKey::onnx("Mean")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let op = match node.op_type() {
            "Max" => Self::Max,
            "Min" => Self::Min,
            "Sum" => Self::Sum,
            _ => Self::Mean,
        };
        let ordered = matches!(op, Self::Max | Self::Min);
        node.expect_type(0, |e| e.is_float() || (ordered && e.is_integer()))?;
        Ok(op)
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let arrays = cx.arrays()?;
        let dtype = cx.output_dtype(0)?;
        let y = match self {
            Self::Max => chain(&arrays, Array::maximum)?,
            Self::Min => chain(&arrays, Array::minimum)?,
            Self::Sum => sum(&arrays)?.astype(dtype)?,
            Self::Mean => {
                let total = sum(&arrays)?;
                total.divide(&like(arrays.len() as f64, &total)?)?.astype(dtype)?
            }
        };
        cx.emit(0, y)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        if !matches!(self, Self::Max | Self::Min) {
            return Ok(None);
        }
        let mut given = inputs.iter().copied().flatten();
        let Some(first) = given.next() else { return Ok(None) };
        let mut y = first.clone();
        for x in given {
            let next = match (y.values(), x.values()) {
                (HostValues::Ints(a), HostValues::Ints(b)) => {
                    let f = if *self == Self::Max { i64::max } else { i64::min };
                    broadcast::zip(a, b, f)?.map(|v| HostTensor::ints(x.element(), v))
                }
                (HostValues::Floats(a), HostValues::Floats(b)) => {
                    let max = *self == Self::Max;
                    let first = |a: f64, b: f64| a.is_nan() || (if max { a > b } else { a < b });
                    broadcast::zip(a, b, |a, b| if first(a, b) { a } else { b })?
                        .map(|v| HostTensor::floats(x.element(), v))
                }
                _ => None,
            };
            let Some(next) = next else { return Ok(None) };
            y = next;
        }
        Ok(Some(vec![y]))
    }
}

fn chain(arrays: &[Array], f: fn(&Array, &Array) -> mlx_safe::Result<Array>) -> Result<Array, LowerError> {
    let (first, rest) = arrays.split_first().ok_or_else(|| LowerError::invalid("there are no inputs"))?;
    Ok(rest.iter().try_fold(first.clone(), |y, x| f(&y, x))?)
}

/// The sum in float32, so that 16-bit floats are rounded once.
fn sum(arrays: &[Array]) -> Result<Array, LowerError> {
    let wide: Vec<Array> = arrays.iter().map(|a| a.astype(Dtype::Float32)).collect::<Result<_, _>>()?;
    chain(&wide, Array::add)
}

#[cfg(test)]
mod tests {
    use onnx_graph::Tensor;

    use crate::testing::*;

    const NAN: f64 = f64::NAN;

    fn row(values: &[f64]) -> Tensor<'static> {
        tensor(E::Float, [values.len()], values)
    }

    fn sixty(op: &'static str) -> Case {
        (0..60).fold(case(op, 13), |c, i| c.x(uniform(E::Float, [3, 4], 0.0, f64::from(i))))
    }

    op_cases! {
        max: case("Max", 13).x(f32s([2, 3])).x(f32s([3])).x(f32s([2, 1])) => exact();
        max_of_one: case("Max", 8).x(f32s([2, 3])) => exact();
        max_nan: case("Max", 12).x(row(&[NAN, 1.0, 2.0, NAN])).x(row(&[1.0, NAN, 3.0, NAN])) => exact();
        max_nan_last: case("Max", 12).x(row(&[1.0, 2.0])).x(row(&[0.0])).x(row(&[NAN])) => exact();
        max_nan_folded: case("Max", 13).c(row(&[NAN, 1.0, 2.0])).c(row(&[1.0, NAN, 3.0])) => exact();
        max_int64: case("Max", 12).x(uniform(E::Int64, [90], -9.0, 9.0)).x(i64s(&[0])) => exact();
        max_int64_folded: case("Max", 12).x(i64s(&[(1 << 53) + 1, -3])).x(i64s(&[1 << 53])) => exact();
        max_uint64: case("Max", 12).x(tensor(E::Uint64, [2], &[1.8e19, 1.0])).x(tensor(E::Uint64, [1], &[1e19])) => exact();
        max_uint8: case("Max", 12).x(uniform(E::Uint8, [90], 0.0, 255.0)).x(uniform(E::Uint8, [1], 0.0, 255.0)) => exact();
        max_f16: case("Max", 13).x(random(E::Float16, [40])).x(random(E::Float16, [1])) => exact();
        max_sixty: sixty("Max") => exact();
        min: case("Min", 8).x(f32s([2, 3])).x(f32s([3])) => exact();
        min_nan: case("Min", 13).x(row(&[NAN, 1.0, 2.0, NAN])).x(row(&[1.0, NAN, 3.0, NAN])) => exact();
        min_nan_folded: case("Min", 13).c(row(&[NAN, 1.0, 2.0])).c(row(&[1.0, NAN, 3.0])) => exact();
        min_int32: case("Min", 12).x(uniform(E::Int32, [90], -9.0, 9.0)).x(uniform(E::Int32, [1], -9.0, 9.0)) => exact();
        min_bf16: case("Min", 13).x(random(E::Bfloat16, [40])).x(random(E::Bfloat16, [1])) => exact();
        min_empty: case("Min", 13).x(f32s([0])).x(f32s([1])) => exact();
        sum: case("Sum", 13).x(f32s([2, 1])).x(f32s([3])).x(f32s([])) => close(tol::F32);
        sum_opset_6: case("Sum", 6).x(f32s([2, 3])).x(f32s([2, 3])) => close(tol::F32);
        sum_sixty: sixty("Sum") => close(tol::F32);
        sum_f16: case("Sum", 13).x(random(E::Float16, [9])).x(random(E::Float16, [9])).x(random(E::Float16, [9])) => close(tol::F16);
        mean: case("Mean", 8).x(f32s([2, 1])).x(f32s([3])).x(f32s([])) => close(tol::F32);
        mean_of_one: case("Mean", 13).x(f32s([2])) => exact();
        mean_bf16: case("Mean", 13).x(random(E::Bfloat16, [9])).x(random(E::Bfloat16, [9])) => close(tol::BF16);
        mean_double: case("Mean", 13).x(random(E::Double, [2])) => declines();
    }
}
