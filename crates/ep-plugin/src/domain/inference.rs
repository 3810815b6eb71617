//! Shape inference. It only tells what follows from the inputs: ONNX Runtime drops the status that it returns, so what
//! does not fit is refused when the kernel is made, which is still while the model loads.

use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use onnx_graph::{Dim, Shape, TensorType, ValueType};
use ort_sys::{OrtShapeInferContext, OrtTensorTypeAndShapeInfo};

use super::custom_op::CustomOp;
use crate::api::{Api, ort};
use crate::error::{Error, c_text};
use crate::graph_ref::tensor_type;

/// The first version of ONNX Runtime known to check the index of an output; 1.24 ends the process if a node has no such
/// output.
const CHECKED: u32 = 28;

/// Tells ONNX Runtime the shapes of a node's outputs.
///
/// # Errors
/// [`Error::Ort`] if it will not tell the inputs.
///
/// # Safety
/// `context` must be live.
pub unsafe fn infer(op: &CustomOp, context: *mut OrtShapeInferContext) -> Result<(), Error> {
    let api = op.api;
    // SAFETY: by the caller's word; an out-parameter.
    let count = unsafe { api.get(|out| ort!(api, ShapeInferContext_GetInputCount(context, out))) }?;
    let inputs = (0..count)
        // SAFETY: as above.
        .map(|index| unsafe { input(api, context, index) })
        .collect::<Result<Vec<_>, Error>>()?;
    let Ok(sizes) = op.operator.sizes(op.element, &inputs) else { return Ok(()) };
    for (index, formal) in op.operator.outputs.iter().enumerate() {
        if formal.optional && api.minor() < CHECKED {
            continue;
        }
        let info = Info::new(api, formal.shape(&sizes))?;
        // SAFETY: as above; the shape is copied. The call fails for an output that the node does not have, which cannot
        // be told before.
        let _ =
            unsafe { api.check(ort!(api, ShapeInferContext_SetOutputTypeShape(context, index, info.raw))) };
    }
    Ok(())
}

/// # Safety
/// `context` must be live and have that input.
unsafe fn input(
    api: Api,
    context: *const OrtShapeInferContext,
    index: usize,
) -> Result<Option<TensorType>, Error> {
    // SAFETY: by the caller's word; the type stays the context's.
    let given = unsafe {
        let info = api.get(|out| ort!(api, ShapeInferContext_GetInputTypeShape(context, index, out)))?;
        tensor_type(api, info)?
    };
    Ok(match given {
        // The context shows an unknown rank as 0, and no operator here takes a scalar.
        ValueType::Tensor(TensorType { element, shape }) => {
            Some(TensorType { element, shape: shape.filter(|shape| shape.rank() > 0) })
        }
        _ => None,
    })
}

/// A shape in ONNX Runtime's form, which we own.
struct Info {
    api: Api,
    raw: *mut OrtTensorTypeAndShapeInfo,
}

impl Info {
    fn new(api: Api, shape: Shape) -> Result<Self, Error> {
        let sizes: Vec<i64> = shape.0.iter().map(|dim| dim.known().map_or(-1, |size| size as i64)).collect();
        let names: Vec<CString> = shape.0.into_iter().map(name).collect();
        let mut names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let mut info = Self { api, raw: null_mut() };
        // SAFETY: an out-parameter; sizes and names are copied.
        unsafe {
            api.check(ort!(api, CreateTensorTypeAndShapeInfo(&raw mut info.raw)))?;
            api.check(ort!(api, SetDimensions(info.raw, sizes.as_ptr(), sizes.len())))?;
            api.check(ort!(api, SetSymbolicDimensions(info.raw, names.as_mut_ptr(), names.len())))?;
        }
        Ok(info)
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: we own it, and this is its last use; null is none.
        unsafe { ort!(self.api, ReleaseTensorTypeAndShapeInfo(self.raw)) }
    }
}

/// What stands for a size where it is no number. The context has no form for a size of which nothing is known, so one
/// gets a name that nothing else has.
fn name(dim: Dim) -> CString {
    static FRESH: AtomicU64 = AtomicU64::new(0);
    match dim {
        Dim::Known(_) => CString::default(),
        Dim::Symbol(name) => c_text(name),
        Dim::Unknown => c_text(format!("ai.ortmlx.{}", FRESH.fetch_add(1, Ordering::Relaxed))),
    }
}
