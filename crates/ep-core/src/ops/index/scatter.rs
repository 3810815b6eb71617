//! ScatterElements (Scatter before opset 11) and ScatterND.

use mlx_safe::{Array, DeviceType, Dtype, ScatterMode};
use onnx_graph::ElementType;

use super::bounds::{checked, checked_array, positions};
use super::gather_nd::column_of;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, axes};

fn mode(node: &NodeRef<'_>) -> Result<ScatterMode, Decline> {
    let mode = match node.string_or("reduction", "none")? {
        "none" => return Ok(ScatterMode::Set),
        "add" => ScatterMode::Add,
        "mul" => ScatterMode::Prod,
        "max" => ScatterMode::Max,
        "min" => ScatterMode::Min,
        other => return Err(Decline::attribute("reduction", other)),
    };
    let element = node.expect_type(0, |e| e != ElementType::Bool)?;
    if element.bits() == 64 && node.device() == DeviceType::Gpu {
        return Err(Decline::dtype("a reduction's data on a GPU", element));
    }
    Ok(mode)
}

/// MLX's scatter, 64-bit data included: Metal moves at most 32 bits at once, so they go as pairs.
fn scatter(
    x: &Array,
    mode: ScatterMode,
    indices: &[Array],
    updates: &Array,
    axes: &[i32],
) -> Result<Array, LowerError> {
    if x.dtype().size() < 8 || mode != ScatterMode::Set {
        return Ok(x.scatter(mode, indices, updates, axes)?);
    }
    let halves = |a: &Array| a.expand_dims(&[-1])?.contiguous()?.view(Dtype::Uint32);
    let whole = halves(x)?.scatter(mode, indices, &halves(updates)?, axes)?;
    Ok(whole.view(x.dtype())?.squeeze(&[-1])?)
}

/// One element of `axis` written for every index.
pub(crate) struct ScatterElements {
    axis: i64,
    mode: ScatterMode,
}

impl Op for ScatterElements {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Scatter"), OpKey::onnx("ScatterElements")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(Self { axis: node.int_or("axis", 0)?, mode: mode(node)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("indices are checked against the axis's size")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (x, shape) = (cx.array(0)?, cx.shape(1)?);
        let rank = x.ndim();
        let axis = axes::axis(self.axis, rank)?;
        let fits = |i: usize| i == axis || shape[i] <= x.shape()[i];
        if shape.len() != rank || shape != cx.shape(2)? || !(0..rank).all(fits) {
            return Err(LowerError::invalid(format!(
                "indices of shape {shape:?} and updates of shape {:?} do not fit data of shape {:?}",
                cx.shape(2)?,
                x.shape()
            )));
        }
        if shape.contains(&0) {
            return cx.forward(0, 0);
        }
        let indices = checked(cx, 1, x.shape()[axis])?;
        let tuple: Vec<Array> = (0..rank)
            .map(|i| if i == axis { Ok(indices.clone()) } else { positions(shape[i], i, rank) })
            .collect::<Result<_, _>>()?;
        let updates = cx.array(2)?.reshape(&[shape, vec![1; rank]].concat())?;
        let axes: Vec<i32> = (0..rank as i32).collect();
        cx.emit(0, scatter(&x, self.mode, &tuple, &updates, &axes)?)
    }
}

/// Slices written at tuples of indices, which are the last axis of the indices.
pub(crate) struct ScatterNd {
    mode: ScatterMode,
}

