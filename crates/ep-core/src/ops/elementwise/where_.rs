//! `Where`: all three inputs broadcast.

use ndarray::ArrayD;

use crate::host::{HostTensor, HostValues};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, broadcast};

/// `Where`.
pub(crate) struct Where;

impl Op for Where {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Where")];

    fn claim(_: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(Self)
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Shapeless
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let y = mlx_safe::where_(&cx.array(0)?, &cx.array(1)?, &cx.array(2)?)?;
        cx.emit(0, y)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let &[Some(condition), Some(x), Some(y)] = inputs else { return Ok(None) };
        let Some(condition) = condition.as_ints() else { return Ok(None) };
        let element = x.element();
        Ok(match (x.values(), y.values()) {
            (HostValues::Ints(x), HostValues::Ints(y)) => {
                select(condition, x, y)?.map(|v| vec![HostTensor::ints(element, v)])
            }
            (HostValues::Floats(x), HostValues::Floats(y)) => {
                select(condition, x, y)?.map(|v| vec![HostTensor::floats(element, v)])
            }
            _ => None,
        })
    }
}

fn select<T: Copy>(
    condition: &ArrayD<i64>,
    x: &ArrayD<T>,
    y: &ArrayD<T>,
) -> Result<Option<ArrayD<T>>, LowerError> {
    let Some(both) = broadcast::zip(x, y, |x, y| (x, y))? else { return Ok(None) };
    broadcast::zip(condition, &both, |c, (x, y)| if c != 0 { x } else { y })
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        all_broadcast: case("Where", 16).x(random(E::Bool, [40, 1, 1])).x(f32s([2, 1])).x(f32s([3])) => exact();
        scalars: case("Where", 9).x(random(E::Bool, [])).x(f32s([])).x(f32s([])) => exact();
        int64: case("Where", 9).x(random(E::Bool, [3, 90])).x(i64s(&[(1 << 60) + 1])).x(i64s(&[-7])) => exact();
        uint8: case("Where", 9).x(random(E::Bool, [90])).x(random(E::Uint8, [90])).x(random(E::Uint8, [1])) => exact();
        f16: case("Where", 16).x(random(E::Bool, [9])).x(random(E::Float16, [9])).x(random(E::Float16, [])) => exact();
        bf16: case("Where", 16).x(random(E::Bool, [9])).x(random(E::Bfloat16, [9])).x(random(E::Bfloat16, [])) => exact();
        nan_is_not_touched: case("Where", 16).x(tensor(E::Bool, [2], &[1.0, 0.0])).x(tensor(E::Float, [2], &[1.0, f64::NAN])).c(tensor(E::Float, [1], &[2.0])) => exact();
        int64_folded: case("Where", 16).x(random(E::Bool, [5, 1])).x(i64s(&[1, 2])).x(i64s(&[-1])) => exact();
        floats_folded: case("Where", 16).c(random(E::Bool, [5])).c(f32s([5])).c(f32s([])) => exact();
        empty: case("Where", 16).x(random(E::Bool, [0])).x(f32s([2, 1])).x(f32s([])) => exact();
        does_not_broadcast: case("Where", 16).x(random(E::Bool, [2])).x(f32s([3])).x(f32s([])) => fails("broadcast");
    }
}
