//! Resize, and Upsample before opset 10: one axis after the other, since every kernel is a product over the axes.

use mlx_safe::{Array, Dtype};

use super::sampling::{Axis, Coordinates, Nearest, Tap};
use crate::host::shape_i32;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, axes};

/// Everything that attributes say.
pub(crate) struct Resize {
    kernel: Kernel,
    coordinates: Coordinates,
    /// What stands outside the image: for [`Coordinates::TfCropAndResize`].
    extrapolation: f32,
    target: Target,
    policy: Policy,
    axes: Option<Vec<i64>>,
}

enum Kernel {
    Nearest(Nearest),
    Linear,
    Cubic { a: f32, exclude_outside: bool },
}

/// Where the new sizes are found.
enum Target {
    /// Upsample 7.
    Attribute(Vec<f32>),
    /// Input 1: Upsample 9, Resize 10.
    Scales,
    /// Input 2, or input 3 if it is given and not empty; input 1 is the region of interest.
    ScalesOrSizes,
}

/// What becomes of the aspect ratio if sizes are given.
#[derive(Clone, Copy, PartialEq)]
enum Policy {
    Stretch,
    NotLarger,
    NotSmaller,
}

impl Resize {
    /// The axes of an input of shape `from`.
    fn plan(&self, cx: &Lowering<'_>, from: &[i32]) -> Result<Vec<Axis>, LowerError> {
        let listed = match &self.axes {
            Some(list) => axes::axes(list, from.len())?,
            None => (0..from.len()).collect(),
        };
        let mut plan: Vec<Axis> =
            from.iter().map(|&n| Axis { from: n, to: n, scale: 1.0, roi: (0.0, 1.0) }).collect();
        let roi = match self.coordinates {
            Coordinates::TfCropAndResize => cx.floats(1)?.into_iter().map(|v| v as f32).collect(),
            _ => Vec::new(),
        };
        if self.coordinates == Coordinates::TfCropAndResize {
            fits("the region's bounds", roi.len(), 2 * listed.len())?;
            for (i, &axis) in listed.iter().enumerate() {
                plan[axis].roi = (roi[i], roi[i + listed.len()]);
            }
        }
        match self.sizes(cx)? {
            Some(sizes) => self.by_sizes(&mut plan, &listed, &shape_i32(&sizes)?)?,
            None => by_scales(&mut plan, &listed, &self.scales(cx)?)?,
        }
        Ok(plan)
    }

    fn sizes(&self, cx: &Lowering<'_>) -> Result<Option<Vec<i64>>, LowerError> {
        match self.target {
            Target::ScalesOrSizes => Ok(cx.optional_ints(3)?.filter(|sizes| !sizes.is_empty())),
            _ => Ok(None),
        }
    }

    fn scales(&self, cx: &Lowering<'_>) -> Result<Vec<f32>, LowerError> {
        let narrow = |scales: Vec<f64>| scales.into_iter().map(|v| v as f32).collect();
        match &self.target {
            Target::Attribute(scales) => Ok(scales.clone()),
            Target::Scales => cx.floats(1).map(narrow),
            Target::ScalesOrSizes => cx.floats(2).map(narrow),
        }
    }

    fn by_sizes(&self, plan: &mut [Axis], listed: &[usize], sizes: &[i32]) -> Result<(), LowerError> {
        fits("sizes", sizes.len(), listed.len())?;
        let ratio = |axis: usize, size: i32| size as f32 / plan[axis].from as f32;
        let ratios: Vec<f32> = listed.iter().zip(sizes).map(|(&axis, &size)| ratio(axis, size)).collect();
        let common = match self.policy {
            Policy::Stretch => None,
            Policy::NotLarger => ratios.iter().copied().reduce(f32::min),
            Policy::NotSmaller => ratios.iter().copied().reduce(f32::max),
        };
        for (i, &axis) in listed.iter().enumerate() {
            let axis = &mut plan[axis];
            axis.scale = common.unwrap_or(ratios[i]);
            axis.to = match common {
                Some(scale) => size_of((scale * axis.from as f32).round())?,
                None => sizes[i],
            };
        }
        Ok(())
    }

