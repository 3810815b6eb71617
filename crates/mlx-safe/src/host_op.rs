//! Operations that a Rust function computes.

use std::error::Error as StdError;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt;
use std::sync::Arc;

use mlx_sys as sys;

use crate::error::argument;
use crate::handle::VectorArray;
use crate::host_view::{HostView, HostViewMut};
use crate::{Array, Device, DeviceType, Error, Result, Spec, Stream, callback, memory};

/// Any error of a host op's functions; a `&str` or `String` converts.
pub type HostError = Box<dyn StdError + Send + Sync>;

type Infer = Box<dyn Fn(&[Spec]) -> Result<Vec<Spec>, HostError> + Send + Sync>;
type Run = Box<dyn Fn(&[HostView<'_>], &mut [HostViewMut<'_>]) -> Result<(), HostError> + Send + Sync>;
type Vjp = Box<dyn Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>> + Send + Sync>;

/// An operation whose evaluation is a Rust function over raw buffers, lazy like every other.
///
/// It runs on a stream of the CPU (the current one, or the thread's default), on a thread of MLX's: so its functions are
/// `Send` and `Sync`. In the midst of work on a GPU it waits for its inputs and the GPU for its outputs; they change place
/// through memory that both see. The functions must be pure: MLX may call them once for two equal uses, or never (as when no
/// output has an element). They must not evaluate arrays.
///
/// ```
/// use mlx_safe::{Array, HostOp};
/// let sorted = HostOp::new(
///     "sorted",
///     |inputs| Ok(inputs.to_vec()),
///     |inputs, outputs| {
///         let out = outputs[0].as_mut_slice::<f32>()?;
///         out.copy_from_slice(inputs[0].as_slice()?);
///         out.sort_by(f32::total_cmp);
///         Ok(())
///     },
/// );
/// let y = &sorted.call(&[&Array::from_slice(&[3.0f32, 1.0, 2.0], &[3])?])?[0];
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), mlx_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct HostOp(Arc<Functions>);

struct Functions {
    name: String,
    infer: Infer,
    run: Run,
    vjp: Option<Vjp>,
    in_place: bool,
    stacks: bool,
}

impl HostOp {
    /// An operation called `name` in messages. `infer` says from the inputs' types and shapes what the outputs will be;
    /// `run` fills them.
    ///
    /// An error or a panic in `infer` comes back from [`call`](Self::call), one in `run` from the evaluation (for
    /// [`async_eval`](crate::async_eval), from the thread's next); the stream stays usable. What was computed from a failed
    /// operation then holds values made of zeros: do not use it.
    pub fn new(
        name: &str,
        infer: impl Fn(&[Spec]) -> Result<Vec<Spec>, HostError> + Send + Sync + 'static,
        run: impl Fn(&[HostView<'_>], &mut [HostViewMut<'_>]) -> Result<(), HostError> + Send + Sync + 'static,
    ) -> Self {
        let name = name.replace('\0', " ");
        let (infer, run): (Infer, Run) = (Box::new(infer), Box::new(run));
        Self(Arc::new(Functions { name, infer, run, vjp: None, in_place: false, stacks: false }))
    }

    /// An operation that changes the elements of its first input, float32 for example, and whose only output they are:
    /// `run` finds in `values` what the input has, and gets the other inputs. No memory is taken for the output where nobody
    /// else holds the input's.
    ///
    /// It does not matter to the operation what leading axes its first input has: `vmap` adds one.
    pub fn in_place(
        name: &str,
        run: impl Fn(&[HostView<'_>], &mut HostViewMut<'_>) -> Result<(), HostError> + Send + Sync + 'static,
    ) -> Self {
        let infer = |inputs: &[Spec]| match inputs.first() {
            Some(first) => Ok(vec![first.clone()]),
            None => Err("what works in place has an input".into()),
        };
        let run = move |inputs: &[HostView<'_>], outputs: &mut [HostViewMut<'_>]| match outputs {
            [values] => run(inputs, values),
            _ => Err("there is one output".into()),
        };
        let name = name.replace('\0', " ");
        let (infer, run): (Infer, Run) = (Box::new(infer), Box::new(run));
        Self(Arc::new(Functions { name, infer, run, vjp: None, in_place: true, stacks: true }))
    }

    /// The same operation with a derivative: `vjp(primals, cotangents, outputs)` returns one array for every primal, of its
    /// shape (zeros for one that has no derivative).
    ///
    /// `self` must not have been cloned yet.
    ///
    /// # Errors
    /// If it has been.
    pub fn with_vjp(
        mut self,
        vjp: impl Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>> + Send + Sync + 'static,
    ) -> Result<Self> {
        match Arc::get_mut(&mut self.0) {
            Some(functions) => functions.vjp = Some(Box::new(vjp)),
            None => return argument("with_vjp", "the operation is in use already"),
        }
        Ok(self)
    }

    /// The same operation, of which `vmap` by the first input is one call: that input and all outputs may have any number
    /// of leading axes.
    ///
    /// `self` must not have been cloned yet.
    ///
    /// # Errors
    /// If it has been.
    pub fn stacking(mut self) -> Result<Self> {
        match Arc::get_mut(&mut self.0) {
            Some(functions) => functions.stacks = true,
            None => return argument("stacking", "the operation is in use already"),
        }
        Ok(self)
    }

    /// Adds the operation to the lazy graph.
    ///
    /// # Errors
    /// What `infer` returned; if the outputs would not fit into MLX's memory limit.
    pub fn call(&self, inputs: &[&Array]) -> Result<Vec<Array>> {
        let inputs = VectorArray::from_arrays(inputs.iter().copied())?;
        let name = CString::new(self.0.name.as_str())
            .map_err(|_| Error::Argument { op: "host_op", message: "a name without NUL is needed".into() })?;
        let vjp: unsafe extern "C" fn(_, _, _, _, _) -> c_int = vjp;
        let stream = match Stream::current_device()? {
            DeviceType::Cpu => None,
            DeviceType::Gpu => Some(Stream::default_on(Device::CPU)?),
        };
        let call = || {
            Stream::with_current(|stream| {
                VectorArray::from_op("host_op", |out| {
                    let raw = sys::ortmlx_host_op {
                        name: name.as_ptr(),
                        payload: Arc::into_raw(self.0.clone()).cast_mut().cast(),
                        infer: Some(infer),
                        run: Some(run),
                        vjp: self.0.vjp.as_ref().map(|_| vjp),
                        release: Some(release),
                        in_place: self.0.in_place,
                        stacks: self.0.stacks,
                    };
                    // SAFETY: the payload is a counted reference to `Functions`, which every callback reads as such and
                    // `release` gives back; `out` is empty, the others are live, and `name` is copied.
                    unsafe { sys::ortmlx_host_op_apply(out, raw, inputs.raw(), stream) }
                })
            })
        };
        match stream {
            Some(stream) => stream.scope(call),
            None => call(),
        }
    }
}

impl fmt::Debug for HostOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostOp({})", self.0.name)
    }
}

