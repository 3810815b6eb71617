//! The array: one owned reference to a node of MLX's lazy graph.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use half::{bf16, f16};
use mlx_sys as sys;

use crate::dtype::Element;
use crate::error::{argument, check, install_handler};
use crate::{Dtype, Error, Result};

/// An n-dimensional array, evaluated when its values are asked for. `Clone` copies the reference, not the data.
///
/// Shapes are written as `&[i32]`, MLX's own type, so that `-1` and negative axes mean what they mean in MLX. There are 64
/// dimensions at most.
pub struct Array(sys::mlx_array, PhantomData<*const ()>);

/// The most dimensions of an array, as in NumPy: MLX's loops over dimensions may take more stack than there is.
const MAX_RANK: usize = 64;

/// The handle of no array, as `mlx_array_new` makes it.
const EMPTY: sys::mlx_array = sys::mlx_array { ctx: std::ptr::null_mut() };

/// Who brought an array's elements to where they were wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopiedBy {
    /// The host, to which a device without shared memory sent them first.
    Host,
    /// The device, in its own memory.
    Device,
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: MLX made this handle, we alone own it, and this is its last use.
        unsafe { sys::mlx_array_free(self.0) };
    }
}

impl Clone for Array {
    fn clone(&self) -> Self {
        let mut raw = EMPTY;
        // SAFETY: both handles are live; MLX copies the reference. Copying one shared pointer cannot fail.
        unsafe { sys::mlx_array_set(&mut raw, self.0) };
        Self(raw, PhantomData)
    }
}

impl Array {
    /// Runs one mlx-c call that fills an empty array handle. The only way an `Array` is made from an operation.
    pub(crate) fn from_op(op: &'static str, call: impl FnOnce(*mut sys::mlx_array) -> c_int) -> Result<Self> {
        let mut array = Self(EMPTY, PhantomData);
        check(op, || call(&mut array.0))?;
        array.of_bounded_rank(op)
    }

    /// The same for a call that fills two.
    pub(crate) fn pair_from_op(
        op: &'static str,
        call: impl FnOnce(*mut sys::mlx_array, *mut sys::mlx_array) -> c_int,
    ) -> Result<(Self, Self)> {
        let (mut first, mut second) = (Self(EMPTY, PhantomData), Self(EMPTY, PhantomData));
        check(op, || call(&mut first.0, &mut second.0))?;
        Ok((first.of_bounded_rank(op)?, second.of_bounded_rank(op)?))
    }

    fn of_bounded_rank(self, op: &'static str) -> Result<Self> {
        bounded_rank(op, self.ndim())?;
        Ok(self)
    }

    pub(crate) fn raw(&self) -> sys::mlx_array {
        self.0
    }

    /// The handle that mlx-c reads as "no array".
    pub(crate) fn raw_or_null(array: Option<&Array>) -> sys::mlx_array {
        array.map_or(EMPTY, Array::raw)
    }

    /// A scalar (shape `[]`).
    pub fn scalar<T: Element>(value: T) -> Self {
        // One element always fits shape [].
        Self::copy_from(T::DTYPE, &[], std::ptr::from_ref(&value).cast())
    }

    /// A scalar of type `dtype`; `value` is rounded to it (integers: truncated and saturated).
    ///
    /// # Errors
    /// For complex types.
    pub fn scalar_of(value: f64, dtype: Dtype) -> Result<Self> {
        Ok(match dtype {
            Dtype::Bool => Self::scalar(value != 0.0),
            Dtype::Uint8 => Self::scalar(value as u8),
            Dtype::Uint16 => Self::scalar(value as u16),
            Dtype::Uint32 => Self::scalar(value as u32),
            Dtype::Uint64 => Self::scalar(value as u64),
            Dtype::Int8 => Self::scalar(value as i8),
            Dtype::Int16 => Self::scalar(value as i16),
            Dtype::Int32 => Self::scalar(value as i32),
            Dtype::Int64 => Self::scalar(value as i64),
            Dtype::Float16 => Self::scalar(f16::from_f64(value)),
            Dtype::Bfloat16 => Self::scalar(bf16::from_f64(value)),
            Dtype::Float32 => Self::scalar(value as f32),
            Dtype::Float64 => Self::scalar(value),
            Dtype::Complex64 => {
                return argument("scalar_of", "complex64 scalars are not made from a real number");
            }
        })
    }

