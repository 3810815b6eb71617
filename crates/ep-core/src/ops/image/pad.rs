//! Pad. Negative amounts crop, and cropping comes first.

use std::fmt;

use mlx_safe::{Array, PadMode};

use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, axes};

/// How the border is filled, and what are attributes before opset 11.
pub(crate) struct Pad {
    mode: Mode,
    attributes: Option<(Vec<i64>, f32)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Constant,
    Edge,
    Reflect,
    Wrap,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Constant => "constant",
            Self::Edge => "edge",
            Self::Reflect => "reflect",
            Self::Wrap => "wrap",
        })
    }
}

/// One axis: elements `start..stop` are kept, with `low` before them and `high` after.
struct Side {
    start: i32,
    stop: i32,
    low: i32,
    high: i32,
}

impl Side {
    fn new(size: i32, low: i64, high: i64) -> Result<Self, LowerError> {
        let misfit =
            || LowerError::invalid(format!("an axis of size {size} cannot be padded by {low} and {high}"));
        let whole = i64::from(size);
        let output = low.checked_add(high).and_then(|n| n.checked_add(whole));
        let output = output.and_then(|n| i32::try_from(n).ok()).filter(|&n| n >= 0).ok_or_else(misfit)?;
        let start = (-low).clamp(0, whole) as i32;
        let stop = (whole - (-high).clamp(0, whole)) as i32;
        if start >= stop {
            return Ok(Self { start: 0, stop: 0, low: output, high: 0 });
        }
        Ok(Self { start, stop, low: low.max(0) as i32, high: high.max(0) as i32 })
    }

    fn kept(&self) -> i32 {
        self.stop - self.start
    }

    fn output(&self) -> i32 {
        self.low + self.kept() + self.high
    }

    /// Where each element of the output comes from among those that are kept, borders included.
    fn sources(&self, mode: Mode) -> Result<Vec<i32>, LowerError> {
        let kept = self.kept();
        let most = if mode == Mode::Reflect { (kept - 1).max(0) } else { i32::MAX };
        let (low, high) = (self.low, self.high);
        if kept == 0 || low.max(high) > most {
            let detail = format!("mode {mode} cannot pad {kept} elements by {low} and {high}");
            return Err(LowerError::invalid(detail));
        }
        let source = |i: i32| match mode {
            Mode::Wrap => i.rem_euclid(kept),
            Mode::Reflect if i < 0 => -i,
            Mode::Reflect if i >= kept => 2 * (kept - 1) - i,
            _ => i.clamp(0, kept - 1),
        };
        Ok((-low..kept + high).map(source).collect())
    }
}

fn sides(shape: &[i32], pads: &[i64], list: Option<Vec<i64>>) -> Result<Vec<Side>, LowerError> {
    let list = list.unwrap_or_else(|| (0..shape.len() as i64).collect());
    if pads.len() != 2 * list.len() {
        return Err(LowerError::invalid(format!("{} pads for {} axes", pads.len(), list.len())));
    }
    let mut amounts = vec![(0, 0); shape.len()];
    for (i, &axis) in list.iter().enumerate() {
        amounts[axes::axis(axis, shape.len())?] = (pads[i], pads[i + list.len()]);
    }
    shape.iter().zip(amounts).map(|(&size, (low, high))| Side::new(size, low, high)).collect()
}

fn column(sides: &[Side], f: fn(&Side) -> i32) -> Vec<i32> {
    sides.iter().map(f).collect()
}

/// What is kept. Every axis keeps something.
fn crop(x: &Array, sides: &[Side]) -> Result<Array, LowerError> {
    if column(sides, Side::kept) == x.shape() {
        return Ok(x.clone());
    }
    Ok(x.slice(&column(sides, |s| s.start), &column(sides, |s| s.stop), &vec![1; sides.len()])?)
}

fn constant(x: &Array, sides: &[Side], value: &Array) -> Result<Array, LowerError> {
    if column(sides, Side::kept).contains(&0) {
        return Ok(mlx_safe::full(&column(sides, Side::output), value)?);
    }
    let axes: Vec<i32> = (0..sides.len() as i32).collect();
    let (low, high) = (column(sides, |s| s.low), column(sides, |s| s.high));
    Ok(crop(x, sides)?.pad(&axes, &low, &high, value, PadMode::Constant)?)
}