/// Runs a callback that explains a failure, a panic too, through `sink`.
fn explained(sink: sys::ortmlx_sink, work: impl FnOnce() -> Result<(), HostError>) -> c_int {
    let message = match callback::catch(|| work().map_err(|error| error.to_string())) {
        Ok(Ok(())) => return 0,
        Ok(Err(message)) | Err(message) => message,
    };
    // SAFETY: the sink lives for the callback, and C++ copies the text.
    unsafe { sys::ortmlx_sink_set_message(sink, message.as_ptr().cast::<c_char>(), message.len()) };
    1
}

/// # Safety
/// `count` views begin at `first`.
unsafe fn views<'a>(first: *const sys::ortmlx_view, count: usize) -> &'a [sys::ortmlx_view] {
    if count == 0 {
        return &[];
    }
    // SAFETY: as the caller promised.
    unsafe { std::slice::from_raw_parts(first, count) }
}

unsafe extern "C" fn infer(
    payload: *mut c_void,
    inputs: *const sys::ortmlx_view,
    count: usize,
    sink: sys::ortmlx_sink,
) -> c_int {
    explained(sink, || {
        // SAFETY: the payload is the `Functions` of `HostOp::call`, alive while MLX holds the operation.
        let functions = unsafe { &*payload.cast::<Functions>() };
        // SAFETY: C++ passes `count` views; their data is not looked at here.
        let inputs = unsafe { views(inputs, count) }.iter().map(|view| unsafe { HostView::new(*view) });
        let inputs: Vec<Spec> = inputs
            .map(|view| view.map(|v| Spec::new(v.shape(), v.dtype())))
            .collect::<Result<_, HostError>>()?;
        let outputs = (functions.infer)(&inputs)?;
        if outputs.is_empty() {
            return Err("an operation has at least one output".into());
        }
        let limit = memory::limit()?;
        for Spec { shape, dtype } in &outputs {
            // MLX's CPU allocator ends the process when the system refuses.
            if Spec::new(shape, *dtype).nbytes().is_none_or(|bytes| bytes > limit) {
                return Err(format!("an output of {dtype:?}{shape:?} is not possible").into());
            }
            // SAFETY: the sink lives for the callback, and C++ copies the shape.
            let status =
                unsafe { sys::ortmlx_sink_add_output(sink, shape.as_ptr(), shape.len(), dtype.raw()) };
            if status != 0 {
                return Err("out of memory".into());
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn run(
    payload: *mut c_void,
    inputs: *const sys::ortmlx_view,
    inputs_count: usize,
    outputs: *const sys::ortmlx_view,
    outputs_count: usize,
    sink: sys::ortmlx_sink,
) -> c_int {
    explained(sink, || {
        // SAFETY: the payload is the `Functions` of `HostOp::call`, alive while MLX holds the operation.
        let functions = unsafe { &*payload.cast::<Functions>() };
        // SAFETY: C++ passes `inputs_count` views of evaluated arrays, which nobody writes until this returns.
        let inputs =
            unsafe { views(inputs, inputs_count) }.iter().map(|view| unsafe { HostView::new(*view) });
        // SAFETY: C++ passes `outputs_count` views of buffers that nobody else holds, filled with zeros or an input's values.
        let outputs =
            unsafe { views(outputs, outputs_count) }.iter().map(|view| unsafe { HostViewMut::new(*view) });
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let mut outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        (functions.run)(&inputs, &mut outputs)
    })
}

unsafe extern "C" fn vjp(
    payload: *mut c_void,
    out: *mut sys::mlx_vector_array,
    primals: sys::mlx_vector_array,
    cotangents: sys::mlx_vector_array,
    outputs: sys::mlx_vector_array,
) -> c_int {
    callback::run(|| {
        // SAFETY: the payload is the `Functions` of `HostOp::call`, alive while MLX holds the operation.
        let functions = unsafe { &*payload.cast::<Functions>() };
        match &functions.vjp {
            // SAFETY: C++ lends the vectors and `out` for this call.
            Some(vjp) => unsafe { callback::vjp(vjp, out, primals, cotangents, outputs) },
            None => argument("host_op", "has no vjp"),
        }
    })
}

unsafe extern "C" fn release(payload: *mut c_void) {
    // SAFETY: C++ gives back, once, the reference that `HostOp::call` handed over.
    let functions = unsafe { Arc::from_raw(payload.cast::<Functions>()) };
    // The last reference drops what the functions captured; a panic there must not reach C++.
    let _ = callback::catch(|| drop(functions));
}
