//! Operations that move elements without computing them. Shapes and axes that do not fit are errors.

use std::ffi::CStr;

use super::{by_axes, by_axis, methods, op, op_vec};
use crate::error::argument;
use crate::{Array, Axes, Result};

methods! {
    /// Axis i of the result is axis `axes[i]` of the array.
    transpose(axes: &[i32]) => mlx_transpose_axes(axes.as_ptr(), axes.len());
    /// The axes in reverse: a matrix transposed.
    t() => mlx_transpose();
    /// Two axes exchanged.
    swapaxes(first: i32, second: i32) => mlx_swapaxes(first, second);
    /// Axis `source` moved to `destination`, the others in order.
    moveaxis(source: i32, destination: i32) => mlx_moveaxis(source, destination);
    /// Repeated without copying to `shape`, by the rules of broadcasting.
    broadcast_to(shape: &[i32]) => mlx_broadcast_to(shape.as_ptr(), shape.len());
    /// Axes `first` to `last` merged.
    flatten(first: i32, last: i32) => mlx_flatten(first, last);
    /// Repeated whole, `repeats[i]` times along axis i.
    tile(repeats: &[i32]) => mlx_tile(repeats.as_ptr(), repeats.len());
    /// With 1 axis at least.
    atleast_1d() => mlx_atleast_1d();
    /// With 2 axes at least: a vector (N) becomes (1, N).
    atleast_2d() => mlx_atleast_2d();
    /// With 3 axes at least: a vector (N) becomes (1, N, 1), a matrix (M, N) becomes (M, N, 1).
    atleast_3d() => mlx_atleast_3d();
}

by_axes! {
    /// Axes of size 1 removed: these, or with `..` all of them.
    squeeze() => mlx_squeeze, mlx_squeeze_axis, mlx_squeeze_axes;
}

by_axis! {
    /// Every element repeated along `axis`.
    repeat[axis](repeats: i32, axis: impl Into<Option<i32>>) => mlx_repeat(repeats), mlx_repeat_axis(repeats, axis);
}

/// How [`Array::pad`] fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadMode {
    /// With the given value.
    Constant,
    /// With the nearest edge.
    Edge,
}

impl PadMode {
    fn name(self) -> &'static CStr {
        match self {
            Self::Constant => c"constant",
            Self::Edge => c"edge",
        }
    }
}

fn one_value(op: &'static str, value: &Array) -> Result<()> {
    if value.size() != 1 {
        return argument(op, format!("{value:?} is no scalar to fill with"));
    }
    Ok(())
}

/// Sizes of which at most one is -1, none less.
fn one_unknown(op: &'static str, shape: &[i32]) -> Result<()> {
    if shape.iter().any(|&n| n < -1) || shape.iter().filter(|&&n| n == -1).count() > 1 {
        return argument(op, format!("{shape:?}: one size may be -1, no other negative"));
    }
    Ok(())
}

impl Array {
    /// The elements in order as `shape`; one size may be -1.
    ///
    /// # Errors
    /// If the sizes do not fit.
    pub fn reshape(&self, shape: &[i32]) -> Result<Array> {
        one_unknown("reshape", shape)?;
        op!("reshape", mlx_reshape(self.raw(), shape.as_ptr(), shape.len()))
    }

    /// The same elements, row-major without gaps.
    ///
    /// # Errors
    /// If MLX refuses.
    pub fn contiguous(&self) -> Result<Array> {
        op!("contiguous", mlx_contiguous(self.raw(), false))
    }

    /// Axis `axis` as the axes of `shape`, of which one may be -1.
    ///
    /// # Errors
    /// If the sizes do not fit.
    pub fn unflatten(&self, axis: i32, shape: &[i32]) -> Result<Array> {
        one_unknown("unflatten", shape)?;
        // MLX divides by the others.
        if shape.contains(&-1) && shape.contains(&0) {
            return argument("unflatten", format!("{shape:?}: a size beside 0 cannot be found"));
        }
        op!("unflatten", mlx_unflatten(self.raw(), axis, shape.as_ptr(), shape.len()))
    }

