//! GridSample: pixels at positions that an input gives.

use mlx_safe::{Array, Dtype, where_};

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// Everything that attributes say.
pub(crate) struct GridSample {
    kernel: Kernel,
    padding: Padding,
    align_corners: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Kernel {
    Nearest,
    Linear,
    Cubic,
}

#[derive(Clone, Copy, PartialEq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// The parameter of the cubic kernel (Keys 1981).
const CUBIC: f64 = -0.75;

/// One pixel for every sample: along one axis first, then of the whole image.
#[derive(Clone, Default)]
struct Tap {
    /// Safe, whatever the grid holds.
    index: Option<Array>,
    /// Where the pixel counts; everywhere if there is none.
    inside: Option<Array>,
    /// 1 if there is none.
    weight: Option<Array>,
}

impl Tap {
    /// The pixel that `self` names along the axes before and `next` along one of `size`.
    fn and(&self, next: &Tap, size: i32) -> Result<Tap, LowerError> {
        fn both(
            first: &Option<Array>,
            second: &Option<Array>,
            join: impl FnOnce(&Array, &Array) -> mlx_safe::Result<Array>,
        ) -> Result<Option<Array>, LowerError> {
            Ok(match (first, second) {
                (Some(first), Some(second)) => Some(join(first, second)?),
                _ => first.clone().or_else(|| second.clone()),
            })
        }
        Ok(Tap {
            index: both(&self.index, &next.index, |i, j| i.multiply(&Array::scalar(size))?.add(j))?,
            inside: both(&self.inside, &next.inside, Array::logical_and)?,
            weight: both(&self.weight, &next.weight, Array::multiply)?,
        })
    }

    /// What the pixel adds to every sample; `pixels` is (batch, channels, pixels).
    fn value(&self, pixels: &Array, samples: i32) -> Result<Array, LowerError> {
        let index = self.index.as_ref().ok_or_else(|| LowerError::Bug("an image without axes".into()))?;
        let index = index.expand_dims(&[1])?.broadcast_to(&[pixels.dim(0)?, pixels.dim(1)?, samples])?;
        let mut value = pixels.take_along_axis(&index, 2)?;
        if let Some(weight) = &self.weight {
            value = value.multiply(&weight.expand_dims(&[1])?)?;
        }
        if let Some(inside) = &self.inside {
            value = where_(&inside.expand_dims(&[1])?, &value, &scalar(0.0)?)?;
        }
        Ok(value)
    }
}

fn scalar(value: f64) -> Result<Array, LowerError> {
    Ok(Array::scalar_of(value, Dtype::Float32)?)
}

impl GridSample {
    /// The pixel coordinates of the image's two edges along an axis.
    fn edges(&self, size: i32) -> (f64, f64) {
        let size = f64::from(size);
        if self.align_corners { (0.0, size - 1.0) } else { (-0.5, size - 0.5) }
    }

    /// A grid coordinate from -1 to 1 as a pixel coordinate. What is no number, or too far away to be counted, lies on
    /// the first edge, as on ONNX Runtime's CPU.
    fn position(&self, grid: &Array, size: i32) -> Result<Array, LowerError> {
        let (low, high) = self.edges(size);
        let grown = grid.add(&scalar(1.0)?)?;
        let x = if self.align_corners {
            grown.multiply(&scalar((high - low) / 2.0)?)?
        } else {
            grown.multiply(&scalar(size.into())?)?.subtract(&scalar(1.0)?)?.multiply(&scalar(0.5)?)?
        };
        let countable = x.abs()?.less(&scalar(2f64.powi(62))?)?;
        Ok(where_(&countable, &x, &scalar(low)?)?)
    }

    /// The pixels around every position along an axis.
    fn taps(&self, x: &Array, size: i32) -> Result<Vec<Tap>, LowerError> {
        if self.kernel == Kernel::Nearest {
            return Ok(vec![self.tap(&x.round(0)?, size, None)?]);
        }
        let floor = x.floor()?;
        let fraction = x.subtract(&floor)?;
        let (first, weights) = match self.kernel {
            Kernel::Cubic => (-1.0, cubic(&fraction)?),
            _ => (0.0, vec![scalar(1.0)?.subtract(&fraction)?, fraction]),
        };
        let tap = |(i, weight)| self.tap(&floor.add(&scalar(first + i as f64)?)?, size, Some(weight));
        weights.into_iter().enumerate().map(tap).collect()
    }