impl Op for Pad {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Pad")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let mode = match node.string_or("mode", "constant")? {
            "constant" => Mode::Constant,
            "edge" => Mode::Edge,
            "reflect" => Mode::Reflect,
            "wrap" if node.version() >= 19 => Mode::Wrap,
            other => return Err(Decline::attribute("mode", other)),
        };
        let attributes = if node.version() < 11 {
            let pads = node.ints("pads")?.ok_or_else(|| Decline::invalid("pads are missing"))?;
            Some((pads, node.float_or("value", 0.0)?))
        } else {
            None
        };
        Ok(Self { mode, attributes })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the amounts are worked out on the host")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let sides = match &self.attributes {
            Some((pads, _)) => sides(x.shape(), pads, None)?,
            None => sides(x.shape(), &cx.ints(1)?, cx.optional_ints(3)?)?,
        };
        if self.mode == Mode::Constant {
            let value = match (&self.attributes, cx.optional_array(2)?) {
                (Some((_, value)), _) => Array::scalar_of((*value).into(), x.dtype())?,
                (None, Some(value)) => value.reshape(&[])?,
                (None, None) => Array::scalar_of(0.0, x.dtype())?,
            };
            return cx.emit(0, constant(&x, &sides, &value)?);
        }
        let shape = column(&sides, Side::output);
        if x.size() == 0 {
            // As on ONNX Runtime: no border can be made of nothing, and any of an axis that does not matter.
            if let Some(axis) = (0..shape.len()).find(|&axis| x.shape()[axis] == 0 && shape[axis] > 0) {
                let detail = format!("mode {} cannot pad axis {axis} of {x}", self.mode);
                return Err(LowerError::invalid(detail));
            }
            return cx.emit(0, mlx_safe::zeros(&shape, x.dtype())?);
        }
        cx.afford(&shape, x.dtype())?;
        let sources: Vec<Vec<i32>> = sides.iter().map(|s| s.sources(self.mode)).collect::<Result<_, _>>()?;
        let mut y = crop(&x, &sides)?;
        for (axis, sources) in sources.iter().enumerate() {
            if sides[axis].output() != sides[axis].kept() {
                y = y.take(&Array::from_slice(sources, &[sources.len() as i32])?, axis as i32)?;
            }
        }
        cx.emit(0, y)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    /// Pads along all axes in order, by amounts at run time.
    fn pad(mode: &'static str, dims: &[usize], pads: &[i64]) -> Case {
        case("Pad", 19).x(f32s(dims)).x(i64s(pads)).attr("mode", mode)
    }

    op_cases! {
        attributes: case("Pad", 2).x(f32s([2, 3])).attr("pads", vec![1, 0, 2, 1]).attr("value", 1.5f32) => exact();
        attributes_reflect: case("Pad", 10).x(f32s([3, 4])).attr("pads", vec![1, 2, 2, 3]).attr("mode", "reflect") => exact();
        constant: case("Pad", 11).x(f32s([2, 3])).c(i64s(&[1, 0, 2, 1])).c(tensor(E::Float, [], &[7.0])) => exact();
        constant_default: pad("constant", &[2, 3], &[1, 0, 2, 1]) => exact();
        constant_of_one: case("Pad", 13).x(f32s([2])).x(i64s(&[1, 1])).x(tensor(E::Float, [1], &[7.0])) => exact();
        constant_axes: case("Pad", 18).x(f32s([2, 3, 4])).c(i64s(&[1, 2, 3, 0])).none().c(i64s(&[-1, 0])) => exact();
        int32_axes: case("Pad", 18).x(f32s([2, 3])).x(i64s(&[1, 2])).none().x(tensor(E::Int32, [1], &[-1.0])) => exact();
        constant_crops: pad("constant", &[4, 5], &[-1, 0, -1, -2]) => exact();
        constant_crops_and_pads: pad("constant", &[4, 5], &[-1, 2, 3, -2]) => exact();
        constant_crops_all: pad("constant", &[3], &[-3, 0]) => exact();
        constant_crops_more: pad("constant", &[3], &[-5, 3]) => exact();
        constant_crops_too_much: pad("constant", &[3], &[-2, -2]) => fails("cannot be padded");
        constant_empty: pad("constant", &[0, 2], &[1, 0, 1, 1]) => exact();
        constant_stays_empty: pad("constant", &[0, 2], &[0, 1, 0, 1]) => exact();
        edge: pad("edge", &[2, 3], &[1, 4, 2, 5]) => exact();
        edge_crops: pad("edge", &[4, 3], &[-1, 2, 3, -1]) => exact();
        reflect: pad("reflect", &[2, 3, 4, 5], &[0, 0, 1, 2, 0, 0, 3, 4]) => exact();
        reflect_most: pad("reflect", &[3], &[2, 2]) => exact();
        reflect_too_much: pad("reflect", &[3], &[3, 0]) => fails("mode reflect cannot pad 3 elements");
        reflect_empty_crops: pad("reflect", &[0, 4], &[0, -1, 0, 3]) => exact();
        reflect_empty_far: pad("reflect", &[0, 4], &[0, 5, 0, 3]) => exact();
        reflect_empty_crops_all: pad("reflect", &[0, 4], &[0, -4, 0, 3]) => exact();
        edge_empty_crops_all: pad("edge", &[0, 4], &[0, -4, 0, 3]) => exact();
        edge_crops_all: pad("edge", &[4], &[-4, 0]) => fails("mode edge cannot pad 0 elements");
        edge_crops_all_and_pads: pad("edge", &[3, 4], &[1, -4, 0, 0]) => fails("mode edge cannot pad 0 elements");
        reflect_crops_all: pad("reflect", &[4], &[-2, -2]) => fails("mode reflect cannot pad 0 elements");
        wrap_crops_all: pad("wrap", &[4], &[2, -4]) => fails("mode wrap cannot pad 0 elements");
        edge_beyond: pad("edge", &[3, 4], &[1 << 30, 1 << 20, 0, 0]) => fails("more than");
        reflect_crops: pad("reflect", &[5], &[-1, 3]) => exact();
        reflect_crops_too_much: pad("reflect", &[3], &[-1, 2]) => fails("cannot pad");
        reflect_one_by_none: pad("reflect", &[1, 3], &[0, 1, 0, 1]) => exact();
        reflect_empty: pad("reflect", &[0, 3], &[0, 1, 0, 1]) => exact();
        reflect_of_nothing: pad("reflect", &[0, 3], &[1, 0, 1, 0]) => fails("cannot pad");
        edge_of_nothing: pad("edge", &[0, 3], &[1, 0, 1, 0]) => fails("cannot pad");
        wrap: pad("wrap", &[3, 2], &[2, 1, 2, 0]) => exact();
        wrap_around: pad("wrap", &[3], &[5, 7]) => exact();
        wrap_crops: pad("wrap", &[4], &[-1, 4]) => exact();
        bool: case("Pad", 13).x(random(E::Bool, [5])).x(i64s(&[1, 2])).c(tensor(E::Bool, [], &[1.0])) => exact();
        int8: case("Pad", 13).x(random(E::Int8, [5])).x(i64s(&[1, 2])).c(tensor(E::Int8, [], &[-3.0])) => exact();
        int64_edge: case("Pad", 13).x(random(E::Int64, [90])).x(i64s(&[1, 2])).attr("mode", "edge") => exact();
        uint64: case("Pad", 13).x(random(E::Uint64, [5])).x(i64s(&[1, 2])) => exact();
        f16: case("Pad", 13).x(random(E::Float16, [5])).x(i64s(&[1, 2])).c(tensor(E::Float16, [], &[0.5])) => exact();
        wrap_too_early: case("Pad", 18).x(f32s([3])).x(i64s(&[1, 1])).attr("mode", "wrap") => declines();
    }
}
