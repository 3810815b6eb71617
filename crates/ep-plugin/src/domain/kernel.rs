//! A node of the domain that ONNX Runtime runs itself: checked when it is made, and again, with the sizes at hand, at
//! every run.

use std::ffi::c_char;
use std::ptr::null_mut;
use std::slice;

use onnx_graph::{Shape, TensorType, ValueType};
use ort_sys::{OrtKernelContext, OrtKernelInfo, OrtStatusPtr};

use super::NAME;
use super::call::{Buffer, BufferMut, Call};
use super::custom_op::CustomOp;
use super::operator::{Attribute, Formal, Sizes, Value};
use crate::api::{Api, Statuses, ort, text};
use crate::error::Error;
use crate::graph_ref::value_type;
use crate::tensor_ref::TensorRef;

/// A node.
pub struct Kernel {
    op: &'static CustomOp,
    /// Operator and node, for messages.
    title: String,
    attributes: Vec<Value>,
}

impl Kernel {
    /// Checks a node's attributes, and its inputs as far as they are declared.
    ///
    /// # Errors
    /// [`Error::Operator`] if something does not fit.
    ///
    /// # Safety
    /// `info` must be live.
    pub unsafe fn new(op: &'static CustomOp, info: *const OrtKernelInfo) -> Result<Self, Error> {
        let (api, domain, operator) = (op.api, NAME.to_string_lossy(), op.operator.title());
        // SAFETY: by the caller's word.
        let name = unsafe { string(api, |out, len| ort!(api, KernelInfo_GetNodeName(info, out, len))) }?;
        let title = match name.as_str() {
            "" => format!("{domain}.{operator}"),
            name => format!("{domain}.{operator} node '{name}'"),
        };
        let mut kernel = Self { op, title, attributes: Vec::new() };
        for attribute in op.operator.attributes {
            // SAFETY: by the caller's word.
            let value = unsafe { read(api, info, attribute) };
            kernel.attributes.push(value.map_err(|detail| kernel.refusal(detail))?);
        }
        // SAFETY: by the caller's word.
        let inputs = unsafe { declared(api, info) }?;
        op.operator.sizes(op.element, &inputs).map_err(|detail| kernel.refusal(detail))?;
        Ok(kernel)
    }

    /// What makes statuses.
    pub fn statuses(&self) -> Statuses {
        self.op.api.statuses()
    }

    fn refusal(&self, detail: String) -> Error {
        Error::Operator(format!("{}: {detail}", self.title))
    }

    /// Computes the node's outputs.
    ///
    /// # Errors
    /// [`Error::Operator`] if the inputs do not fit.
    ///
    /// # Safety
    /// `context` must be live.
    pub unsafe fn run(&self, context: *mut OrtKernelContext) -> Result<(), Error> {
        let (api, operator) = (self.op.api, self.op.operator);
        // SAFETY: by the caller's word; nobody writes to inputs during a run.
        let inputs = unsafe {
            let count: usize = api.get(|out| ort!(api, KernelContext_GetInputCount(context, out)))?;
            (0..count).map(|index| input(api, context, index)).collect::<Result<Vec<_>, Error>>()?
        };
        let types: Vec<_> = inputs.iter().map(|input| input.as_ref().map(tensor_type)).collect();
        let sizes = operator.sizes(self.op.element, &types).map_err(|detail| self.refusal(detail))?;
        // SAFETY: by the caller's word.
        let outputs = unsafe {
            let count: usize = api.get(|out| ort!(api, KernelContext_GetOutputCount(context, out)))?;
            let formals = operator.outputs.iter().take(count).enumerate();
            formals
                .map(|(index, formal)| self.output(context, index, formal, &sizes))
                .collect::<Result<Vec<_>, Error>>()?
        };
        let inputs = inputs
            .into_iter()
            .map(|input| input.map(|TensorRef { element, dims, data }| Buffer { element, dims, data }))
            .collect();
        let call = Call { sizes: &sizes, attributes: &self.attributes, inputs, outputs };
        operator.kernel(self.op.element)(call).map_err(|detail| self.refusal(detail))
    }

    /// A new output; `None` if nobody asks for it.
    ///
    /// # Safety
    /// `context` must be live during `'a`.
    unsafe fn output<'a>(
        &self,
        context: *mut OrtKernelContext,
        index: usize,
        formal: &Formal,
        sizes: &Sizes,
    ) -> Result<Option<BufferMut<'a>>, Error> {
        let api = self.op.api;
        let element = formal.element(self.op.element).unwrap_or(self.op.element);
        let dims = formal.shape(sizes).known();
        let dims =
            dims.ok_or_else(|| self.refusal(format!("no input tells the shape of output {formal}")))?;
        let bytes = dims.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
        let bytes = bytes.and_then(|count| element.bytes(count));
        let bytes = bytes.ok_or_else(|| self.refusal(format!("output {formal} would be too large")))?;
        let shape: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
        // SAFETY: by the caller's word; the sizes are read before the call returns. The tensor is new and has the type and
        // the sizes asked for; its memory is ONNX Runtime's own, and an empty one may have no address.
        let data = unsafe {
            let value = api.get(|out| {
                ort!(api, KernelContext_GetOutput(context, index, shape.as_ptr(), shape.len(), out))
            })?;
            if value.is_null() {
                return Ok(None);
            }
            match bytes {
                0 => &mut [],
                _ => {
                    let data = api.get(|out| ort!(api, GetTensorMutableData(value, out)))?;
                    slice::from_raw_parts_mut(data.cast::<u8>(), bytes)
                }
            }
        };
        Ok(Some(BufferMut { element, data }))
    }
}