    /// Reversed along `axes`, as a copy: see [`Array::slice`].
    ///
    /// # Errors
    /// If there is no such axis.
    pub fn flip<'a>(&self, axes: impl Into<Axes<'a>>) -> Result<Array> {
        let axes = axes.into();
        let (mut long, mut short) = (Vec::new(), false);
        for axis in axes.list(self.ndim()) {
            if self.dim(axis)? == 1 { short = true } else { long.push(axis) }
        }
        if short {
            // There is nothing to reverse, and MLX's rules for derivatives lose what is.
            return self.flip(&long);
        }
        let view = match axes {
            Axes::All => op!("flip", mlx_flip(self.raw())),
            Axes::One(axis) => op!("flip", mlx_flip_axis(self.raw(), axis)),
            Axes::These(axes) => op!("flip", mlx_flip_axes(self.raw(), axes.as_ptr(), axes.len())),
        };
        view?.contiguous()
    }

    /// Diagonal `offset` of the matrices that `axis1` and `axis2` span, as the last axis.
    ///
    /// # Errors
    /// If there are no such axes.
    pub fn diagonal(&self, offset: i32, axis1: i32, axis2: i32) -> Result<Array> {
        op!("diagonal", mlx_diagonal(self.raw(), offset, axis1, axis2))?.zeros_if_from_empty(&[self])
    }

    /// `low[i]` elements before and `high[i]` after axis `axes[i]`, filled by `mode`; `value` is a scalar of the array's
    /// type.
    ///
    /// # Errors
    /// If the three slices differ in length, an amount is negative, an axis is named twice or `value` is no scalar.
    pub fn pad(
        &self,
        axes: &[i32],
        low: &[i32],
        high: &[i32],
        value: &Array,
        mode: PadMode,
    ) -> Result<Array> {
        if axes.len() != low.len() || axes.len() != high.len() || low.iter().chain(high).any(|&n| n < 0) {
            return argument("pad", format!("axes {axes:?}, low {low:?} and high {high:?} do not fit"));
        }
        one_value("pad", value)?;
        let name = mode.name().as_ptr();
        // MLX's other modes take every axis or none.
        let rank = self.ndim();
        let (mut all_low, mut all_high) = (vec![0; rank], vec![0; rank]);
        let mut seen = vec![false; rank];
        for ((&axis, &before), &after) in axes.iter().zip(low).zip(high) {
            let axis = self.axis(axis)?;
            if std::mem::replace(&mut seen[axis], true) {
                return argument("pad", format!("axis {axis} is named twice"));
            }
            (all_low[axis], all_high[axis]) = (before, after);
        }
        let axes = Axes::All.list(rank);
        let (axes, low, high, n) = (axes.as_ptr(), all_low, all_high, rank);
        op!("pad", mlx_pad(self.raw(), axes, n, low.as_ptr(), n, high.as_ptr(), n, value.raw(), name))
    }

    /// `width` elements before and after every axis, filled as by [`Array::pad`].
    ///
    /// # Errors
    /// If `width` is negative or `value` is no scalar.
    pub fn pad_symmetric(&self, width: i32, value: &Array, mode: PadMode) -> Result<Array> {
        if width < 0 {
            return argument("pad_symmetric", format!("width {width} is negative"));
        }
        one_value("pad_symmetric", value)?;
        op!("pad_symmetric", mlx_pad_symmetric(self.raw(), width, value.raw(), mode.name().as_ptr()))
    }

    /// Axes of size 1 inserted; `axes` count in the result.
    ///
    /// # Errors
    /// If an axis is named twice or lies outside the result.
    pub fn expand_dims<'a>(&self, axes: impl Into<Axes<'a>>) -> Result<Array> {
        match axes.into() {
            Axes::All => argument("expand_dims", "the new axes must be named"),
            Axes::One(axis) => op!("expand_dims", mlx_expand_dims(self.raw(), axis)),
            Axes::These(axes) => {
                op!("expand_dims", mlx_expand_dims_axes(self.raw(), axes.as_ptr(), axes.len()))
            }
        }
    }

    /// Shifted cyclically by `shift[i]` along axis i of `axes`; with one axis by the sum of the shifts, with `..` by that
    /// sum in flattened order.
    ///
    /// # Errors
    /// If shifts and axes differ in number.
    pub fn roll<'a>(&self, shift: &[i32], axes: impl Into<Axes<'a>>) -> Result<Array> {
        let (by, n) = (shift.as_ptr(), shift.len());
        match axes.into() {
            Axes::All => op!("roll", mlx_roll(self.raw(), by, n)),
            Axes::One(axis) => op!("roll", mlx_roll_axis(self.raw(), by, n, axis)),
            Axes::These(axes) if axes.len() != n => {
                argument("roll", format!("shifts {shift:?} for axes {axes:?}: one an axis is needed"))
            }
            Axes::These(axes) => op!("roll", mlx_roll_axes(self.raw(), by, n, axes.as_ptr(), axes.len())),
        }
    }

    /// Cut along `axis` into `parts` of one size.
    ///
    /// # Errors
    /// If the size of the axis is no multiple of `parts`.
    pub fn split_equal(&self, parts: i32, axis: i32) -> Result<Vec<Array>> {
        if parts < 1 {
            return argument("split_equal", format!("cannot cut into {parts} parts"));
        }
        op_vec!("split_equal", mlx_split(self.raw(), parts, axis))
    }

    /// The parts along `axis`, the first by default, which they no longer have.
    ///
    /// # Errors
    /// If there is no such axis.
    pub fn unstack(&self, axis: impl Into<Option<i32>>) -> Result<Vec<Array>> {
        match axis.into() {
            None => op_vec!("unstack", mlx_unstack(self.raw())),
            Some(axis) => op_vec!("unstack", mlx_unstack_axis(self.raw(), axis)),
        }
    }

    /// Cut along `axis` at `indices`: one part more than there are indices.
    ///
    /// # Errors
    /// If there is no such axis.
    pub fn split(&self, indices: &[i32], axis: i32) -> Result<Vec<Array>> {
        op_vec!("split", mlx_split_sections(self.raw(), indices.as_ptr(), indices.len(), axis))
    }

    /// The elements in row-major order with any shape and strides (in elements), from `offset`. Negative strides make a
    /// copy: see [`Array::slice`].
    ///
    /// # Errors
    /// If the view would leave the array.
    pub fn as_strided(&self, shape: &[i32], strides: &[i64], offset: usize) -> Result<Array> {
        if shape.len() != strides.len() || shape.iter().any(|&n| n < 0) {
            return argument("as_strided", format!("shape {shape:?} and strides {strides:?} do not fit"));
        }
        if !shape.contains(&0) {
            let (mut low, mut high) = (offset as i64, offset as i64);
            for (&n, &stride) in shape.iter().zip(strides) {
                let reach = i64::from(n - 1).saturating_mul(stride);
                if reach < 0 { low = low.saturating_add(reach) } else { high = high.saturating_add(reach) }
            }
            if low < 0 || high >= self.size() as i64 {
                return argument("as_strided", format!("{shape:?} by {strides:?} leaves an array of {self}"));
            }
        }
        // MLX flattens the array, which leaves gaps where a slice has them in a single axis, and then refuses it.
        let dense = self.contiguous()?;
        let (sizes, rank) = (shape.as_ptr(), shape.len());
        let view =
            op!("as_strided", mlx_as_strided(dense.raw(), sizes, rank, strides.as_ptr(), rank, offset))?;
        if strides.iter().any(|&stride| stride < 0) { view.contiguous() } else { Ok(view) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(shape: &[i32]) -> Array {
        let n: i32 = shape.iter().product();
        Array::from_slice(&(0..n).map(|i| i as f32).collect::<Vec<_>>(), shape).unwrap()
    }

    fn values(array: &Array) -> Vec<f32> {
        array.to_vec().unwrap()
    }

    #[test]
    fn strided_views_of_slices_with_gaps() {
        let x = count(&[1, 3, 2, 2]).slice(&[0; 4], &[1, 3, 1, 1], &[1; 4]).unwrap();
        assert_eq!(values(&x.as_strided(&[3, 1], &[1, 1], 0).unwrap()), [0.0, 4.0, 8.0]);
        assert_eq!(values(&x.as_strided(&[2], &[-2], 2).unwrap()), [8.0, 0.0]);
    }

    /// Products and broadcasts of what was reversed, which views with negative strides get wrong.
    #[test]
    fn reversed_arrays_are_operands_like_others() {
        let w = count(&[2, 1, 2]);
        let reversed = [w.slice(&[1, 0, 0], &[-3, 1, 2], &[-1, 1, 1]).unwrap(), w.flip(&[0]).unwrap()];
        for w in reversed {
            assert_eq!(values(&w), [2.0, 3.0, 0.0, 1.0]);
            let x = Array::from_slice(&[1.0f32, 10.0], &[2, 1]).unwrap();
            assert_eq!(values(&w.reshape(&[2, 2]).unwrap().matmul(&x).unwrap()), [32.0, 10.0]);
            let part = w.reshape(&[1, 2, 1, 2]).unwrap().split(&[1], -1).unwrap();
            let row = Array::from_slice(&[1.0f32, 10.0], &[1, 1, 2]).unwrap();
            let y = part[0].squeeze(&[-1]).unwrap().multiply(&row).unwrap();
            assert_eq!(values(&y), [2.0, 20.0, 0.0, 0.0]);
        }
    }
}
