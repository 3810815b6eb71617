//! The buffers that a host op reads and writes.

use std::marker::PhantomData;

use mlx_sys as sys;

use crate::host_op::HostError;
use crate::{Dtype, Element};

/// An input of a host op: elements in row-major order without gaps.
pub struct HostView<'a>(Buffer<'a>);

/// An output of a host op: elements in row-major order without gaps; all zero at first, or an input's values.
pub struct HostViewMut<'a>(Buffer<'a>);

struct Buffer<'a> {
    raw: sys::ortmlx_view,
    dtype: Dtype,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl<'a> HostView<'a> {
    /// # Safety
    /// `raw` describes initialised memory that nobody writes during `'a`.
    pub(crate) unsafe fn new(raw: sys::ortmlx_view) -> Result<Self, HostError> {
        Buffer::new(raw).map(Self)
    }

    /// Sizes; empty for a scalar.
    pub fn shape(&self) -> &[i32] {
        self.0.shape()
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    /// The elements.
    ///
    /// # Errors
    /// If `T` is not their type.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], HostError> {
        let (data, size) = self.0.typed::<T>()?;
        if T::DTYPE == Dtype::Bool && self.bytes().iter().any(|&byte| byte > 1) {
            // A view of bytes as bools may hold anything.
            return Err("bytes other than 0 and 1 are no bools".into());
        }
        // SAFETY: `typed` checked type and alignment; the memory is as `new` was promised.
        Ok(unsafe { std::slice::from_raw_parts(data, size) })
    }

    /// The elements' bytes, in the host's order.
    pub fn bytes(&self) -> &'a [u8] {
        let (data, length) = self.0.bytes();
        // SAFETY: the memory is as `new` was promised.
        unsafe { std::slice::from_raw_parts(data, length) }
    }
}

impl HostViewMut<'_> {
    /// # Safety
    /// `raw` describes initialised memory that nobody else touches during the view's lifetime.
    pub(crate) unsafe fn new(raw: sys::ortmlx_view) -> Result<Self, HostError> {
        Buffer::new(raw).map(Self)
    }

    /// Sizes; empty for a scalar.
    pub fn shape(&self) -> &[i32] {
        self.0.shape()
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    /// The elements, to be written.
    ///
    /// # Errors
    /// If `T` is not their type.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], HostError> {
        let (data, size) = self.0.typed::<T>()?;
        // SAFETY: `typed` checked type and alignment; the memory is as `new` was promised, and `self` is borrowed as long
        // as the result.
        Ok(unsafe { std::slice::from_raw_parts_mut(data, size) })
    }

    /// The elements' bytes, in the host's order, to be written.
    ///
    /// # Errors
    /// For an array of bools, whose bytes are not free: use [`as_mut_slice`](Self::as_mut_slice).
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], HostError> {
        if self.0.dtype == Dtype::Bool {
            return Err("the bytes of bools cannot be written freely".into());
        }
        let (data, length) = self.0.bytes();
        // SAFETY: the memory is as `new` was promised, any bytes are valid elements, and `self` is borrowed as long as the
        // result.
        Ok(unsafe { std::slice::from_raw_parts_mut(data, length) })
    }
}

impl Buffer<'_> {
    fn new(raw: sys::ortmlx_view) -> Result<Self, HostError> {
        let dtype = Dtype::from_raw(raw.dtype).ok_or("an element type that this crate does not know")?;
        Ok(Self { raw, dtype, lifetime: PhantomData })
    }

    fn shape(&self) -> &[i32] {
        if self.raw.ndim == 0 {
            return &[];
        }
        // SAFETY: MLX's shape has `ndim` sizes and lives as long as the buffer.
        unsafe { std::slice::from_raw_parts(self.raw.shape, self.raw.ndim) }
    }

    fn typed<T: Element>(&self) -> Result<(*mut T, usize), HostError> {
        if self.dtype != T::DTYPE {
            return Err(format!("the array holds {:?}, not {:?}", self.dtype, T::DTYPE).into());
        }
        let data = self.raw.data.cast::<T>();
        if self.raw.size == 0 {
            return Ok((std::ptr::NonNull::dangling().as_ptr(), 0));
        }
        // A view of bytes as a wider type may begin anywhere.
        if !data.is_aligned() {
            return Err(format!("the elements do not lie as {:?} must", self.dtype).into());
        }
        Ok((data, self.raw.size))
    }

    fn bytes(&self) -> (*mut u8, usize) {
        match self.raw.size * self.dtype.size() {
            0 => (std::ptr::NonNull::dangling().as_ptr(), 0),
            length => (self.raw.data.cast(), length),
        }
    }
}