    fn tap(&self, pixel: &Array, size: i32, weight: Option<Array>) -> Result<Tap, LowerError> {
        let (zero, last) = (scalar(0.0)?, scalar(f64::from(size) - 1.0)?);
        let pixel =
            if self.padding == Padding::Reflection { self.reflect(pixel, size)? } else { pixel.clone() };
        let inside = match self.padding {
            Padding::Zeros => Some(pixel.greater_equal(&zero)?.logical_and(&pixel.less_equal(&last)?)?),
            _ => None,
        };
        let index = pixel.maximum(&zero)?.minimum(&last)?.astype(Dtype::Int32)?;
        Ok(Tap { index: Some(index), inside, weight })
    }

    /// Mirrored at the image's edges, as often as it takes.
    fn reflect(&self, x: &Array, size: i32) -> Result<Array, LowerError> {
        let (low, high) = self.edges(size);
        if high <= low {
            return Ok(x.multiply(&scalar(0.0)?)?);
        }
        let period = scalar(2.0 * (high - low))?;
        let along = x.subtract(&scalar(low)?)?.remainder(&period)?;
        let back = period.subtract(&along)?;
        Ok(along.minimum(&back)?.add(&scalar(low)?)?)
    }
}

/// The four weights of the pixels around a position `t` after the second.
fn cubic(t: &Array) -> Result<Vec<Array>, LowerError> {
    let polynomial = |x: &Array, coefficients: [f64; 4]| -> Result<Array, LowerError> {
        let mut sum = scalar(coefficients[0])?;
        for coefficient in &coefficients[1..] {
            sum = sum.multiply(x)?.add(&scalar(*coefficient)?)?;
        }
        Ok(sum)
    };
    let near = |x: &Array| polynomial(x, [CUBIC + 2.0, -(CUBIC + 3.0), 0.0, 1.0]);
    let far = |x: &Array| polynomial(x, [CUBIC, -5.0 * CUBIC, 8.0 * CUBIC, -4.0 * CUBIC]);
    let (one, two) = (scalar(1.0)?, scalar(2.0)?);
    Ok(vec![far(&t.add(&one)?)?, near(t)?, near(&one.subtract(t)?)?, far(&two.subtract(t)?)?])
}

impl Op for GridSample {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("GridSample")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        node.expect_float(1)?;
        let kernel = match node.string_or("mode", "linear")? {
            "nearest" => Kernel::Nearest,
            "linear" | "bilinear" => Kernel::Linear,
            "cubic" | "bicubic" => Kernel::Cubic,
            other => return Err(Decline::attribute("mode", other)),
        };
        let padding = match node.string_or("padding_mode", "zeros")? {
            "zeros" => Padding::Zeros,
            "border" => Padding::Border,
            "reflection" => Padding::Reflection,
            other => return Err(Decline::attribute("padding_mode", other)),
        };
        Ok(Self { kernel, padding, align_corners: node.flag_or("align_corners", false)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("positions are scaled by the image's size")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (x, grid) = (cx.array(0)?, cx.array(1)?);
        let misfit = || LowerError::invalid(format!("a grid of {grid} does not sample an image of {x}"));
        let (&[batch, channels, ref image @ ..], Some((&width, places))) =
            (x.shape(), grid.shape().split_last())
        else {
            return Err(misfit());
        };
        if width as usize != image.len() || places.len() != image.len() + 1 || places[0] != batch {
            return Err(misfit());
        }
        if self.kernel == Kernel::Cubic && image.len() != 2 {
            return Err(LowerError::invalid("cubic samples need an image of two axes"));
        }
        let shape = [&[batch, channels], &places[1..]].concat();
        if shape.contains(&0) || x.size() == 0 {
            return cx.emit(0, mlx_safe::zeros(&shape, x.dtype())?);
        }
        cx.afford(&shape, Dtype::Float32)?;
        let samples: i32 = places[1..].iter().product();
        let pixels = x.astype(Dtype::Float32)?.reshape(&[batch, channels, image.iter().product()])?;
        let grid = grid.astype(Dtype::Float32)?.reshape(&[batch, samples, width])?;
        // The last entry of a grid position belongs to the image's last axis, so that axes and entries run in opposite
        // directions.
        let mut corners = vec![Tap::default()];
        for (number, &size) in image.iter().enumerate() {
            let entry = width - 1 - number as i32;
            let grid = grid.slice(&[0, 0, entry], &[batch, samples, entry + 1], &[1, 1, 1])?.squeeze(&[2])?;
            let taps = self.taps(&self.position(&grid, size)?, size)?;
            let extended = corners.iter().flat_map(|corner| taps.iter().map(|tap| corner.and(tap, size)));
            corners = extended.collect::<Result<_, _>>()?;
        }
        let mut sum: Option<Array> = None;
        for corner in corners {
            let value = corner.value(&pixels, samples)?;
            sum = Some(match sum {
                Some(sum) => sum.add(&value)?,
                None => value,
            });
        }
        let sum = sum.ok_or_else(misfit)?;
        cx.emit(0, sum.reshape(&shape)?.astype(x.dtype())?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn sample(mode: &'static str, padding: &'static str, align: i64) -> Case {
        case("GridSample", 20)
            .x(f32s([2, 3, 4, 5]))
            .x(uniform(E::Float, [2, 6, 7, 2], -2.5, 2.5))
            .attr("mode", mode)
            .attr("padding_mode", padding)
            .attr("align_corners", align)
    }

    #[test]
    fn every_mode_and_padding() {
        for mode in ["nearest", "linear", "cubic"] {
            for padding in ["zeros", "border", "reflection"] {
                for align in [0, 1] {
                    sample(mode, padding, align).check(&close(tol::F32_SUM));
                }
            }
        }
    }

    #[test]
    fn every_volume() {
        for mode in ["nearest", "linear"] {
            for padding in ["zeros", "border", "reflection"] {
                case("GridSample", 20)
                    .x(f32s([2, 2, 3, 4, 5]))
                    .x(uniform(E::Float, [2, 3, 2, 4, 3], -1.5, 1.5))
                    .attr("mode", mode)
                    .attr("padding_mode", padding)
                    .check(&close(tol::F32_SUM));
            }
        }
    }

    op_cases! {
        bilinear_16: case("GridSample", 16).x(f32s([1, 1, 4, 5])).x(uniform(E::Float, [1, 3, 3, 2], -1.2, 1.2)) => close(tol::F32);
        bicubic_16: case("GridSample", 16).x(f32s([1, 1, 4, 5])).x(uniform(E::Float, [1, 3, 3, 2], -1.2, 1.2)).attr("mode", "bicubic") => close(tol::F32_SUM);
        not_a_number: case("GridSample", 20).x(f32s([1, 1, 2, 2])).x(tensor(E::Float, [1, 1, 2, 2], &[f64::NAN, 0.0, 0.1, f64::NAN])) => close(tol::F32);
        not_a_number_nearest: case("GridSample", 20).x(f32s([1, 1, 2, 2])).x(tensor(E::Float, [1, 1, 2, 2], &[f64::NAN, 0.0, 0.1, f64::NAN])).attr("mode", "nearest") => exact();
        endless: case("GridSample", 20).x(f32s([1, 1, 2, 2])).x(tensor(E::Float, [1, 1, 2, 2], &[f64::INFINITY, 0.0, 0.1, -1e30])).attr("padding_mode", "reflection") => close(tol::F32);
        far: case("GridSample", 20).x(f32s([1, 1, 2, 2])).x(tensor(E::Float, [1, 1, 2, 2], &[1e9, 0.0, -1e9, 0.3])) => close(tol::F32);
        f16: case("GridSample", 20).x(random(E::Float16, [1, 1, 4, 5])).x(uniform(E::Float16, [1, 3, 3, 2], -0.9, 0.9)) => close(tol::F16);
        empty: case("GridSample", 20).x(f32s([1, 1, 4, 5])).x(f32s([1, 0, 3, 2])) => exact();
        empty_batch: case("GridSample", 20).x(f32s([0, 1, 4, 5])).x(f32s([0, 2, 3, 2])) => exact();
        cubic_volume: case("GridSample", 20).x(f32s([1, 1, 2, 2, 2])).x(f32s([1, 1, 1, 1, 3])).attr("mode", "cubic") => fails("two axes");
    }
}