    /// Resizes one axis; its elements that lie outside the image are marked.
    fn resize(&self, x: &Array, number: usize, axis: &Axis) -> Result<(Array, Vec<bool>), LowerError> {
        // ONNX Runtime leaves an axis of scale 1 alone, whatever the rule and the region.
        if axis.scale == 1.0 && axis.from == axis.to {
            return Ok((x.clone(), Vec::new()));
        }
        let positions = axis.coordinates(self.coordinates);
        let outside = match self.coordinates {
            Coordinates::TfCropAndResize => {
                positions.iter().map(|&p| p < 0.0 || p > axis.from as f32 - 1.0).collect()
            }
            _ => Vec::new(),
        };
        let y = match self.kernel {
            Kernel::Nearest(mode) => {
                let sources = axis.nearest(&positions, mode);
                if sources.iter().copied().eq(0..axis.from) { x.clone() } else { take(x, &sources, number)? }
            }
            Kernel::Linear => blend(x, &axis.linear(&positions), number)?,
            Kernel::Cubic { a, exclude_outside } => {
                blend(x, &axis.cubic(&positions, a, exclude_outside), number)?
            }
        };
        Ok((y, outside))
    }
}

fn fits(what: &str, count: usize, wanted: usize) -> Result<(), LowerError> {
    if count == wanted {
        return Ok(());
    }
    Err(LowerError::invalid(format!("{count} {what} where {wanted} are needed")))
}

fn by_scales(plan: &mut [Axis], listed: &[usize], scales: &[f32]) -> Result<(), LowerError> {
    fits("scales", scales.len(), listed.len())?;
    if let Some(scale) = scales.iter().find(|s| s.is_nan() || **s <= 0.0) {
        return Err(LowerError::invalid(format!("a scale of {scale} is not positive")));
    }
    for (&axis, &scale) in listed.iter().zip(scales) {
        let axis = &mut plan[axis];
        axis.scale = scale;
        axis.to = size_of(scale * axis.from as f32)?;
    }
    Ok(())
}

/// A size, cut to an integer.
fn size_of(size: f32) -> Result<i32, LowerError> {
    Ok(shape_i32(&[size as i64])?[0])
}

fn take(x: &Array, sources: &[i32], axis: usize) -> Result<Array, LowerError> {
    Ok(x.take(&Array::from_slice(sources, &[sources.len() as i32])?, axis as i32)?)
}

