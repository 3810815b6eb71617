//! To and from `Vec` and `ndarray`.

use std::ffi::{c_int, c_void};

use mlx_sys as sys;
use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

use crate::array::elements;
use crate::error::argument;
use crate::{Array, Element, Error, Result};

impl Array {
    /// An array of `shape` that takes `data` over, row-major.
    ///
    /// Metal works on the vector's own memory where it lies on whole pages, and drops it with the array. Elsewhere MLX copies
    /// it and drops it at once: its CPU allocator keeps each size in the 8 bytes before the data, which a `Vec` does not
    /// have, and reads them whenever it considers reusing a buffer.
    ///
    /// # Errors
    /// If `shape` does not ask for `data.len()` elements.
    pub fn from_vec<T: Element>(data: Vec<T>, shape: &[i32]) -> Result<Self> {
        if elements(shape) != Some(data.len()) {
            return argument("from_vec", format!("shape {shape:?} does not hold {} elements", data.len()));
        }
        if data.is_empty() {
            return Self::from_slice(&data, shape);
        }
        let mut owner = Box::new(data);
        let values: *mut c_void = owner.as_mut_ptr().cast();
        let rank = shape.len() as c_int;
        Self::from_op("from_vec", |out| {
            // SAFETY: `values` holds the elements that `shape` asks for and lives until MLX calls `drop_vec`, once, on any
            // thread: an element is `Send`. MLX may overwrite it, since nobody else has it. `out` is empty, so that nothing
            // is lost when it is replaced.
            unsafe {
                *out = sys::mlx_array_new_data_managed_payload(
                    values,
                    shape.as_ptr(),
                    rank,
                    T::DTYPE.raw(),
                    Box::into_raw(owner).cast(),
                    Some(drop_vec::<T>),
                );
                c_int::from((*out).ctx.is_null())
            }
        })
    }

    /// Computes the array and copies it to an `ndarray` of the same shape.
    ///
    /// # Errors
    /// If `T` is not the array's element type, or the evaluation fails.
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        let shape: Vec<usize> = self.shape().iter().map(|&n| n as usize).collect();
        ArrayD::from_shape_vec(IxDyn(&shape), self.to_vec()?)
            .map_err(|e| Error::Argument { op: "to_ndarray", message: e.to_string() })
    }
}

extern "C" fn drop_vec<T>(owner: *mut c_void) {
    // SAFETY: `owner` came from `Box::into_raw` of a `Box<Vec<T>>`, and MLX calls this once. Elements are plain data: dropping
    // them does not unwind.
    drop(unsafe { Box::from_raw(owner.cast::<Vec<T>>()) });
}

/// MLX's sizes are `i32`: a larger one is an error, which is why this is no `From`.
fn shape_of(sizes: &[usize]) -> Result<Vec<i32>> {
    let shape: Result<Vec<i32>, _> = sizes.iter().map(|&n| i32::try_from(n)).collect();
    shape.map_err(|_| Error::Argument { op: "from_ndarray", message: format!("{sizes:?} is too large") })
}

/// Hands the elements over as [`Array::from_vec`] does if they lie row-major, else copies.
impl<T: Element, D: Dimension> TryFrom<ndarray::Array<T, D>> for Array {
    type Error = Error;

    fn try_from(array: ndarray::Array<T, D>) -> Result<Self> {
        if !array.is_standard_layout() {
            return Self::try_from(&array);
        }
        let (shape, count) = (shape_of(array.shape())?, array.len());
        let (mut values, offset) = array.into_raw_vec_and_offset();
        values.drain(..offset.unwrap_or(0));
        values.truncate(count);
        Self::from_vec(values, &shape)
    }
}

/// Copies the elements, in any layout.
impl<T: Element, S: Data<Elem = T>, D: Dimension> TryFrom<&ArrayBase<S, D>> for Array {
    type Error = Error;

    fn try_from(array: &ArrayBase<S, D>) -> Result<Self> {
        let shape = shape_of(array.shape())?;
        match array.as_slice() {
            Some(values) => Self::from_slice(values, &shape),
            None => Self::from_vec(array.iter().copied().collect(), &shape),
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{arr0, array, s};
    use num_complex::Complex32;

    use super::*;

    #[test]
    fn ndarrays_of_any_layout_round_trip() {
        let x = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
        for view in [x.view(), x.slice(s![.., ..;-1]), x.slice(s![1.., 1..])] {
            assert_eq!(Array::try_from(&view).unwrap().to_ndarray::<f32>().unwrap(), view.into_dyn());
        }
        let transposed = x.clone().reversed_axes();
        assert_eq!(
            Array::try_from(transposed.clone()).unwrap().to_ndarray::<f32>().unwrap(),
            transposed.into_dyn()
        );
        let tail = x.clone().slice_move(s![1.., ..]);
        assert_eq!(Array::try_from(tail.clone()).unwrap().to_ndarray::<f32>().unwrap(), tail.into_dyn());
        assert_eq!(Array::try_from(arr0(7i64)).unwrap().item::<i64>().unwrap(), 7);
        let empty = ndarray::Array::<u8, _>::zeros((3, 0));
        assert_eq!(Array::try_from(empty).unwrap().shape(), [3, 0]);
    }

    #[test]
    fn vectors_are_handed_over_and_survive_reuse_of_their_memory() {
        for n in [1usize, 3, 4096, 1 << 20] {
            let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let x = Array::from_vec(values.clone(), &[n as i32]).unwrap();
            let y = x.add(&x).unwrap();
            drop(x);
            assert!(y.to_vec::<f32>().unwrap().iter().zip(&values).all(|(y, x)| *y == 2.0 * x));
        }
        assert!(Array::from_vec(vec![1u8], &[2]).is_err());
        assert_eq!(Array::from_vec(Vec::<f32>::new(), &[0, 2]).unwrap().shape(), [0, 2]);
    }

    #[test]
    fn complex_numbers_round_trip() {
        let z = [Complex32::new(1.0, -2.0), Complex32::new(0.5, 3.0)];
        let array = Array::from_slice(&z, &[2]).unwrap();
        assert_eq!(array.to_vec::<Complex32>().unwrap(), z);
        assert_eq!(array.multiply(&array).unwrap().to_vec::<Complex32>().unwrap(), z.map(|z| z * z));
        assert_eq!(array.imag().unwrap().to_vec::<f32>().unwrap(), [-2.0, 3.0]);
    }
}
