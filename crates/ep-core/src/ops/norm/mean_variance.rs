//! `MeanVarianceNormalization`: mean 0 and variance 1 over `axes`; no epsilon, so that constants give NaN.

use mlx_safe::Dtype;

use crate::axes::axis;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::sums::{centre, mean};
use crate::{Decline, LowerError, NodeRef};

pub(crate) struct MeanVariance(Vec<i64>);

impl Op for MeanVariance {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("MeanVarianceNormalization")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        if node.version() < 9 {
            return Err(Decline::form("MeanVarianceNormalization before opset 9"));
        }
        let axes = node.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
        if axes.is_empty() {
            return Err(Decline::form("no axes to normalise"));
        }
        Ok(Self(axes))
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("a mean divides by the number of elements")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        if x.ndim() == 0 {
            return Err(LowerError::invalid("a scalar has no variance"));
        }
        // The default names more axes than a matrix has, and axes may be named twice.
        let inside = |a: &&i64| **a < x.ndim() as i64;
        let axes = self.0.iter().filter(inside).map(|&a| Ok(axis(a, x.ndim())? as i32));
        let axes = axes.collect::<Result<std::collections::BTreeSet<_>, LowerError>>()?;
        let axes: Vec<i32> = axes.into_iter().collect();
        if x.size() == 0 {
            return cx.forward(0, 0);
        }
        let (_, above) = centre(&x.astype(Dtype::Float32)?, &axes)?;
        let deviation = mean(&above.square()?, &axes, true)?.sqrt()?;
        cx.emit(0, above.divide(&deviation)?.astype(x.dtype())?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        defaults: case("MeanVarianceNormalization", 13).x(f32s([2, 3, 4, 5])) => close(tol::F32_SUM);
        spatial: case("MeanVarianceNormalization", 9).x(f32s([2, 3, 4, 5])).attr("axes", vec![2_i64, 3]) => close(tol::F32_SUM);
        negative: case("MeanVarianceNormalization", 13).x(f32s([2, 30])).attr("axes", vec![-1_i64]) => close(tol::F32_SUM);
        axes_twice: case("MeanVarianceNormalization", 13).x(f32s([2, 3, 4])).attr("axes", vec![2_i64, 1, -1]) => close(tol::F32_SUM);
        rank_2: case("MeanVarianceNormalization", 13).x(f32s([20, 3])) => close(tol::F32_SUM);
        constants: case("MeanVarianceNormalization", 13).x(tensor(E::Float, [1, 1, 1, 2], &[1.0, 1.0])) => exact();
        f16: case("MeanVarianceNormalization", 13).x(random(E::Float16, [2, 3, 4, 5])) => close(tol::F16);
        nothing: case("MeanVarianceNormalization", 13).x(f32s([0, 3, 4, 5])) => exact();
    }
}