/// The weighted sum of the taps of an axis.
fn blend(x: &Array, taps: &[Tap], axis: usize) -> Result<Array, LowerError> {
    let mut sum: Option<Array> = None;
    for tap in taps {
        let mut shape = vec![1; x.ndim()];
        shape[axis] = tap.weights.len() as i32;
        let part = take(x, &tap.sources, axis)?.multiply(&Array::from_slice(&tap.weights, &shape)?)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    sum.ok_or_else(|| LowerError::Bug("a kernel without taps".into()))
}

impl Op for Resize {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Resize"), OpKey::onnx("Upsample")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let old = node.version() < 11;
        let target = match node.op_type() {
            "Upsample" if node.version() < 9 => {
                let scales = node.floats("scales")?;
                Target::Attribute(scales.ok_or_else(|| Decline::invalid("scales are missing"))?)
            }
            _ if old || node.op_type() == "Upsample" => Target::Scales,
            _ => Target::ScalesOrSizes,
        };
        if node.flag_or("antialias", false)? {
            return Err(Decline::attribute("antialias", 1));
        }
        // Exporters write the attributes of every mode.
        node.ignore(&["nearest_mode", "cubic_coeff_a", "exclude_outside"]);
        let kernel = match node.string_or("mode", "nearest")? {
            "nearest" if old => Kernel::Nearest(Nearest::Simple),
            "nearest" => Kernel::Nearest(Nearest::claim(node)?),
            "linear" => Kernel::Linear,
            "cubic" if !old => Kernel::Cubic {
                a: node.float_or("cubic_coeff_a", -0.75)?,
                exclude_outside: node.flag_or("exclude_outside", false)?,
            },
            other => return Err(Decline::attribute("mode", other)),
        };
        if !matches!(kernel, Kernel::Nearest(_)) {
            node.expect_float(0)?;
        }
        let coordinates = if old { Coordinates::Asymmetric } else { Coordinates::claim(node)? };
        if coordinates == Coordinates::TfCropAndResize && !node.has_input(1) {
            return Err(Decline::invalid("the region of interest is missing"));
        }
        let policy = match node.string_or("keep_aspect_ratio_policy", "stretch")? {
            "stretch" => Policy::Stretch,
            "not_larger" => Policy::NotLarger,
            "not_smaller" => Policy::NotSmaller,
            other => return Err(Decline::attribute("keep_aspect_ratio_policy", other)),
        };
        let extrapolation = node.float_or("extrapolation_value", 0.0)?;
        Ok(Self { kernel, coordinates, extrapolation, target, policy, axes: node.ints("axes")? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the sampled positions are worked out on the host")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let plan = self.plan(cx, x.shape())?;
        let shape: Vec<i32> = plan.iter().map(|a| a.to).collect();
        if shape.iter().any(|&n| n < 0) {
            return Err(LowerError::invalid(format!("a resized image of shape {shape:?}")));
        }
        if shape == x.shape() {
            return cx.forward(0, 0);
        }
        if shape.contains(&0) {
            return cx.emit(0, mlx_safe::zeros(&shape, x.dtype())?);
        }
        if x.size() == 0 {
            return Err(LowerError::invalid("an image of no pixels cannot grow"));
        }
        cx.afford(&shape, Dtype::Float32)?;
        // Axes that shrink go first, so that nothing in between is larger than the input or the output.
        let mut order: Vec<usize> = (0..plan.len()).collect();
        order.sort_by_key(|&number| plan[number].to > plan[number].from);
        let wide = !matches!(self.kernel, Kernel::Nearest(_));
        let mut y = if wide { x.astype(Dtype::Float32)? } else { x.clone() };
        let mut outside: Option<Array> = None;
        for number in order {
            let axis = &plan[number];
            let (resized, marks) = self.resize(&y, number, axis)?;
            y = resized;
            if marks.contains(&true) {
                let mut along = vec![1; shape.len()];
                along[number] = axis.to;
                let marks = Array::from_slice(&marks, &along)?;
                outside = Some(match outside {
                    Some(others) => others.logical_or(&marks)?,
                    None => marks,
                });
            }
        }
        if let Some(outside) = outside {
            let value = Array::scalar_of(self.extrapolation.into(), y.dtype())?;
            y = mlx_safe::where_(&outside, &value, &y)?;
        }
        cx.emit(0, y.astype(x.dtype())?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn floats(values: &[f64]) -> onnx_graph::Tensor<'static> {
        tensor(E::Float, [values.len()], values)
    }

    fn none() -> onnx_graph::Tensor<'static> {
        floats(&[])
    }

    /// By scales along the last two axes.
    fn scaled(mode: &'static str, dims: [usize; 4], scales: [f64; 2]) -> Case {
        case("Resize", 13)
            .x(f32s(dims))
            .none()
            .c(floats(&[1.0, 1.0, scales[0], scales[1]]))
            .attr("mode", mode)
    }

    fn scaled_at_run_time(scales: [f64; 4]) -> Case {
        case("Resize", 13).x(f32s([1, 1, 3, 4])).none().x(floats(&scales))
    }

    /// To sizes of the last two axes.
    fn sized(mode: &'static str, dims: [usize; 4], sizes: [i64; 2]) -> Case {
        let all = [dims[0] as i64, dims[1] as i64, sizes[0], sizes[1]];
        case("Resize", 13).x(f32s(dims)).none().none().c(i64s(&all)).attr("mode", mode)
    }

    /// Every rule of coordinates, growing and shrinking, with every rounding.
    fn nearest(rule: &'static str, rounding: &'static str) {
        for sizes in [[7, 9], [3, 2], [1, 5], [4, 6]] {
            sized("nearest", [1, 2, 4, 5], sizes)
                .attr("coordinate_transformation_mode", rule)
                .attr("nearest_mode", rounding)
                .check(&exact());
        }
    }

    #[test]
    fn nearest_rules() {
        for rule in ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"] {
            for rounding in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] {
                nearest(rule, rounding);
            }
        }
    }

    #[test]
    fn linear_and_cubic_rules() {
        for rule in ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"] {
            for mode in ["linear", "cubic"] {
                for sizes in [[7, 9], [3, 2], [1, 5], [4, 6]] {
                    sized(mode, [1, 2, 4, 5], sizes)
                        .attr("coordinate_transformation_mode", rule)
                        .check(&close(tol::F32));
                }
            }
        }
    }

    op_cases! {
        upsample_7: case("Upsample", 7).x(f32s([1, 2, 3, 4])).attr("scales", vec![1.0f32, 1.0, 2.0, 3.0]) => exact();
        upsample_9: case("Upsample", 9).x(f32s([1, 2, 3, 4])).x(floats(&[1.0, 1.0, 2.0, 1.5])) => exact();
        upsample_linear: case("Upsample", 9).x(f32s([1, 2, 3, 4])).c(floats(&[1.0, 1.0, 2.0, 1.5])).attr("mode", "linear") => close(tol::F32);
        resize_10: case("Resize", 10).x(f32s([1, 1, 4, 6])).c(floats(&[1.0, 1.0, 0.6, 0.6])) => exact();
        resize_10_up: case("Resize", 10).x(f32s([1, 1, 4, 6])).c(floats(&[1.0, 1.0, 1.6, 2.0])) => exact();
        resize_10_linear: case("Resize", 10).x(f32s([1, 1, 4, 6])).x(floats(&[1.0, 1.0, 1.6, 0.5])).attr("mode", "linear") => close(tol::F32);
        resize_11_scales: case("Resize", 11).x(f32s([1, 1, 4, 6])).c(none()).c(floats(&[1.0, 1.0, 2.0, 2.0])).attr("mode", "linear") => close(tol::F32);
        resize_11_sizes: case("Resize", 11).x(f32s([1, 1, 4, 6])).c(none()).c(none()).x(i64s(&[1, 1, 3, 8])).attr("mode", "linear") => close(tol::F32);
        tf_half_pixel_for_nn: case("Resize", 11).x(f32s([1, 1, 4, 6])).c(none()).c(none()).x(i64s(&[1, 1, 3, 8])).attr("coordinate_transformation_mode", "tf_half_pixel_for_nn") => exact();
        scales: scaled("nearest", [1, 2, 3, 4], [2.0, 3.0]) => exact();
        scales_floor: scaled("linear", [1, 2, 5, 7], [0.7, 1.3]) => close(tol::F32);
        scales_cubic: scaled("cubic", [1, 2, 5, 7], [0.7, 1.3]) => close(tol::F32);
        scales_run_time: scaled_at_run_time([1.0, 1.0, 2.0, 2.0]) => exact();
        symmetric_19: case("Resize", 19).x(f32s([1, 1, 5, 7])).none().c(floats(&[1.0, 1.0, 0.7, 1.3])).attr("mode", "linear").attr("coordinate_transformation_mode", "half_pixel_symmetric") => close(tol::F32);
        symmetric_nearest: case("Resize", 19).x(f32s([1, 1, 5, 7])).none().c(floats(&[1.0, 1.0, 0.7, 1.3])).attr("coordinate_transformation_mode", "half_pixel_symmetric") => exact();
        cubic_excludes_outside: sized("cubic", [1, 1, 4, 5], [8, 9]).attr("exclude_outside", 1) => close(tol::F32);
        cubic_other_coefficient: sized("cubic", [1, 1, 4, 5], [8, 3]).attr("cubic_coeff_a", -0.5f32) => close(tol::F32);
        linear_rank_2: case("Resize", 13).x(f32s([5, 7])).none().none().c(i64s(&[3, 9])).attr("mode", "linear") => close(tol::F32);
        linear_rank_3: case("Resize", 13).x(f32s([1, 5, 7])).none().none().c(i64s(&[1, 3, 9])).attr("mode", "linear") => close(tol::F32);
        linear_rank_5: case("Resize", 13).x(f32s([1, 1, 4, 5, 6])).none().none().c(i64s(&[1, 1, 6, 3, 8])).attr("mode", "linear") => close(tol::F32);
        nearest_all_axes: case("Resize", 13).x(f32s([2, 3, 4])).none().none().c(i64s(&[3, 5, 2])) => exact();
        axes: case("Resize", 18).x(f32s([1, 2, 4, 5])).none().c(floats(&[2.0, 1.5])).attr("axes", vec![3, -2]).attr("mode", "linear") => close(tol::F32);
        axes_sizes: case("Resize", 18).x(f32s([1, 2, 4, 5])).none().none().x(i64s(&[7, 3])).attr("axes", vec![2, 3]) => exact();
        not_larger: case("Resize", 18).x(f32s([1, 2, 4, 5])).none().none().x(i64s(&[7, 8])).attr("axes", vec![2, 3]).attr("keep_aspect_ratio_policy", "not_larger") => exact();
        not_smaller: case("Resize", 18).x(f32s([1, 2, 4, 5])).none().none().x(i64s(&[7, 8])).attr("axes", vec![2, 3]).attr("keep_aspect_ratio_policy", "not_smaller").attr("mode", "linear") => close(tol::F32);
        same_size: sized("linear", [1, 2, 4, 5], [4, 5]) => exact();
        uint8: case("Resize", 13).x(random(E::Uint8, [1, 1, 3, 4])).none().none().c(i64s(&[1, 1, 5, 6])) => exact();
        int32: case("Resize", 13).x(random(E::Int32, [1, 1, 3, 4])).none().none().c(i64s(&[1, 1, 5, 6])) => exact();
        f16_linear: case("Resize", 13).x(random(E::Float16, [1, 1, 3, 4])).none().none().c(i64s(&[1, 1, 5, 6])).attr("mode", "linear") => close(tol::F16);
        bf16_nearest: case("Resize", 13).x(random(E::Bfloat16, [1, 1, 3, 4])).none().none().c(i64s(&[1, 1, 5, 6])) => exact();
        crop_nearest: crop("nearest", &[0.0, 0.0, 0.3, 0.2, 1.0, 1.0, 0.9, 0.8]) => exact();
        crop_linear: crop("linear", &[0.0, 0.0, 0.3, 0.2, 1.0, 1.0, 0.9, 0.8]) => close(tol::F32);
        crop_cubic: crop("cubic", &[0.0, 0.0, 0.3, 0.2, 1.0, 1.0, 0.9, 0.8]) => close(tol::F32);
        crop_outside: crop("nearest", &[0.0, 0.0, -0.3, 0.2, 1.0, 1.0, 0.9, 1.4]) => exact();
        crop_outside_linear: crop("linear", &[0.0, 0.0, -0.3, 0.2, 1.0, 1.0, 0.9, 1.4]) => close(tol::F32);
        crop_scales: crop_scaled("linear") => close(tol::F32);
        crop_scales_nearest: crop_scaled("nearest") => exact();
        align_corners_scales: scaled("linear", [1, 1, 2, 4], [0.6, 0.6]).attr("coordinate_transformation_mode", "align_corners") => close(tol::F32);
        align_corners_scales_cubic: scaled("cubic", [1, 1, 4, 4], [0.8, 0.8]).attr("coordinate_transformation_mode", "align_corners") => close(tol::F32);
        hardly_scaled: scaled("linear", [1, 1, 2, 4], [1.0, 1.1]) => exact();
        to_nothing: scaled("nearest", [1, 1, 2, 4], [0.1, 1.0]) => exact();
        from_nothing: scaled("linear", [1, 1, 0, 4], [2.0, 2.0]) => exact();
        tf_half_pixel_leaves_axes: case("Resize", 11).x(f32s([2, 2, 4, 2])).c(none()).c(none()).x(i64s(&[2, 2, 12, 1])).attr("coordinate_transformation_mode", "tf_half_pixel_for_nn").attr("nearest_mode", "round_prefer_ceil") => exact();
        tf_half_pixel_scales: case("Resize", 11).x(f32s([2, 1, 5, 3])).c(none()).x(floats(&[1.0, 1.0, 0.6, 2.0])).attr("coordinate_transformation_mode", "tf_half_pixel_for_nn").attr("nearest_mode", "round_prefer_ceil") => exact();
        crop_tie: crop_line("round_prefer_ceil") => exact();
        crop_tie_floor: crop_line("round_prefer_floor") => exact();
        crop_of_axis_of_scale_one: crop_wide("nearest", &[0.3, 0.0, 0.9, 0.8]) => exact();
        crop_outside_axis_of_scale_one: crop_wide("nearest", &[-0.3, 0.0, 1.9, 0.8]) => exact();
        crop_linear_of_axis_of_scale_one: crop_wide("linear", &[-0.3, 0.0, 1.9, 0.8]) => close(tol::F32);
        beyond_mlx: scaled_at_run_time([1.0, 1.0, 1e9, 1e9]) => fails("beyond MLX");
        beyond_memory: scaled_at_run_time([1.0, 1.0, 1e8, 1e8]) => fails("more than");
        beyond_memory_linear: scaled_at_run_time([1.0, 1.0, 1e8, 1e8]).attr("mode", "linear") => fails("more than");
        shrinks_and_grows: scaled("linear", [1, 1, 2, 300], [300.0, 0.01]) => close(tol::F32);
        negative_scale: scaled_at_run_time([1.0, 1.0, -1.0, 1.0]) => fails("not positive");
        empty_batch: sized("linear", [0, 2, 4, 5], [8, 10]) => exact();
        empty_batch_nearest: sized("nearest", [0, 2, 4, 5], [8, 10]) => exact();
        antialias: case("Resize", 18).x(f32s([1, 1, 4, 4])).none().c(floats(&[1.0, 1.0, 0.5, 0.5])).attr("mode", "linear").attr("antialias", 1) => declines();
        uint8_linear: case("Resize", 13).x(random(E::Uint8, [1, 1, 3, 4])).none().none().c(i64s(&[1, 1, 5, 6])).attr("mode", "linear") => declines();
    }

    fn crop(mode: &'static str, roi: &[f64]) -> Case {
        case("Resize", 13)
            .x(f32s([1, 1, 6, 7]))
            .x(floats(roi))
            .none()
            .c(i64s(&[1, 1, 4, 5]))
            .attr("mode", mode)
            .attr("coordinate_transformation_mode", "tf_crop_and_resize")
            .attr("extrapolation_value", 9.5f32)
    }

    fn crop_line(rounding: &'static str) -> Case {
        case("Resize", 13)
            .x(f32s([2]))
            .x(floats(&[0.1, 1.3]))
            .c(floats(&[2.0]))
            .attr("mode", "nearest")
            .attr("nearest_mode", rounding)
            .attr("coordinate_transformation_mode", "tf_crop_and_resize")
    }

    /// Only the second of two axes is resized.
    fn crop_wide(mode: &'static str, roi: &[f64]) -> Case {
        case("Resize", 13)
            .x(f32s([4, 5]))
            .x(floats(roi))
            .none()
            .c(i64s(&[4, 7]))
            .attr("mode", mode)
            .attr("coordinate_transformation_mode", "tf_crop_and_resize")
    }

    fn crop_scaled(mode: &'static str) -> Case {
        case("Resize", 13)
            .x(f32s([1, 1, 6, 7]))
            .x(floats(&[0.0, 0.0, 0.3, 0.2, 1.0, 1.0, 0.9, 0.8]))
            .c(floats(&[1.0, 1.0, 1.5, 2.0]))
            .attr("mode", mode)
            .attr("coordinate_transformation_mode", "tf_crop_and_resize")
    }
}
