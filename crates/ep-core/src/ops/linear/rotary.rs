//! Rotary position embedding: pairs of elements of the last axis turned by an angle. `RotaryEmbedding` (ai.onnx 23, and
//! com.microsoft) with tables of cosines and sines, and this project's `Rotary`, which takes them as they broadcast.
//! Computed in float32.

use mlx_safe::{Array, Dtype, concatenate, stack};

use crate::axes::axis;
use crate::convert::in_float32;
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::ops::index::bounds::{checked, checked_array};
use crate::{Decline, LowerError, NodeRef};

/// `RotaryEmbedding`: X (B, S, N * D) or (B, N, S, D), a cosine and a sine table (P, R / 2) with positions (B, S), or the
/// tables' rows (B, S, R / 2). The first R of D elements are turned.
pub(crate) struct RotaryEmbedding {
    /// Which inputs are positions, cosines and sines.
    inputs: [usize; 3],
    interleaved: bool,
    heads: i64,
    /// R; 0 for all.
    width: i64,
    /// Whether one position may be given, from which the others count.
    counts: bool,
}

impl Op for RotaryEmbedding {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("RotaryEmbedding"), OpKey::microsoft("RotaryEmbedding")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_float(0)?;
        let microsoft = node.domain() == "com.microsoft";
        let inputs = if microsoft { [1, 2, 3] } else { [3, 1, 2] };
        inputs[1..].iter().try_for_each(|&i| node.expect_float(i).map(drop))?;
        if microsoft && node.int_or("is_packed_batching", 0)? != 0 {
            return Err(Decline::attribute("is_packed_batching", 1));
        }
        if microsoft && node.float_or("scale", 1.0)? != 1.0 {
            return Err(Decline::attribute("scale", node.float_or("scale", 1.0)?));
        }
        Ok(Self {
            inputs,
            interleaved: node.int_or("interleaved", 0)? != 0,
            heads: node.int_or("num_heads", 0)?,
            width: node.int_or("rotary_embedding_dim", 0)?,
            counts: microsoft,
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("heads are split, and positions checked against the tables")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let x = cx.array(0)?;
        let shape = x.shape().to_vec();
        let by_head = match shape[..] {
            [_, _, _, _] => x,
            [b, s, hidden] => {
                let heads = self.heads(cx, hidden)?;
                x.reshape(&[b, s, heads, hidden / heads.max(1)])?.transpose(&[0, 2, 1, 3])?
            }
            _ => return Err(LowerError::invalid(format!("X {shape:?} has neither 3 nor 4 axes"))),
        };
        let [cos, sin] = self.rows(cx, by_head.dim(0)?, by_head.dim(2)?)?;
        let (all, half) = (by_head.dim(-1)?, cos.dim(-1)?);
        let width = if self.width == 0 { all } else { i32::try_from(self.width).unwrap_or(i32::MAX) };
        if width > all || half.checked_mul(2) != Some(width) || cos.shape() != sin.shape() {
            return Err(LowerError::invalid(format!(
                "tables {:?} and {:?} for {width} of {all} elements",
                cos.shape(),
                sin.shape()
            )));
        }
        let both = |t: &Array| -> mlx_safe::Result<[Array; 2]> {
            let t = t.astype(Dtype::Float32)?.expand_dims(1)?;
            Ok([t.clone(), t])
        };
        let (cos, sin) = (both(&cos)?, both(&sin)?);
        let y = turned_first(&by_head, width, |x| turn(x, &cos, &sin, self.interleaved))?;
        let y = if shape.len() == 4 { y } else { y.transpose(&[0, 2, 1, 3])?.reshape(&shape)? };
        cx.emit(0, y)
    }
}

impl RotaryEmbedding {
    fn heads(&self, cx: &Lowering<'_>, hidden: i32) -> Result<i32, LowerError> {
        let by_width = || {
            let width = match self.width {
                // com.microsoft: the tables are as wide as half a head.
                0 => i64::from(*cx.shape(self.inputs[1]).ok()?.last()?) * 2,
                width => width,
            };
            (width > 0).then(|| i64::from(hidden) / width)
        };
        let heads = if self.heads == 0 { by_width().unwrap_or(0) } else { self.heads };
        match i32::try_from(heads) {
            Ok(heads) if heads > 0 && hidden % heads == 0 => Ok(heads),
            _ => Err(LowerError::invalid(format!("{hidden} elements for {heads} heads"))),
        }
    }

