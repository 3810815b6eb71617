//! `MaxUnpool` (ai.onnx 9+): puts values back where `MaxPool`'s indices say they were; zero elsewhere.

use mlx_safe::{Array, Dtype, zeros};

use super::window::{WindowAttributes, fit_i32, sizes, spatial};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// The attributes.
pub(crate) struct MaxUnpool {
    windows: WindowAttributes,
    kernel: Vec<i32>,
}

impl Op for MaxUnpool {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("MaxUnpool")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        let kernel = sizes(node, "kernel_shape", 1)?;
        if kernel.is_empty() {
            return Err(Decline::invalid("kernel_shape is missing"));
        }
        if node.input_rank(0).is_some_and(|rank| rank != kernel.len() + 2) {
            return Err(Decline::invalid("kernel_shape does not have one entry a spatial axis"));
        }
        Ok(Self { windows: WindowAttributes::claim(node)?, kernel })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the size of the result is computed from the input's, or given")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (x, indices) = (cx.array(0)?, cx.array(1)?);
        if x.shape() != indices.shape() {
            return Err(LowerError::invalid(format!(
                "indices have shape {:?}, values {:?}",
                indices.shape(),
                x.shape()
            )));
        }
        let shape = self.shape(x.shape(), cx.optional_ints(2)?)?;
        let count = fit_i32(shape.iter().fold(1i64, |n, &d| n.saturating_mul(d.into())))?;
        cx.afford(&shape, x.dtype())?;
        let blank = zeros(&[count], x.dtype())?;
        if x.size() == 0 {
            return cx.emit(0, blank.reshape(&shape)?);
        }
        if count == 0 {
            return Err(LowerError::invalid("values for a result without elements"));
        }
        let indices = indices.reshape(&[-1])?;
        let (zero, end) = (Array::scalar(0i64), Array::scalar(i64::from(count)));
        let inside = indices.greater_equal(&zero)?.logical_and(&indices.less(&end)?)?.all(&[0], false)?;
        cx.require(inside, "an index lies outside the result");
        let safe =
            indices.maximum(&zero)?.minimum(&Array::scalar(i64::from(count - 1)))?.astype(Dtype::Int32)?;
        let y = blank.put_along_axis(&safe, &x.reshape(&[-1])?, 0)?;
        cx.emit(0, y.reshape(&shape)?)
    }
}

impl MaxUnpool {
    /// The result's shape: as asked, or what windows like these would have pooled to `input`.
    fn shape(&self, input: &[i32], asked: Option<Vec<i64>>) -> Result<Vec<i32>, LowerError> {
        let pixels = spatial(input)?;
        if self.kernel.len() != pixels.len() {
            return Err(LowerError::invalid(format!(
                "kernel_shape {:?} for an input {input:?}",
                self.kernel
            )));
        }
        let mut shape = input[..2].to_vec();
        for (i, (&size, &kernel)) in pixels.iter().zip(&self.kernel).enumerate() {
            let axis = self.windows.axis(i, size, kernel, pixels.len())?;
            let [size, stride, kernel, low, high] =
                [size, axis.stride, kernel, axis.low, axis.high].map(i64::from);
            shape.push(fit_i32((size - 1) * stride - low - high + kernel)?);
        }
        if let Some(asked) = asked {
            if asked.len() != input.len() || asked.iter().zip(&shape).any(|(&a, &s)| a < i64::from(s)) {
                return Err(LowerError::invalid(format!("output_shape {asked:?} is less than {shape:?}")));
            }
            return asked.into_iter().map(fit_i32).collect();
        }
        if shape.iter().any(|&d| d < 0) {
            return Err(LowerError::invalid(format!("a result of shape {shape:?}")));
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn unpool(dims: impl Into<Vec<usize>>, indices: &[f64], kernel: Vec<i64>) -> Case {
        let dims = dims.into();
        case("MaxUnpool", 11)
            .x(f32s(dims.clone()))
            .x(tensor(E::Int64, dims, indices))
            .attr("kernel_shape", kernel)
    }

    op_cases! {
        plain: unpool([1, 1, 2, 2], &[5.0, 7.0, 13.0, 15.0], vec![2, 2]).attr("strides", vec![2i64, 2]) => exact();
        batches: unpool([2, 1, 2], &[1.0, 2.0, 4.0, 7.0], vec![2]).attr("strides", vec![2i64]) => exact();
        pads: unpool([1, 1, 2], &[0.0, 2.0], vec![3]).attr("strides", vec![2i64]).attr("pads", vec![1i64, 1]) => exact();
        output_shape: unpool([1, 1, 2, 2], &[6.0, 8.0, 16.0, 18.0], vec![2, 2]).attr("strides", vec![2i64, 2]).x(i64s(&[1, 1, 5, 5])) => exact();
        empty: unpool([0, 1, 2], &[], vec![2]) => exact();
        outside: unpool([1, 1, 2], &[1.0, 9.0], vec![2]).attr("strides", vec![2i64]) => fails("outside");
    }
}