fn tensor_type(tensor: &TensorRef<'_>) -> TensorType {
    TensorType { element: tensor.element, shape: Some(Shape::fixed(&tensor.dims)) }
}

/// # Safety
/// `context` must be live during `'a`.
unsafe fn input<'a>(
    api: Api,
    context: *const OrtKernelContext,
    index: usize,
) -> Result<Option<TensorRef<'a>>, Error> {
    // SAFETY: by the caller's word; the node runs on the CPU, so its inputs lie in host memory.
    unsafe {
        let value = api.get(|out| ort!(api, KernelContext_GetInput(context, index, out)))?;
        if value.is_null() { Ok(None) } else { TensorRef::read(api, value) }
    }
}

/// The types of a node's inputs; `None` for one left out.
///
/// # Safety
/// `info` must be live.
unsafe fn declared(api: Api, info: *const OrtKernelInfo) -> Result<Vec<Option<TensorType>>, Error> {
    // SAFETY: by the caller's word; out-parameters.
    let count: usize = unsafe { api.get(|out| ort!(api, KernelInfo_GetInputCount(info, out))) }?;
    let mut inputs = Vec::with_capacity(count);
    for index in 0..count {
        // SAFETY: as above; the type is ours.
        let given = unsafe {
            let name = string(api, |out, len| ort!(api, KernelInfo_GetInputName(info, index, out, len)))?;
            if name.is_empty() {
                inputs.push(None);
                continue;
            }
            let raw = api.get(|out| ort!(api, KernelInfo_GetInputTypeInfo(info, index, out)))?;
            let given = value_type(api, raw);
            ort!(api, ReleaseTypeInfo(raw));
            given?
        };
        inputs.push(match given {
            ValueType::Tensor(tensor) => Some(tensor),
            _ => None,
        });
    }
    Ok(inputs)
}

/// # Safety
/// `info` must be live.
unsafe fn read(api: Api, info: *const OrtKernelInfo, attribute: &Attribute) -> Result<Value, String> {
    let (name, shown) = (attribute.name().as_ptr(), attribute.name().to_string_lossy());
    // SAFETY: by the caller's word; out-parameters.
    let (int, float) = unsafe {
        (
            api.get(|out| ort!(api, KernelInfoGetAttribute_int64(info, name, out))).ok(),
            api.get(|out| ort!(api, KernelInfoGetAttribute_float(info, name, out))).ok(),
        )
    };
    // SAFETY: by the caller's word.
    let other = || unsafe { holds_other(api, info, name) };
    let meaning = attribute.meaning();
    match (attribute, int, float) {
        (Attribute::Int { allowed, .. }, Some(value), _) if allowed.contains(&value) => Ok(Value::Int(value)),
        (Attribute::Float { .. }, _, Some(value)) if value.is_finite() => Ok(Value::Float(Some(value))),
        (Attribute::Int { .. }, Some(value), _) => {
            Err(format!("attribute '{shown}' is {value}: give {meaning}"))
        }
        (Attribute::Float { .. }, _, Some(value)) => {
            Err(format!("attribute '{shown}' is {value}: give {meaning}"))
        }
        (Attribute::Int { default, .. }, None, None) if !other() => Ok(Value::Int(*default)),
        (Attribute::Float { .. }, None, None) if !other() => Ok(Value::Float(None)),
        (Attribute::Int { .. }, ..) => Err(format!("attribute '{shown}' is no integer: give {meaning}")),
        (Attribute::Float { .. }, ..) => Err(format!("attribute '{shown}' is no float: give {meaning}")),
    }
}

/// Whether an attribute is a text or a list: ONNX Runtime has one error for another type and for no such attribute.
///
/// # Safety
/// `info` must be live, `name` a C string.
unsafe fn holds_other(api: Api, info: *const OrtKernelInfo, name: *const c_char) -> bool {
    let mut len = 0;
    // SAFETY: by the caller's word; a null buffer asks for the length.
    unsafe {
        api.check(ort!(api, KernelInfoGetAttribute_string(info, name, null_mut(), &raw mut len))).is_ok()
            || api
                .check(ort!(api, KernelInfoGetAttributeArray_int64(info, name, null_mut(), &raw mut len)))
                .is_ok_and(|()| len > 0)
            || api
                .check(ort!(api, KernelInfoGetAttributeArray_float(info, name, null_mut(), &raw mut len)))
                .is_ok_and(|()| len > 0)
    }
}

/// Text that `call` writes into a buffer, whose length it tells first.
///
/// # Safety
/// `call` must be such a call of ONNX Runtime.
unsafe fn string(api: Api, call: impl Fn(*mut c_char, *mut usize) -> OrtStatusPtr) -> Result<String, Error> {
    let mut len = 0;
    // SAFETY: a null buffer asks for the length, the zero at the end included.
    unsafe { api.check(call(null_mut(), &raw mut len)) }?;
    let mut buffer: Vec<c_char> = vec![0; len + 1];
    // SAFETY: the buffer holds `len` characters and a zero.
    unsafe {
        api.check(call(buffer.as_mut_ptr(), &raw mut len))?;
        Ok(text(buffer.as_ptr())?.to_owned())
    }
}
