//! `OrtNodeComputeInfo`: one compiled cluster, run as often and from as many threads as ONNX Runtime likes.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::slice;
use std::sync::Arc;

use ep_core::{Elements, Executable, OutputSink, TensorView};
use onnx_graph::ElementType;
use ort_sys::{OrtKernelContext, OrtStatusPtr};
use tracing::Dispatch;
use tracing::dispatcher::with_default;

use crate::abi::{OrtNodeComputeContext, OrtNodeComputeInfo};
use crate::api::{Api, ort};
use crate::boundary;
use crate::element;
use crate::error::Error;
use crate::heap;
use crate::report::Report;
use crate::tensor_ref::{TensorRef, type_and_dims};

/// A compiled cluster behind the table through which ONNX Runtime calls it.
#[repr(C)]
pub struct Compute {
    table: OrtNodeComputeInfo,
    api: Api,
    log: Dispatch,
    parts: Parts,
}

/// What a compiled cluster consists of.
pub struct Parts {
    /// The program.
    pub executable: Executable,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// How many outputs it has.
    pub outputs: usize,
    /// Bytes of the constants that ONNX Runtime had for it.
    pub constants: usize,
    /// Where runs are reported, if anywhere.
    pub trace: Option<Trace>,
}

/// Where runs are reported.
pub struct Trace {
    /// The trace file.
    pub report: Arc<Report>,
    /// The fused node's name.
    pub name: String,
}

/// An input of the cluster.
pub struct Input {
    /// Its name, for messages.
    pub name: String,
    /// Which input of the fused node feeds it.
    pub feed: usize,
}

impl Compute {
    /// Puts a cluster behind a table.
    pub fn new(api: Api, log: Dispatch, parts: Parts) -> Self {
        let table = OrtNodeComputeInfo {
            ort_version_supported: api.version(),
            CreateState: Some(create_state),
            Compute: Some(compute),
            ReleaseState: Some(release_state),
        };
        Self { table, api, log, parts }
    }

    /// Gives it to ONNX Runtime.
    pub fn into_raw(self: Box<Self>) -> *mut OrtNodeComputeInfo {
        Box::into_raw(self).cast()
    }

    /// Takes it back; null is none.
    ///
    /// # Safety
    /// `raw` must be null or come from [`Self::into_raw`] and not have been taken back yet.
    pub unsafe fn take(raw: *mut OrtNodeComputeInfo) -> Option<Box<Self>> {
        // SAFETY: by the caller's word; the table is the first member.
        (!raw.is_null()).then(|| unsafe { Box::from_raw(raw.cast()) })
    }

    /// # Safety
    /// `context` must be live.
    unsafe fn run(&self, context: *mut OrtKernelContext) -> Result<(), Error> {
        let tensors: Vec<TensorRef<'_>> = self
            .parts
            .inputs
            .iter()
            // SAFETY: by the caller's word.
            .map(|input| unsafe { self.input(context, input) })
            .collect::<Result<_, _>>()?;
        let views: Vec<TensorView<'_>> = tensors
            .iter()
            .map(|tensor| TensorView { element: tensor.element, shape: &tensor.dims, data: tensor.data })
            .collect();
        let mut outputs = Outputs { api: self.api, context, written: vec![false; self.parts.outputs] };
        let ran = self.parts.executable.run(&views, &mut outputs).map_err(|error| self.name_input(error))?;
        if let Some(index) = outputs.written.iter().position(|&written| !written) {
            return Err(Error::Bug(format!("a run left output {index} unwritten")));
        }
        let Some(Trace { report, name }) = &self.parts.trace else { return Ok(()) };
        if let Some(decision) = &ran.decision {
            let names: Vec<&str> = self.parts.inputs.iter().map(|input| input.name.as_str()).collect();
            report.mode(name, decision, &names);
        }
        report.run(name, ran.traffic);
        Ok(())
    }

    /// The engine counts inputs; people know their names.
    fn name_input(&self, error: ep_core::Error) -> Error {
        let ep_core::Error::Input { index, detail } = error else { return error.into() };
        match self.parts.inputs.get(index) {
            Some(input) => Error::Tensor(format!("input '{}': {detail}", input.name)),
            None => ep_core::Error::Input { index, detail }.into(),
        }
    }