    /// An array of `shape` with a copy of `data`, row-major.
    ///
    /// # Errors
    /// If `shape` does not ask for `data.len()` elements, or has more than 64 dimensions.
    pub fn from_slice<T: Element>(data: &[T], shape: &[i32]) -> Result<Self> {
        bounded_rank("from_slice", shape.len())?;
        if elements(shape) != Some(data.len()) {
            return argument("from_slice", format!("shape {shape:?} does not hold {} elements", data.len()));
        }
        Ok(Self::copy_from(T::DTYPE, shape, data.as_ptr().cast()))
    }

    /// An array of `shape` and `dtype` with a copy of `data`, row-major in the host's byte order.
    ///
    /// # Errors
    /// If `data` has the wrong length, or `shape` more than 64 dimensions.
    pub fn from_bytes(dtype: Dtype, shape: &[i32], data: &[u8]) -> Result<Self> {
        bounded_rank("from_bytes", shape.len())?;
        if elements(shape).and_then(|n| n.checked_mul(dtype.size())) != Some(data.len()) {
            return argument("from_bytes", format!("{dtype:?}{shape:?} does not take {} bytes", data.len()));
        }
        if dtype == Dtype::Bool && data.iter().any(|&b| b > 1) {
            // C++ may assume that a bool is 0 or 1.
            let clean: Vec<u8> = data.iter().map(|&b| u8::from(b != 0)).collect();
            return Ok(Self::copy_from(dtype, shape, clean.as_ptr().cast()));
        }
        Ok(Self::copy_from(dtype, shape, data.as_ptr().cast()))
    }

    /// Copies `shape`'s elements from `data`, which the caller has checked to be that long; with CUDA to the memory of the
    /// current stream's device.
    fn copy_from(dtype: Dtype, shape: &[i32], data: *const c_void) -> Self {
        install_handler();
        let rank = shape.len();
        if rank == 0 || !crate::cuda::is_available().unwrap_or(false) {
            // SAFETY: `data` points to as many elements as `shape` asks for, and MLX copies them before it returns.
            let raw = unsafe { sys::mlx_array_new_data(data, shape.as_ptr(), rank as c_int, dtype.raw()) };
            return Self(raw, PhantomData);
        }
        let mut raw = EMPTY;
        crate::Stream::with_current(|stream| {
            // SAFETY: as above; the handles are live for the call.
            unsafe { sys::ortmlx_array_new(&raw mut raw, data, shape.as_ptr(), rank, dtype.raw(), stream) }
        });
        Self(raw, PhantomData)
    }

    /// Sizes; empty for a scalar.
    pub fn shape(&self) -> &[i32] {
        let rank = self.ndim();
        if rank == 0 {
            return &[];
        }
        // SAFETY: the array is live and its shape has `rank` entries that live and stay as long as it does.
        unsafe { std::slice::from_raw_parts(sys::mlx_array_shape(self.0), rank) }
    }

    /// The number of dimensions.
    pub fn ndim(&self) -> usize {
        // SAFETY: the array is live.
        unsafe { sys::mlx_array_ndim(self.0) }
    }

    /// Size of one dimension; negative `axis` counts from the end.
    ///
    /// # Errors
    /// If there is no such axis.
    pub fn dim(&self, axis: i32) -> Result<i32> {
        Ok(self.shape()[self.axis(axis)?])
    }

    /// `axis` counted from the start.
    pub(crate) fn axis(&self, axis: i32) -> Result<usize> {
        let rank = self.ndim() as i32;
        let index = if axis < 0 { axis.saturating_add(rank) } else { axis };
        match usize::try_from(index) {
            Ok(index) if index < self.ndim() => Ok(index),
            _ => argument("axis", format!("axis {axis} of an array of rank {rank}")),
        }
    }

    /// The number of elements.
    pub fn size(&self) -> usize {
        // SAFETY: the array is live.
        unsafe { sys::mlx_array_size(self.0) }
    }