    /// Cosines and sines of the positions, each (B or 1, S, R / 2).
    fn rows(&self, cx: &mut Lowering<'_>, batch: i32, length: i32) -> Result<[Array; 2], LowerError> {
        let [positions, cos, sin] = self.inputs;
        let tables = [cx.array(cos)?, cx.array(sin)?];
        if !cx.has_input(positions) {
            let fits = |t: &Array| t.ndim() == 3 && t.shape()[..2] == [batch, length];
            if !tables.iter().all(fits) {
                return Err(LowerError::invalid(format!("tables {:?} without positions", tables[0].shape())));
            }
            return Ok(tables);
        }
        if tables.iter().any(|t| t.ndim() != 2) {
            return Err(LowerError::invalid(format!("tables {:?} with positions", tables[0].shape())));
        }
        let rows = tables[0].dim(0)?.min(tables[1].dim(0)?);
        let given = cx.shape(positions)?;
        let at = if self.counts && given.iter().product::<i32>() == 1 {
            let first = cx.array(positions)?.reshape(&[1, 1])?;
            let steps = mlx_safe::arange(0.0, length.into(), 1.0, first.dtype())?.reshape(&[1, length])?;
            checked_array(cx, first.add(&steps)?, rows)?
        } else if given == [batch, length] {
            checked(cx, positions, rows)?
        } else {
            return Err(LowerError::invalid(format!("positions {given:?} for {batch} x {length}")));
        };
        let [cos, sin] = tables;
        Ok([cos.take(&at, 0)?, sin.take(&at, 0)?])
    }
}

/// `Rotary` of ai.ortmlx, which rewrite rules put in place of its spellings: x and tables of cosines and sines that
/// broadcast against it, or against half of it.
pub(crate) struct Rotary {
    interleaved: bool,
    /// Whether the tables are for one element of each pair and broadcast against half of x.
    by_half: bool,
    /// How many elements the last axis of x has; 0 if that is not certain.
    width: i64,
}

impl Op for Rotary {
    const KEYS: &'static [OpKey] = &[OpKey::own("Rotary")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        (0..3).try_for_each(|i| node.expect_float(i).map(drop))?;
        Ok(Self {
            interleaved: node.int_or("interleaved", 0)? != 0,
            by_half: node.int_or("by_half", 0)? != 0,
            width: node.int_or("width", 0)?,
        })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the last axis is halved")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let wide = |i: usize| Ok::<_, LowerError>(cx.array(i)?.astype(Dtype::Float32)?);
        let (x, cos, sin) = (wide(0)?, wide(1)?, wide(2)?);
        axis(-1, x.ndim())?;
        let width = x.dim(-1)?;
        if width % 2 != 0 || self.width != 0 && self.width != i64::from(width) {
            return Err(LowerError::invalid(format!("X {:?} cannot be halved", x.shape())));
        }
        let table = |t: &Array| -> mlx_safe::Result<[Array; 2]> {
            let of_both = self.by_half || t.ndim() == 0 || t.dim(-1)? == 1;
            if of_both { Ok([t.clone(), t.clone()]) } else { pairs(t, self.interleaved) }
        };
        let y = turn(&x, &table(&cos)?, &table(&sin)?, self.interleaved)?;
        // Pairs that were apart are put back into the shape of x.
        if self.by_half && self.interleaved && y.shape() != x.shape() {
            return Err(LowerError::invalid(format!("{:?} turned is {:?}", x.shape(), y.shape())));
        }
        let dtype = cx.output_dtype(0)?;
        cx.emit(0, y.astype(dtype)?)
    }
}

/// Applies `turn` in float32 to the first `width` elements of the last axis.
fn turned_first(
    x: &Array,
    width: i32,
    turn: impl Fn(&Array) -> mlx_safe::Result<Array>,
) -> mlx_safe::Result<Array> {
    if width == x.dim(-1)? {
        return in_float32(x, turn);
    }
    let parts = x.split(&[width], -1)?;
    concatenate(&[in_float32(&parts[0], turn)?, parts[1].clone()], -1)
}