    /// # Safety
    /// `context` must be live for `'a`.
    unsafe fn input<'a>(
        &self,
        context: *const OrtKernelContext,
        input: &Input,
    ) -> Result<TensorRef<'a>, Error> {
        let api = self.api;
        // SAFETY: the context is live; without an allocator of ours, ONNX Runtime keeps inputs in host memory, and
        // nobody writes to them during a run.
        let tensor = unsafe {
            let value = api.get(|out| ort!(api, KernelContext_GetInput(context, input.feed, out)))?;
            if value.is_null() {
                return Err(Error::Tensor(format!("input '{}' is missing", input.name)));
            }
            TensorRef::read(api, value)?
        };
        tensor.ok_or_else(|| Error::Tensor(format!("input '{}' has no numeric elements", input.name)))
    }
}

/// Where a run's results go: tensors that ONNX Runtime allocates once their shape is known.
struct Outputs {
    api: Api,
    context: *mut OrtKernelContext,
    written: Vec<bool>,
}

// SAFETY: the context is bound to no thread, and while a run lasts nobody else uses it.
unsafe impl Send for Outputs {}

impl Outputs {
    fn copy(
        &mut self,
        index: usize,
        element: ElementType,
        shape: &[usize],
        elements: Elements<'_>,
    ) -> Result<(), Error> {
        let Some(written) = self.written.get_mut(index) else {
            return Err(Error::Bug(format!("there is no output {index}")));
        };
        *written = true;
        let (api, context) = (self.api, self.context);
        let dims: Vec<i64> = shape.iter().map(|&dim| dim as i64).collect();
        // SAFETY: the context is live for the run; the sizes are read before the call returns.
        let value = unsafe {
            api.get(|out| ort!(api, KernelContext_GetOutput(context, index, dims.as_ptr(), dims.len(), out)))?
        };
        // SAFETY: a new, live value.
        let (number, _) = unsafe { type_and_dims(api, value) }?;
        let bytes = shape.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
        let bytes = bytes.and_then(|count| element.bytes(count));
        if element::from_ort(number) != Some(element) || bytes != Some(elements.bytes()) {
            return Err(Error::Bug(format!(
                "output {index} is {element}{shape:?} of {} bytes, ONNX Runtime has element type {number}",
                elements.bytes()
            )));
        }
        if elements.bytes() > 0 {
            // SAFETY: the tensor is new, has the type and sizes asked for, and so exactly these bytes.
            let room = unsafe {
                let target: *mut c_void = api.get(|out| ort!(api, GetTensorMutableData(value, out)))?;
                slice::from_raw_parts_mut(target.cast::<MaybeUninit<u8>>(), elements.bytes())
            };
            elements.write_to(room)?;
        }
        Ok(())
    }
}

impl OutputSink for Outputs {
    fn write(
        &mut self,
        index: usize,
        element: ElementType,
        shape: &[usize],
        elements: Elements<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.copy(index, element, shape, elements)?)
    }
}

unsafe extern "system" fn create_state(
    this: *mut OrtNodeComputeInfo,
    _: *mut OrtNodeComputeContext,
    state: *mut *mut c_void,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes the table of a live `Compute`.
    let this = unsafe { &*this.cast::<Compute>() };
    boundary::status(this.api.statuses(), "CreateState", || {
        // ONNX Runtime has dropped its copies of the constants by now.
        heap::trim(this.parts.constants);
        // SAFETY: an out-parameter. A cluster keeps what it needs in itself.
        unsafe { *state = null_mut() };
        Ok(())
    })
}

unsafe extern "system" fn compute(
    this: *mut OrtNodeComputeInfo,
    _: *mut c_void,
    context: *mut OrtKernelContext,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes the table of a live `Compute`, perhaps from several threads; it is `Sync`.
    let this = unsafe { &*this.cast::<Compute>() };
    boundary::status(this.api.statuses(), "Compute", || {
        // SAFETY: the context is live for this call.
        with_default(&this.log, || unsafe { this.run(context) })
    })
}

unsafe extern "system" fn release_state(_: *mut OrtNodeComputeInfo, _: *mut c_void) {}