    /// Bytes that the elements take when they lie without gaps; a broadcast view takes less.
    pub fn nbytes(&self) -> usize {
        self.size().saturating_mul(self.dtype().size())
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        // SAFETY: the array is live.
        let raw = unsafe { sys::mlx_array_dtype(self.0) };
        Dtype::from_raw(raw).unwrap_or(Dtype::Float32)
    }

    /// Whether the array can be computed: not where it depends on the inputs of a function that is being traced, as by
    /// [`compile`](crate::compile), [`vmap`](crate::vmap) or [`Recording`](crate::Recording).
    pub fn has_values(&self) -> bool {
        // SAFETY: the array is live.
        unsafe { sys::ortmlx_array_has_values(self.0) }
    }

    /// Computes the array now.
    ///
    /// # Errors
    /// If any operation that it depends on fails.
    pub fn eval(&self) -> Result<()> {
        check("eval", || {
            // SAFETY: the array is live.
            unsafe { sys::ortmlx_array_eval(self.0) }
        })
    }

    /// Computes the array and hands its bytes, row-major, to `read`.
    ///
    /// # Errors
    /// If the evaluation fails.
    pub fn with_bytes<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        self.eval()?;
        let dense = self.dense()?;
        let length = dense.nbytes();
        if length == 0 {
            return Ok(read(&[]));
        }
        if dense.is_on_device() {
            let mut bytes = Vec::with_capacity(length);
            dense.copy_out(&mut bytes.spare_capacity_mut()[..length])?;
            // SAFETY: `copy_out` has written them all.
            unsafe { bytes.set_len(length) };
            return Ok(read(&bytes));
        }
        // SAFETY: `dense` is live and evaluated.
        let data = unsafe { sys::ortmlx_array_data(dense.0) };
        if data.is_null() {
            return Err(Error::Mlx { op: "data", message: "the evaluated array has no data".into() });
        }
        // SAFETY: `dense` is row-contiguous, holds `length` bytes, and lives until `read` has returned.
        Ok(read(unsafe { std::slice::from_raw_parts(data.cast(), length) }))
    }

    /// An evaluated array with the elements of this one, which is evaluated too, in row-major order without gaps.
    fn dense(&self) -> Result<Self> {
        // SAFETY: the array is live and evaluated.
        if unsafe { sys::ortmlx_array_is_row_contiguous(self.0) } {
            return Ok(self.clone());
        }
        let dense = self.contiguous()?;
        dense.eval()?;
        Ok(dense)
    }

    /// Whether an evaluated array lies where the host cannot read it.
    fn is_on_device(&self) -> bool {
        // SAFETY: the array is live and evaluated.
        unsafe { sys::ortmlx_array_is_on_device(self.0) }
    }

    /// Writes the elements of an evaluated array, in row-major order on a device, to `out`, which has room for them.
    fn copy_out(&self, out: &mut [MaybeUninit<u8>]) -> Result<()> {
        check("copy_to", || {
            // SAFETY: the array is live and evaluated, and `out` has room for its elements, which lie elsewhere: nobody else
            // has a way to the bytes of a `&mut`.
            unsafe { sys::ortmlx_array_copy_out(self.0, out.as_mut_ptr().cast()) }
        })
    }

    /// Computes the array and writes its bytes, row-major, to `out`, in one pass however they lie. With CUDA the device does
    /// it where `out` lies in a [`Block`](crate::Block).
    ///
    /// # Errors
    /// If `out` does not have [`nbytes`](Self::nbytes) bytes, or the evaluation fails.
    pub fn copy_to(&self, out: &mut [MaybeUninit<u8>]) -> Result<CopiedBy> {
        if out.len() != self.nbytes() {
            return argument("copy_to", format!("{self:?} does not fill {} bytes", out.len()));
        }
        self.eval()?;
        if crate::cuda::is_available()? && self.write_to_block(out)? {
            return Ok(CopiedBy::Device);
        }
        if self.is_on_device() {
            self.dense()?.copy_out(out)?
        } else {
            self.copy_out(out)?
        }
        Ok(CopiedBy::Host)
    }

    /// Has the device write the elements of an evaluated array to `out`, which has room for them; false if `out` lies nowhere
    /// that it can.
    pub(crate) fn write_to_block(&self, out: &mut [MaybeUninit<u8>]) -> Result<bool> {
        let mut written = false;
        crate::Stream::with_current(|stream| {
            check("copy_to", || {
                // SAFETY: the handles are live; the bytes are ours alone, and the call waits for the device.
                unsafe {
                    sys::ortmlx_write_to_block(self.0, out.as_mut_ptr().cast(), stream, &raw mut written)
                }
            })
        })?;
        Ok(written)
    }

    /// Computes the array and copies its elements, row-major.
    ///
    /// # Errors
    /// If `T` is not the array's element type, or the evaluation fails.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype() != T::DTYPE {
            return argument("to_vec", format!("the array holds {:?}, not {:?}", self.dtype(), T::DTYPE));
        }
        self.with_bytes(|bytes| {
            let count = bytes.len() / size_of::<T>();
            let mut values = Vec::<T>::with_capacity(count);
            let target = values.as_mut_ptr().cast::<u8>();
            // SAFETY: `values` has room for `bytes.len()` bytes and does not overlap `bytes`.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
            if T::DTYPE == Dtype::Bool {
                // A `view` of other bits can hold what no Rust bool may be.
                for (i, &byte) in bytes.iter().enumerate() {
                    // SAFETY: `i` is below the `bytes.len()` bytes that `target` has room for.
                    unsafe { target.add(i).write(u8::from(byte != 0)) };
                }
            }
            // SAFETY: `count` elements were written, each valid: every type but bool takes any bits.
            unsafe { values.set_len(count) };
            values
        })
    }

    /// Computes the array and writes its values as MLX prints them, long ones shortened. `Display` and `Debug` never
    /// compute.
    ///
    /// # Errors
    /// If the evaluation fails.
    pub fn format_values(&self) -> Result<String> {
        self.eval()?;
        crate::handle::read_string("format_values", |out| {
            // SAFETY: `out` is a valid, empty string handle and the array is live.
            unsafe { sys::mlx_array_tostring(out, self.0) }
        })
    }

    /// The value of an array of one element.
    ///
    /// # Errors
    /// If there is not exactly one element, or `T` is not its type.
    pub fn item<T: Element>(&self) -> Result<T> {
        match self.to_vec()?.as_slice() {
            [value] => Ok(*value),
            values => argument("item", format!("the array has {} elements", values.len())),
        }
    }
}

