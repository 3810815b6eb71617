//! Operations that move elements without computing them.

use std::ffi::{CStr, CString};

use mlx_sys as sys;

use super::methods;
use crate::error::argument;
use crate::handle::VectorArray;
use crate::{Array, Result, Stream};

methods! {
    /// The elements in order as `shape`; one size may be -1.
    reshape(shape: &[i32]) => mlx_reshape(shape.as_ptr(), shape.len());
    /// Axis i of the result is axis `axes[i]` of the array.
    transpose(axes: &[i32]) => mlx_transpose_axes(axes.as_ptr(), axes.len());
    /// Two axes exchanged.
    swapaxes(first: i32, second: i32) => mlx_swapaxes(first, second);
    /// Repeated without copying to `shape`, by the rules of broadcasting.
    broadcast_to(shape: &[i32]) => mlx_broadcast_to(shape.as_ptr(), shape.len());
    /// Axes of size 1 inserted; `axes` count in the result.
    expand_dims(axes: &[i32]) => mlx_expand_dims_axes(axes.as_ptr(), axes.len());
    /// Axes of size 1 removed.
    squeeze(axes: &[i32]) => mlx_squeeze_axes(axes.as_ptr(), axes.len());
    /// Axes `first` to `last` merged.
    flatten(first: i32, last: i32) => mlx_flatten(first, last);
    /// Repeated whole, `repeats[i]` times along axis i.
    tile(repeats: &[i32]) => mlx_tile(repeats.as_ptr(), repeats.len());
    /// Every element repeated along `axis`.
    repeat(repeats: i32, axis: i32) => mlx_repeat_axis(repeats, axis);
    /// Zero above diagonal `k`.
    tril(k: i32) => mlx_tril(k);
    /// Zero below diagonal `k`.
    triu(k: i32) => mlx_triu(k);
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

impl Array {
    /// The same elements, row-major without gaps.
    pub fn contiguous(&self) -> Result<Array> {
        // MLX's CUDA back end does not survive this operation on an array without elements, which has no gaps anyway.
        if self.size() == 0 {
            return Ok(self.clone());
        }
        Stream::with_current(|s| {
            Array::from_op("contiguous", |out| {
                // SAFETY: handles are live; `out` is empty.
                unsafe { sys::mlx_contiguous(out, self.raw(), false, s) }
            })
        })
    }

    /// `low[i]` elements before and `high[i]` after axis `axes[i]`, filled by `mode`; `value` is a scalar of the array's
    /// type.
    ///
    /// # Errors
    /// If the three slices differ in length or an amount is negative.
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
        Stream::with_current(|s| {
            Array::from_op("pad", |out| {
                // SAFETY: handles are live; the slices and the mode outlive the call with their lengths beside them.
                unsafe {
                    sys::mlx_pad(
                        out,
                        self.raw(),
                        axes.as_ptr(),
                        axes.len(),
                        low.as_ptr(),
                        low.len(),
                        high.as_ptr(),
                        high.len(),
                        value.raw(),
                        mode.name().as_ptr(),
                        s,
                    )
                }
            })
        })
    }

    /// Cut along `axis` at `indices`: one part more than there are indices.
    pub fn split(&self, indices: &[i32], axis: i32) -> Result<Vec<Array>> {
        Stream::with_current(|s| {
            VectorArray::from_op("split", |out| {
                // SAFETY: handles are live and `indices` outlives the call with its length beside it.
                unsafe { sys::mlx_split_sections(out, self.raw(), indices.as_ptr(), indices.len(), axis, s) }
            })
        })
    }

    /// Reversed along `axes`, as a copy: see [`Array::slice`].
    pub fn flip(&self, axes: &[i32]) -> Result<Array> {
        let view = Stream::with_current(|s| {
            Array::from_op("flip", |out| {
                // SAFETY: handles are live and `axes` outlives the call with its length beside it.
                unsafe { sys::mlx_flip_axes(out, self.raw(), axes.as_ptr(), axes.len(), s) }
            })
        })?;
        view.contiguous()
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
        let view = Stream::with_current(|s| {
            Array::from_op("as_strided", |out| {
                // SAFETY: handles are live, the slices outlive the call, and the view was checked to stay inside.
                unsafe {
                    sys::mlx_as_strided(
                        out,
                        dense.raw(),
                        shape.as_ptr(),
                        shape.len(),
                        strides.as_ptr(),
                        strides.len(),
                        offset,
                        s,
                    )
                }
            })
        })?;
        if strides.iter().any(|&stride| stride < 0) { view.contiguous() } else { Ok(view) }
    }
}

/// The arrays one after another along `axis`.
pub fn concatenate(arrays: &[Array], axis: i32) -> Result<Array> {
    let arrays = VectorArray::from_arrays(arrays)?;
    Stream::with_current(|s| {
        Array::from_op("concatenate", |out| {
            // SAFETY: handles are live; `out` is empty.
            unsafe { sys::mlx_concatenate_axis(out, arrays.raw(), axis, s) }
        })
    })
}

/// The arrays along a new axis.
pub fn stack(arrays: &[Array], axis: i32) -> Result<Array> {
    let arrays = VectorArray::from_arrays(arrays)?;
    Stream::with_current(|s| {
        Array::from_op("stack", |out| {
            // SAFETY: handles are live; `out` is empty.
            unsafe { sys::mlx_stack_axis(out, arrays.raw(), axis, s) }
        })
    })
}

/// All arrays broadcast to their common shape.
pub fn broadcast_arrays(arrays: &[Array]) -> Result<Vec<Array>> {
    let arrays = VectorArray::from_arrays(arrays)?;
    Stream::with_current(|s| {
        VectorArray::from_op("broadcast_arrays", |out| {
            // SAFETY: handles are live; `out` is empty.
            unsafe { sys::mlx_broadcast_arrays(out, arrays.raw(), s) }
        })
    })
}

/// Einstein summation, such as `"ij,jk->ik"`.
pub fn einsum(subscripts: &str, operands: &[Array]) -> Result<Array> {
    let Ok(subscripts) = CString::new(subscripts) else { return argument("einsum", "subscripts hold a NUL") };
    let operands = VectorArray::from_arrays(operands)?;
    Stream::with_current(|s| {
        Array::from_op("einsum", |out| {
            // SAFETY: handles are live and the subscripts outlive the call.
            unsafe { sys::mlx_einsum(out, subscripts.as_ptr(), operands.raw(), s) }
        })
    })
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
