//! Tensors inside ONNX Runtime's values, read without a copy.

use std::slice;

use onnx_graph::{ElementType, Tensor};
use ort_sys::OrtValue;

use crate::api::{Api, ort};
use crate::element;
use crate::error::Error;

/// A tensor in host memory that lives for `'a`.
pub struct TensorRef<'a> {
    /// Element type.
    pub element: ElementType,
    /// Sizes.
    pub dims: Vec<usize>,
    /// The elements' bytes.
    pub data: &'a [u8],
}

impl<'a> TensorRef<'a> {
    /// Reads a value; `None` for a tensor of strings or of an element type that we do not know.
    ///
    /// # Errors
    /// [`Error::Ort`] if the value is no tensor.
    ///
    /// # Safety
    /// `value` must be a live value in host memory, not written to during `'a`.
    pub unsafe fn read(api: Api, value: *const OrtValue) -> Result<Option<Self>, Error> {
        // SAFETY: the value is live.
        let (number, dims) = unsafe { type_and_dims(api, value) }?;
        let Some(element) = element::from_ort(number) else { return Ok(None) };
        let count = dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
        let Some(bytes) = count.and_then(|count| element.bytes(count)) else { return Ok(None) };
        // SAFETY: the tensor holds as many bytes as its type and sizes ask for; an empty one may have no address.
        let data = unsafe {
            match bytes {
                0 => &[],
                _ => slice::from_raw_parts(
                    api.get(|out| ort!(api, GetTensorData(value, out)))?.cast::<u8>(),
                    bytes,
                ),
            }
        };
        Ok(Some(Self { element, dims, data }))
    }

    /// The same tensor in the graph model.
    pub fn to_tensor(&self) -> Result<Tensor<'a>, Error> {
        Ok(Tensor::new(self.element, self.dims.as_slice(), self.data)?)
    }
}

/// ONNX Runtime's number of the element type, and the sizes.
///
/// # Safety
/// `value` must be a live value.
pub unsafe fn type_and_dims(api: Api, value: *const OrtValue) -> Result<(i32, Vec<usize>), Error> {
    let (mut dims, mut rank) = (std::ptr::null(), 0);
    // SAFETY: out-parameters; the type is read as the integer it is, whatever a newer runtime puts there.
    let number: i32 = unsafe {
        api.get(|out: *mut i32| {
            ort!(
                api,
                GetTensorElementTypeAndShapeDataReference(value, out.cast(), &raw mut dims, &raw mut rank)
            )
        })?
    };
    // SAFETY: the sizes belong to the value; a scalar has none.
    let dims = if rank == 0 { &[] } else { unsafe { slice::from_raw_parts(dims, rank) } };
    let dims = dims.iter().map(|&dim| {
        usize::try_from(dim).map_err(|_| Error::Bug(format!("ONNX Runtime gives a tensor the size {dim}")))
    });
    Ok((number, dims.collect::<Result<_, _>>()?))
}

/// A value that we must release.
pub struct OwnedValue {
    api: Api,
    raw: *mut OrtValue,
}

impl OwnedValue {
    /// # Safety
    /// `raw` must be a live value that the caller owns.
    pub unsafe fn new(api: Api, raw: *mut OrtValue) -> Self {
        Self { api, raw }
    }

    /// The tensor inside; see [`TensorRef::read`].
    pub fn tensor(&self) -> Result<Option<TensorRef<'_>>, Error> {
        // SAFETY: we own the value, and nobody writes to it.
        unsafe { TensorRef::read(self.api, self.raw) }
    }
}

impl Drop for OwnedValue {
    fn drop(&mut self) {
        // SAFETY: we own the value, and this is its last use.
        unsafe { ort!(self.api, ReleaseValue(self.raw)) }
    }
}