pub(crate) fn bounded_rank(op: &'static str, rank: usize) -> Result<()> {
    if rank > MAX_RANK {
        return argument(op, format!("{rank} dimensions, of {MAX_RANK} at most"));
    }
    Ok(())
}

/// The number of elements of `shape`; `None` if a size is negative or the product overflows.
pub(crate) fn elements(shape: &[i32]) -> Option<usize> {
    if shape.contains(&0) && shape.iter().all(|&n| n >= 0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?))
}

/// For messages: `shape [2, 3]`. Never computes; see [`Array::format_values`].
impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shape {:?}", self.shape())
    }
}

/// Type and shape: `Array(Float32[2, 3])`. Never computes.
impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({:?}{:?})", self.dtype(), self.shape())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_every_element_type() {
        fn check<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
            let array = Array::from_slice(values, &[values.len() as i32]).unwrap();
            assert_eq!(array.dtype(), T::DTYPE);
            assert_eq!(array.to_vec::<T>().unwrap(), values);
        }
        check(&[true, false]);
        check(&[0u8, 255]);
        check(&[0u16, u16::MAX]);
        check(&[0u32, u32::MAX]);
        check(&[0u64, u64::MAX]);
        check(&[i8::MIN, i8::MAX]);
        check(&[i16::MIN, i16::MAX]);
        check(&[i32::MIN, i32::MAX]);
        check(&[i64::MIN, i64::MAX]);
        check(&[f16::MIN, f16::MAX]);
        check(&[bf16::MIN, bf16::MAX]);
        check(&[f32::MIN, f32::MAX]);
        check(&[f64::MIN, f64::MAX]);
    }

    #[test]
    fn empty_arrays_have_shapes_and_no_data() {
        let empty = Array::from_slice::<f32>(&[], &[3, 0, 2]).unwrap();
        assert_eq!(empty.shape(), [3, 0, 2]);
        assert_eq!(empty.to_vec::<f32>().unwrap(), []);
    }

    #[test]
    fn bools_are_bools_whatever_their_bits() {
        let bits = Array::from_slice(&[0u8, 1, 2, 255], &[4]).unwrap().view(Dtype::Bool).unwrap();
        assert_eq!(bits.to_vec::<bool>().unwrap(), [false, true, true, true]);
    }

    #[test]
    fn strided_views_read_row_major() {
        let array = Array::from_slice(&[1i32, 2, 3, 4, 5, 6], &[2, 3]).unwrap();
        assert_eq!(array.transpose(&[1, 0]).unwrap().to_vec::<i32>().unwrap(), [1, 4, 2, 5, 3, 6]);
    }

    #[test]
    fn large_arrays_are_copied_whole() {
        let values: Vec<u8> = (0..(5 << 20) + 1).map(|i: u32| (i % 251) as u8).collect();
        let array = Array::from_slice(&values, &[values.len() as i32]).unwrap();
        let mut bytes = vec![MaybeUninit::new(0xffu8); values.len()];
        array.copy_to(&mut bytes).unwrap();
        // SAFETY: written.
        let same = bytes.iter().zip(&values).all(|(b, v)| unsafe { b.assume_init() } == *v);
        assert!(same);
    }

    #[test]
    fn elements_are_written_row_major_however_they_lie() {
        fn check<T: Element + PartialEq + fmt::Debug>(array: &Array) {
            let array = array.astype(T::DTYPE).unwrap();
            let (one, two) =
                (array.slice(&[1, 0, 0, 2], &[6, 20, 3, 9], &[2, 3, 1, 1]).unwrap(), array.clone());
            let broadcast = array.slice(&[0, 0, 0, 0], &[6, 1, 3, 9], &[1, 1, 1, 1]).unwrap();
            let broadcast = broadcast.broadcast_to(&[6, 20, 3, 9]).unwrap();
            for x in [one, two, broadcast] {
                for axes in [[0, 1, 2, 3], [0, 2, 3, 1], [3, 2, 1, 0], [1, 0, 3, 2], [0, 3, 1, 2]] {
                    let x = x.transpose(&axes).unwrap();
                    let mut bytes = vec![MaybeUninit::new(0xaau8); x.nbytes()];
                    x.copy_to(&mut bytes).unwrap();
                    // SAFETY: written.
                    let bytes: Vec<u8> = bytes.into_iter().map(|b| unsafe { b.assume_init() }).collect();
                    assert_eq!(
                        bytes,
                        x.contiguous().unwrap().with_bytes(<[u8]>::to_vec).unwrap(),
                        "{axes:?}"
                    );
                }
            }
        }
        let array = crate::arange(0.0, 6.0 * 20.0 * 3.0 * 9.0, 1.0, Dtype::Float32).unwrap();
        let array = array.reshape(&[6, 20, 3, 9]).unwrap();
        check::<u8>(&array);
        check::<f16>(&array);
        check::<f32>(&array);
        check::<i64>(&array);
        check::<num_complex::Complex32>(&array);
        Array::scalar(1.0f32).copy_to(&mut [MaybeUninit::uninit(); 4]).unwrap();
        Array::from_slice::<f32>(&[], &[3, 0]).unwrap().copy_to(&mut []).unwrap();
        assert!(Array::scalar(1.0f32).copy_to(&mut []).is_err());
    }

    #[test]
    fn wrong_sizes_are_errors() {
        assert!(Array::from_slice(&[1.0f32], &[2]).is_err());
        assert!(Array::from_slice(&[1.0f32], &[-1]).is_err());
        assert!(Array::from_bytes(Dtype::Int64, &[1], &[0; 4]).is_err());
        assert!(Array::scalar(1.0f32).to_vec::<i32>().is_err());
    }

    #[test]
    fn failures_carry_mlx_words_and_leave_the_thread_usable() {
        let a = Array::from_slice(&[1.0f32; 6], &[2, 3]).unwrap();
        let error = a.matmul(&a).unwrap_err().to_string();
        assert!(error.starts_with("matmul: ") && error.contains("(2,3)"), "{error}");
        assert!(!error.contains(".cpp"), "{error}");
        assert_eq!(a.add(&a).unwrap().to_vec::<f32>().unwrap(), [2.0; 6]);
    }
}
