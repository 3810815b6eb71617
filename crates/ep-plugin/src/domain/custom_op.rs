//! `OrtCustomOp`: an operator for one element type behind the table through which ONNX Runtime asks about it.
//!
//! Operators of one name share a schema. The first input has the operator's own type and so chooses among them; further
//! inputs may have any, and are compared when the kernel is made, with a better message than ONNX Runtime's.

use std::ffi::{c_char, c_void};
use std::ptr::null;

use onnx_graph::ElementType;
use ort_sys::{
    ONNXTensorElementDataType, OrtApi, OrtCustomOp, OrtCustomOpInputOutputCharacteristic, OrtKernelContext,
    OrtKernelInfo, OrtMemType, OrtShapeInferContext, OrtStatusPtr,
};

use super::inference;
use super::kernel::Kernel;
use super::operator::{Formal, Kind, Operator};
use crate::api::Api;
use crate::boundary;

/// An operator for T = `element`.
#[repr(C)]
pub struct CustomOp {
    table: OrtCustomOp,
    pub(super) api: Api,
    pub(super) operator: &'static Operator,
    pub(super) element: ElementType,
}

impl CustomOp {
    /// One that lives for ever.
    pub fn leak(api: Api, operator: &'static Operator, element: ElementType) -> *const OrtCustomOp {
        let table = OrtCustomOp {
            version: api.version(),
            CreateKernel: None,
            GetName: Some(get_name),
            GetExecutionProviderType: Some(get_execution_provider_type),
            GetInputType: Some(get_input_type),
            GetInputTypeCount: Some(get_input_type_count),
            GetOutputType: Some(get_output_type),
            GetOutputTypeCount: Some(get_output_type_count),
            KernelCompute: None,
            KernelDestroy: Some(kernel_destroy),
            GetInputCharacteristic: Some(get_input_characteristic),
            GetOutputCharacteristic: Some(get_output_characteristic),
            GetInputMemoryType: Some(get_input_memory_type),
            GetVariadicInputMinArity: None,
            GetVariadicInputHomogeneity: None,
            GetVariadicOutputMinArity: None,
            GetVariadicOutputHomogeneity: None,
            CreateKernelV2: Some(create_kernel),
            KernelComputeV2: Some(kernel_compute),
            InferOutputShapeFn: Some(infer_output_shape),
            GetStartVersion: None,
            GetEndVersion: None,
            GetMayInplace: None,
            ReleaseMayInplace: None,
            GetAliasMap: None,
            ReleaseAliasMap: None,
        };
        let op: &'static Self = Box::leak(Box::new(Self { table, api, operator, element }));
        &raw const op.table
    }

    /// # Safety
    /// `raw` must come from [`Self::leak`].
    unsafe fn of(raw: *const OrtCustomOp) -> &'static Self {
        // SAFETY: by the caller's word; the table is the first member, and it lives for ever.
        unsafe { &*raw.cast() }
    }

    fn ort_type(&self) -> ONNXTensorElementDataType {
        match self.element {
            ElementType::Float16 => ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
            ElementType::Bfloat16 => ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
            _ => ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        }
    }
}

fn characteristic(formals: &[Formal], index: usize) -> OrtCustomOpInputOutputCharacteristic {
    match formals.get(index) {
        Some(formal) if formal.optional => OrtCustomOpInputOutputCharacteristic::INPUT_OUTPUT_OPTIONAL,
        _ => OrtCustomOpInputOutputCharacteristic::INPUT_OUTPUT_REQUIRED,
    }
}

unsafe extern "system" fn get_name(op: *const OrtCustomOp) -> *const c_char {
    // SAFETY: ONNX Runtime passes an operator of ours.
    unsafe { CustomOp::of(op) }.operator.name.as_ptr()
}

/// Null stands for the CPU provider.
unsafe extern "system" fn get_execution_provider_type(_: *const OrtCustomOp) -> *const c_char {
    null()
}

unsafe extern "system" fn get_input_type(op: *const OrtCustomOp, index: usize) -> ONNXTensorElementDataType {
    match index {
        // SAFETY: ONNX Runtime passes an operator of ours.
        0 => unsafe { CustomOp::of(op) }.ort_type(),
        _ => ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED,
    }
}

unsafe extern "system" fn get_input_type_count(op: *const OrtCustomOp) -> usize {
    // SAFETY: as above.
    unsafe { CustomOp::of(op) }.operator.inputs.len()
}

unsafe extern "system" fn get_output_type(op: *const OrtCustomOp, index: usize) -> ONNXTensorElementDataType {
    // SAFETY: as above.
    let op = unsafe { CustomOp::of(op) };
    match op.operator.outputs.get(index) {
        Some(formal) if formal.kind == Kind::Float => {
            ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
        }
        _ => op.ort_type(),
    }
}

unsafe extern "system" fn get_output_type_count(op: *const OrtCustomOp) -> usize {
    // SAFETY: as above.
    unsafe { CustomOp::of(op) }.operator.outputs.len()
}

unsafe extern "system" fn get_input_characteristic(
    op: *const OrtCustomOp,
    index: usize,
) -> OrtCustomOpInputOutputCharacteristic {
    // SAFETY: as above.
    characteristic(unsafe { CustomOp::of(op) }.operator.inputs, index)
}

unsafe extern "system" fn get_output_characteristic(
    op: *const OrtCustomOp,
    index: usize,
) -> OrtCustomOpInputOutputCharacteristic {
    // SAFETY: as above.
    characteristic(unsafe { CustomOp::of(op) }.operator.outputs, index)
}

unsafe extern "system" fn get_input_memory_type(_: *const OrtCustomOp, _: usize) -> OrtMemType {
    OrtMemType::OrtMemTypeDefault
}

unsafe extern "system" fn infer_output_shape(
    op: *const OrtCustomOp,
    context: *mut OrtShapeInferContext,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let op = unsafe { CustomOp::of(op) };
    boundary::status(op.api.statuses(), "InferOutputShapeFn", || {
        // SAFETY: the context is live for this call.
        unsafe { inference::infer(op, context) }
    })
}

unsafe extern "system" fn create_kernel(
    op: *const OrtCustomOp,
    _: *const OrtApi,
    info: *const OrtKernelInfo,
    kernel: *mut *mut c_void,
) -> OrtStatusPtr {
    // SAFETY: as above.
    let op = unsafe { CustomOp::of(op) };
    boundary::status(op.api.statuses(), "CreateKernelV2", || {
        // SAFETY: the information is live for this call; the last is an out-parameter.
        unsafe { *kernel = Box::into_raw(Box::new(Kernel::new(op, info)?)).cast() };
        Ok(())
    })
}

unsafe extern "system" fn kernel_compute(
    kernel: *mut c_void,
    context: *mut OrtKernelContext,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a kernel of ours, perhaps from several threads; it is only read.
    let kernel = unsafe { &*kernel.cast::<Kernel>() };
    boundary::status(kernel.statuses(), "KernelComputeV2", || {
        // SAFETY: the context is live for this call.
        unsafe { kernel.run(context) }
    })
}

unsafe extern "system" fn kernel_destroy(kernel: *mut c_void) {
    if !kernel.is_null() {
        // SAFETY: ONNX Runtime gives back what `create_kernel` made, once.
        boundary::void("KernelDestroy", || drop(unsafe { Box::from_raw(kernel.cast::<Kernel>()) }));
    }
}