impl Op for ScatterNd {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("ScatterND")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        Ok(Self { mode: mode(node)? })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("indices are checked against the axes' sizes")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let (x, indices, updates) = (cx.array(0)?, cx.array(1)?, cx.array(2)?);
        let misfit =
            || LowerError::invalid(format!("indices of {indices} and updates of {updates} do not fit {x}"));
        let (&width, lead) = indices.shape().split_last().ok_or_else(misfit)?;
        let width = width as usize;
        let rest = x.shape().get(width..).ok_or_else(misfit)?;
        if updates.shape() != [lead, rest].concat() {
            return Err(misfit());
        }
        let mut tuple = Vec::with_capacity(width);
        for axis in 0..width {
            let column = column_of(&indices, axis)?;
            tuple.push(checked_array(cx, column, x.shape()[axis])?);
        }
        if updates.size() == 0 {
            return cx.forward(0, 0);
        }
        let updates = updates.reshape(&[lead, &vec![1; width], rest].concat())?;
        let axes: Vec<i32> = (0..width as i32).collect();
        cx.emit(0, scatter(&x, self.mode, &tuple, &updates, &axes)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn elements(reduction: &'static str, element: E) -> Case {
        // Every index is there several times.
        case("ScatterElements", 18)
            .x(uniform(element, [4, 3], 0.0, 9.0))
            .x(tensor(
                E::Int64,
                [5, 3],
                &[0.0, 1.0, -1.0, 3.0, 1.0, 2.0, 0.0, -3.0, 2.0, 0.0, 1.0, 3.0, 1.0, 1.0, 1.0],
            ))
            .x(uniform(element, [5, 3], 1.0, 5.0))
            .attr("reduction", reduction)
    }

    fn nd(reduction: &'static str, element: E) -> Case {
        case("ScatterND", 18)
            .x(uniform(element, [4, 3], 0.0, 9.0))
            .x(tensor(E::Int64, [3, 1], &[1.0, -1.0, 1.0]))
            .x(uniform(element, [3, 3], 1.0, 5.0))
            .attr("reduction", reduction)
    }

    op_cases! {
        set: case("ScatterElements", 13).x(f32s([3, 3])).c(tensor(E::Int64, [2, 3], &[1.0, 0.0, 2.0, 0.0, 2.0, -2.0])).x(f32s([2, 3])) => exact();
        set_columns: case("ScatterElements", 11).x(f32s([1, 5])).x(tensor(E::Int32, [1, 2], &[1.0, -2.0])).x(f32s([1, 2])).attr("axis", 1) => exact();
        set_old: case("Scatter", 9).x(f32s([3, 3])).x(tensor(E::Int64, [2, 3], &[1.0, 0.0, 2.0, 0.0, 2.0, 1.0])).x(f32s([2, 3])) => exact();
        set_smaller: case("ScatterElements", 13).x(f32s([4, 5, 6])).x(tensor(E::Int64, [2, 2, 1], &[0.0, 4.0, 2.0, -2.0])).x(f32s([2, 2, 1])).attr("axis", -2) => exact();
        set_int64: case("ScatterElements", 13).x(random(E::Int64, [30, 5])).x(tensor(E::Int64, [2, 2], &[1.0, 0.0, 2.0, 29.0])).x(i64_pairs()) => exact();
        set_bool: case("ScatterElements", 13).x(random(E::Bool, [70])).x(i64s(&[4, 66])).x(tensor(E::Bool, [2], &[1.0, 0.0])) => exact();
        set_uint8: case("ScatterElements", 13).x(random(E::Uint8, [70])).x(i64s(&[4, 66])).x(tensor(E::Uint8, [2], &[200.0, 255.0])) => exact();
        set_f16: case("ScatterElements", 13).x(random(E::Float16, [70])).x(i64s(&[4, 66])).x(random(E::Float16, [2])) => exact();
        add: elements("add", E::Float) => close(tol::F32);
        mul: elements("mul", E::Float) => close(tol::F32);
        max: elements("max", E::Float) => exact();
        min: elements("min", E::Float) => exact();
        add_int64: elements("add", E::Int64) => exact();
        mul_int32: elements("mul", E::Int32) => exact();
        max_uint8: elements("max", E::Uint8) => exact();
        min_int64: elements("min", E::Int64) => exact();
        add_f16: elements("add", E::Float16) => close(tol::F16);
        add_16: case("ScatterElements", 16).x(f32s([3])).x(i64s(&[1, 1])).x(f32s([2])).attr("reduction", "add") => close(tol::F32);
        nothing: case("ScatterElements", 18).x(f32s([3])).x(i64s(&[])).x(f32s([0])) => exact();
        beyond: case("ScatterElements", 18).x(f32s([3])).x(i64s(&[3])).x(f32s([1])) => fails("out of range");
        beyond_on_the_device: case("ScatterElements", 18).x(f32s([3])).x(uniform(E::Int64, [80], -4.0, 3.0)).x(f32s([80])) => fails("out of range");
        misfit: case("ScatterElements", 18).x(f32s([3])).x(i64s(&[1])).x(f32s([2])) => fails("do not fit");

        nd_elements: case("ScatterND", 13).x(f32s([3, 4])).c(tensor(E::Int64, [2, 2], &[0.0, 1.0, 2.0, -1.0])).x(f32s([2])) => exact();
        nd_rows: case("ScatterND", 11).x(f32s([4, 3, 2])).x(tensor(E::Int64, [2, 1], &[0.0, -1.0])).x(f32s([2, 3, 2])) => exact();
        nd_deep: case("ScatterND", 16).x(f32s([4, 3, 2])).x(tensor(E::Int64, [1, 2, 2], &[0.0, 1.0, -1.0, 2.0])).x(f32s([1, 2, 2])) => exact();
        nd_int64: case("ScatterND", 13).x(random(E::Int64, [40, 3])).x(tensor(E::Int64, [2, 2], &[0.0, 1.0, 2.0, -1.0])).x(i64s(&[1 << 60, -7])) => exact();
        nd_bool: case("ScatterND", 13).x(random(E::Bool, [40, 3])).x(tensor(E::Int64, [2, 2], &[0.0, 1.0, 2.0, -1.0])).x(tensor(E::Bool, [2], &[1.0, 0.0])) => exact();
        nd_add: nd("add", E::Float) => close(tol::F32);
        nd_mul: nd("mul", E::Float) => close(tol::F32);
        nd_max: nd("max", E::Float) => exact();
        nd_min: nd("min", E::Int32) => exact();
        nd_add_int64: nd("add", E::Int64) => exact();
        nd_add_bf16: nd("add", E::Bfloat16) => close(tol::BF16);
        nd_nothing: case("ScatterND", 13).x(f32s([3, 4])).x(random(E::Int64, [0, 1])).x(f32s([0, 4])) => exact();
        nd_beyond: case("ScatterND", 13).x(f32s([3, 4])).x(tensor(E::Int64, [1, 1], &[3.0])).x(f32s([1, 4])) => fails("out of range");
        nd_beyond_backwards: case("ScatterND", 13).x(f32s([3, 4])).x(tensor(E::Int64, [1, 1], &[-4.0])).x(f32s([1, 4])) => fails("out of range");
        add_bool: case("ScatterND", 16).x(random(E::Bool, [3])).x(tensor(E::Int64, [1, 1], &[1.0])).x(random(E::Bool, [1])).attr("reduction", "add") => declines();
    }

    fn i64_pairs() -> onnx_graph::Tensor<'static> {
        let values: Vec<u8> = [1i64 << 60, -7, i64::MIN, 3].iter().flat_map(|v| v.to_le_bytes()).collect();
        onnx_graph::Tensor::new(E::Int64, [2, 2], values).expect("four values")
    }
}