/// Pairs (a, b) of x as (a cos - b sin, b cos + a sin), with tables for a and for b.
fn turn(x: &Array, cos: &[Array; 2], sin: &[Array; 2], interleaved: bool) -> mlx_safe::Result<Array> {
    let [a, b] = pairs(x, interleaved)?;
    let turned = [
        a.multiply(&cos[0])?.subtract(&b.multiply(&sin[0])?)?,
        b.multiply(&cos[1])?.add(&a.multiply(&sin[1])?)?,
    ];
    if !interleaved {
        return concatenate(&turned, -1);
    }
    let stacked = stack(&turned, -1)?;
    let (kept, pair) = (stacked.ndim() - 2, stacked.shape());
    stacked.reshape(&[&pair[..kept], &[pair[kept] * 2]].concat())
}

/// The pairs of the last axis, apart: an element of the first half and one of the second, or two neighbours if
/// `interleaved`.
fn pairs(x: &Array, interleaved: bool) -> mlx_safe::Result<[Array; 2]> {
    let half = x.dim(-1)? / 2;
    if interleaved {
        let pairs = x.reshape(&[&x.shape()[..x.ndim() - 1], &[half, 2]].concat())?;
        return Ok([pairs.slice_axis(-1, 0)?, pairs.slice_axis(-1, 1)?]);
    }
    let halves = x.split(&[half], -1)?;
    Ok([halves[0].clone(), halves[1].clone()])
}

#[cfg(test)]
mod tests {
    use onnx_graph::Tensor;

    use crate::testing::*;

    /// X, a table of 6 positions, and positions (2, 3).
    fn rotary(element: E, x: impl Into<Vec<usize>>, half: usize) -> Case {
        let table = |low| uniform(element, [6, half], low, 1.0);
        case("RotaryEmbedding", 23).x(random(element, x)).c(table(-1.0)).c(table(-0.5)).x(positions())
    }

    fn positions() -> Tensor<'static> {
        Tensor::new(
            E::Int64,
            [2, 3],
            [0i64, 5, 2, 1, 1, 4].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>(),
        )
        .expect("six integers")
    }

    fn microsoft(x: impl Into<Vec<usize>>, positions: Tensor<'static>) -> Case {
        let table = |low| uniform(E::Float, [6, 4], low, 1.0);
        case("RotaryEmbedding", 17).microsoft().x(f32s(x)).x(positions).c(table(-1.0)).c(table(-0.5))
    }

    op_cases! {
        by_head: rotary(E::Float, [2, 4, 3, 8], 4) => close(tol::F32);
        by_head_interleaved: rotary(E::Float, [2, 4, 3, 8], 4).attr("interleaved", 1) => close(tol::F32);
        merged: rotary(E::Float, [2, 3, 32], 4).attr("num_heads", 4) => close(tol::F32);
        part: rotary(E::Float, [2, 4, 3, 8], 2).attr("rotary_embedding_dim", 4) => close(tol::F32);
        merged_part_interleaved: rotary(E::Float, [2, 3, 32], 3).attr("rotary_embedding_dim", 6).attr("num_heads", 2).attr("interleaved", 1) => close(tol::F32);
        rows: case("RotaryEmbedding", 23).x(f32s([2, 4, 3, 8])).x(f32s([2, 3, 4])).x(uniform(E::Float, [2, 3, 4], 0.0, 1.0)) => close(tol::F32);
        half: rotary(E::Float16, [2, 4, 3, 8], 4) => close(tol::F16);
        from_microsoft: microsoft([2, 3, 32], positions()).attr("num_heads", 4) => close(tol::F32);
        from_microsoft_without_heads: microsoft([2, 3, 32], positions()) => close(tol::F32);
        from_microsoft_by_head: microsoft([2, 4, 3, 8], positions()).attr("interleaved", 1) => close(tol::F32);
        from_microsoft_counting: microsoft([2, 3, 32], i64s(&[2])).attr("num_heads", 4) => close(tol::F32);
        scaled: microsoft([2, 3, 32], positions()).attr("scale", 0.5f32) => declines();
        packed: microsoft([2, 3, 32], positions()).attr("is_packed_batching", 1) => declines();
    }
}
