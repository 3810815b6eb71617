//! Kernels in Metal's or CUDA's language, compiled when they first run.

use std::ffi::{CString, c_int};
use std::marker::PhantomData;

use mlx_sys as sys;

use crate::error::{argument, check, install_handler, take_message};
use crate::handle::VectorArray;
use crate::{Array, DeviceType, Dtype, Error, Result, Spec, Stream};

/// The source of a kernel and the names by which it knows its arrays.
///
/// The source is the *body* of the kernel function: MLX writes the signature, from the arrays' types. For every input `x`
/// the body may use `x_shape`, `x_strides` and `x_ndim`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KernelSource {
    /// The kernel's name, an identifier.
    pub name: String,
    /// The function's body.
    pub body: String,
    /// What stands before the function.
    pub header: String,
    /// The inputs' names, in order.
    pub inputs: Vec<String>,
    /// The outputs' names, in order.
    pub outputs: Vec<String>,
    /// Whether inputs are copied where they do not lie in row-major order without gaps.
    pub row_contiguous: bool,
    /// Metal: whether outputs are atomic.
    pub atomic_outputs: bool,
    /// CUDA: bytes of dynamic shared memory for every block.
    pub shared_memory: i32,
}

impl KernelSource {
    /// A kernel called `name`, an identifier, whose function has this body.
    pub fn new(name: &str, body: &str) -> Self {
        Self {
            name: name.into(),
            body: body.into(),
            header: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            row_contiguous: true,
            atomic_outputs: false,
            shared_memory: 0,
        }
    }

    /// Source that stands before the function: includes and helpers.
    pub fn header(mut self, header: &str) -> Self {
        self.header = header.into();
        self
    }

    /// The inputs' names, in order.
    pub fn inputs(mut self, names: &[&str]) -> Self {
        self.inputs = names.iter().map(|&name| name.into()).collect();
        self
    }

    /// The outputs' names, in order.
    pub fn outputs(mut self, names: &[&str]) -> Self {
        self.outputs = names.iter().map(|&name| name.into()).collect();
        self
    }

    /// Whether inputs are copied, where they must be, so that they lie in row-major order without gaps. On at first;
    /// without it the body must follow the strides.
    pub fn ensure_row_contiguous(mut self, yes: bool) -> Self {
        self.row_contiguous = yes;
        self
    }

    /// Metal: whether outputs are `device atomic<T>*`.
    pub fn atomic_outputs(mut self, yes: bool) -> Self {
        self.atomic_outputs = yes;
        self
    }

    /// CUDA: bytes of dynamic shared memory for every block.
    pub fn shared_memory(mut self, bytes: i32) -> Self {
        self.shared_memory = bytes;
        self
    }

    /// Whether names and sizes are possible; `op` names the caller in the error.
    ///
    /// # Errors
    /// If one is not.
    pub fn check(&self, op: &'static str) -> Result<()> {
        for name in [&self.name].into_iter().chain(&self.inputs).chain(&self.outputs) {
            identifier(op, name)?;
        }
        if self.outputs.is_empty() {
            return argument(op, format!("kernel {} has no output", self.name));
        }
        if self.shared_memory < 0 {
            return argument(op, format!("{} bytes of shared memory", self.shared_memory));
        }
        Ok(())
    }
}

/// The value of a template argument. Every new value compiles the kernel anew: pass sizes as inputs where they change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateArg {
    /// A type.
    Dtype(Dtype),
    /// An `int`.
    Int(i32),
    /// A `bool`.
    Bool(bool),
}

impl From<Dtype> for TemplateArg {
    fn from(dtype: Dtype) -> Self {
        Self::Dtype(dtype)
    }
}

impl From<i32> for TemplateArg {
    fn from(value: i32) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for TemplateArg {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// How one launch of a kernel goes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Launch {
    /// The number of threads along each axis.
    pub grid: [i32; 3],
    /// The size of a group of threads.
    pub threadgroup: [i32; 3],
    /// Shapes and types of the outputs.
    pub outputs: Vec<Spec>,
    /// Template arguments, in order.
    pub template: Vec<(String, TemplateArg)>,
    /// What outputs are filled with beforehand.
    pub init_value: Option<f32>,
}

impl Launch {
    /// `grid` *threads* (not groups, on CUDA too), in groups of `threadgroup`.
    pub fn new(grid: [i32; 3], threadgroup: [i32; 3]) -> Self {
        Self { grid, threadgroup, outputs: Vec::new(), template: Vec::new(), init_value: None }
    }

    /// The next output's shape and type.
    pub fn output(mut self, spec: Spec) -> Self {
        self.outputs.push(spec);
        self
    }

    /// A template argument.
    pub fn template(mut self, name: &str, value: impl Into<TemplateArg>) -> Self {
        self.template.push((name.into(), value.into()));
        self
    }

    /// What all outputs are filled with before the kernel runs. Without it they hold whatever was in memory.
    pub fn init_value(mut self, value: f32) -> Self {
        self.init_value = Some(value);
        self
    }

    /// Whether this launch fits `source` and a number of inputs; `op` names the caller in the error.
    ///
    /// # Errors
    /// If it does not.
    pub fn check(&self, op: &'static str, source: &KernelSource, inputs: usize) -> Result<()> {
        let KernelSource { name, inputs: names, outputs, .. } = source;
        if names.len() != inputs || outputs.len() != self.outputs.len() {
            let (given, out) = (inputs, self.outputs.len());
            return argument(
                op,
                format!("kernel {name} maps {names:?} to {outputs:?}, not {given} arrays to {out}"),
            );
        }
        if let Some(bad) = self.outputs.iter().find(|spec| spec.nbytes().is_none()) {
            return argument(op, format!("kernel {name} cannot have an output of {bad:?}"));
        }
        let threads = self.threadgroup.iter().try_fold(1i32, |n, &d| n.checked_mul(d));
        let positive = self.grid.iter().chain(&self.threadgroup).all(|&n| n > 0);
        // Both Metal and CUDA stop there.
        if !positive || threads.is_none_or(|n| n > 1024) {
            let (grid, group) = (self.grid, self.threadgroup);
            return argument(
                op,
                format!(
                    "kernel {name}: a grid of {grid:?} in groups of {group:?}; sizes are positive, a group has at most \
                     1024 threads"
                ),
            );
        }
        self.template.iter().try_for_each(|(name, _)| identifier(op, name))
    }
}

fn identifier(op: &'static str, name: &str) -> Result<()> {
    let head = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if head && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(());
    }
    argument(op, format!("'{name}' is not an identifier"))
}

fn text(op: &'static str, text: &str) -> Result<CString> {
    CString::new(text)
        .map_err(|_| Error::Argument { op, message: "a source must not hold a NUL character".into() })
}

/// An owned `std::vector<std::string>`.
struct Names(sys::mlx_vector_string);

impl Names {
    fn new(op: &'static str, names: &[String]) -> Result<Self> {
        // SAFETY: makes an empty handle.
        let list = Self(unsafe { sys::mlx_vector_string_new() });
        for name in names {
            let name = text(op, name)?;
            check(op, || {
                // SAFETY: the handle is live; the string is copied.
                unsafe { sys::mlx_vector_string_append_value(list.0, name.as_ptr()) }
            })?;
        }
        Ok(list)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        // SAFETY: we own the handle, and this is its last use.
        unsafe { sys::mlx_vector_string_free(self.0) };
    }
}

/// One back end's kernel: mlx-c has the same calls for each under different names.
macro_rules! kernel {
    (
        $(#[$doc:meta])* $name:ident, $op:literal, $extra:ident, $missing:literal, $available:ident;
        $raw:ident, $new:ident, $free:ident, $apply:ident;
        $config:ident, $config_new:ident, $config_free:ident, $output:ident, $grid:ident, $group:ident, $init:ident,
        $dtype:ident, $int:ident, $bool:ident
    ) => {
        $(#[$doc])*
        ///
        /// Not `Send`: MLX does not say that its kernel objects may be shared, and one is cheap to make on every thread
        /// (the compiled code is cached by name and source).
        ///
        /// ```compile_fail
        /// fn is_send<T: Send>() {}
        #[doc = concat!("is_send::<mlx_safe::", stringify!($name), ">();")]
        /// ```
        pub struct $name {
            raw: sys::$raw,
            source: KernelSource,
            not_send: PhantomData<*const ()>,
        }

        impl $name {
            /// Whether kernels of this kind run here.
            pub fn is_available() -> bool {
                install_handler();
                let mut available = false;
                let asked = check($op, || {
                    // SAFETY: writes one bool.
                    unsafe { sys::$available(&mut available) }
                });
                asked.is_ok() && available
            }

            /// Prepares a kernel; it is compiled when it first runs.
            ///
            /// # Errors
            /// If the back end is not there; if a name is not an identifier.
            pub fn new(source: &KernelSource) -> Result<Self> {
                source.check($op)?;
                if !Self::is_available() {
                    return argument($op, $missing);
                }
                let (name, body) = (text($op, &source.name)?, text($op, &source.body)?);
                let header = text($op, &source.header)?;
                let (inputs, outputs) = (Names::new($op, &source.inputs)?, Names::new($op, &source.outputs)?);
                // A failure below is told apart from an older one by the message that it leaves.
                check($op, || 0)?;
                // SAFETY: all handles are live and all strings outlive the call, which copies them.
                let raw = unsafe {
                    sys::$new(
                        name.as_ptr(),
                        inputs.0,
                        outputs.0,
                        body.as_ptr(),
                        header.as_ptr(),
                        source.row_contiguous,
                        source.$extra,
                    )
                };
                if raw.ctx.is_null() {
                    return Err(Error::Mlx { op: $op, message: take_message() });
                }
                Ok(Self { raw, source: source.clone(), not_send: PhantomData })
            }

            /// Adds a launch to the lazy graph, on the current stream.
            ///
            /// # Errors
            /// If the arrays do not fit the names, the sizes are not possible, or the current stream is not a GPU's.
            /// A source that does not compile is an error of the evaluation.
            ///
            /// # Safety
            /// The body runs with the GPU's access to memory, unchecked. For the given inputs, outputs, template
            /// arguments and grid it must
            /// - read inputs and write outputs inside their bounds only, at every thread, those beyond the data included
            ///   (inputs that are empty too);
            /// - write every element of every output, unless there is an initial value;
            /// - have no data races: threads that touch one element do it atomically or with barriers between;
            /// - write to nothing but its outputs (inputs are shared with other arrays);
            /// - end, and stay within the device's registers and threadgroup memory.
            pub unsafe fn launch(&self, launch: &Launch, inputs: &[&Array]) -> Result<Vec<Array>> {
                launch.check($op, &self.source, inputs.len())?;
                if Stream::current_device()? != DeviceType::Gpu {
                    return argument($op, "the current stream is the CPU's: kernels run on a GPU");
                }
                struct Config(sys::$config);
                impl Drop for Config {
                    fn drop(&mut self) {
                        // SAFETY: we own the handle, and this is its last use.
                        unsafe { sys::$config_free(self.0) };
                    }
                }
                let inputs = VectorArray::from_arrays(inputs.iter().copied())?;
                // SAFETY: makes a handle that we own.
                let config = Config(unsafe { sys::$config_new() });
                let c = config.0;
                for Spec { shape, dtype } in &launch.outputs {
                    check($op, || {
                        // SAFETY: the handle is live, and the shape outlives the call with its length beside it.
                        unsafe { sys::$output(c, shape.as_ptr(), shape.len(), dtype.raw()) }
                    })?;
                }
                let ([x, y, z], [i, j, k]) = (launch.grid, launch.threadgroup);
                check($op, || {
                    // SAFETY: the handle is live.
                    unsafe { sys::$grid(c, x, y, z) }
                })?;
                check($op, || {
                    // SAFETY: the handle is live.
                    unsafe { sys::$group(c, i, j, k) }
                })?;
                if let Some(value) = launch.init_value {
                    check($op, || {
                        // SAFETY: the handle is live.
                        unsafe { sys::$init(c, value) }
                    })?;
                }
                for (name, value) in &launch.template {
                    let name = text($op, name)?;
                    check($op, || -> c_int {
                        // SAFETY: the handle is live, and the name is copied.
                        unsafe {
                            match *value {
                                TemplateArg::Dtype(dtype) => sys::$dtype(c, name.as_ptr(), dtype.raw()),
                                TemplateArg::Int(value) => sys::$int(c, name.as_ptr(), value),
                                TemplateArg::Bool(value) => sys::$bool(c, name.as_ptr(), value),
                            }
                        }
                    })?;
                }
                Stream::with_current(|stream| {
                    VectorArray::from_op($op, |out| {
                        // SAFETY: all handles are live; what the kernel does, the caller answers for.
                        unsafe { sys::$apply(out, self.raw, inputs.raw(), c, stream) }
                    })
                })
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: we own the handle, and this is its last use.
                unsafe { sys::$free(self.raw) };
            }
        }
    };
}

kernel! {
    /// A kernel in Metal's shading language.
    MetalKernel, "metal_kernel", atomic_outputs, "this MLX has no Metal back end: Metal kernels run on macOS",
    mlx_metal_is_available;
    mlx_fast_metal_kernel, mlx_fast_metal_kernel_new, mlx_fast_metal_kernel_free, mlx_fast_metal_kernel_apply;
    mlx_fast_metal_kernel_config, mlx_fast_metal_kernel_config_new, mlx_fast_metal_kernel_config_free,
    mlx_fast_metal_kernel_config_add_output_arg, mlx_fast_metal_kernel_config_set_grid,
    mlx_fast_metal_kernel_config_set_thread_group, mlx_fast_metal_kernel_config_set_init_value,
    mlx_fast_metal_kernel_config_add_template_arg_dtype, mlx_fast_metal_kernel_config_add_template_arg_int,
    mlx_fast_metal_kernel_config_add_template_arg_bool
}

kernel! {
    /// A kernel in CUDA C++.
    CudaKernel, "cuda_kernel", shared_memory,
    "this MLX has no CUDA back end, or sees no GPU: CUDA kernels run on NVIDIA GPUs", mlx_cuda_is_available;
    mlx_fast_cuda_kernel, mlx_fast_cuda_kernel_new, mlx_fast_cuda_kernel_free, mlx_fast_cuda_kernel_apply;
    mlx_fast_cuda_kernel_config, mlx_fast_cuda_kernel_config_new, mlx_fast_cuda_kernel_config_free,
    mlx_fast_cuda_kernel_config_add_output_arg, mlx_fast_cuda_kernel_config_set_grid,
    mlx_fast_cuda_kernel_config_set_thread_group, mlx_fast_cuda_kernel_config_set_init_value,
    mlx_fast_cuda_kernel_config_add_template_arg_dtype, mlx_fast_cuda_kernel_config_add_template_arg_int,
    mlx_fast_cuda_kernel_config_add_template_arg_bool
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> KernelSource {
        KernelSource::new("scale", "y[0] = x[0];").inputs(&["x"]).outputs(&["y"])
    }

    #[test]
    fn a_missing_back_end_is_a_clear_error() {
        if !MetalKernel::is_available() {
            let error = MetalKernel::new(&source()).err().map(|e| e.to_string()).unwrap();
            assert!(error.contains("no Metal back end"), "{error}");
        }
        if !CudaKernel::is_available() {
            let error = CudaKernel::new(&source()).err().map(|e| e.to_string()).unwrap();
            assert!(error.contains("no CUDA back end"), "{error}");
        }
    }

    #[test]
    fn bad_names_and_launches_are_refused_before_anything_runs() {
        let refused = |source: KernelSource| source.check("kernel").unwrap_err().to_string();
        assert!(refused(KernelSource::new("a b", "").outputs(&["y"])).contains("'a b'"));
        assert!(refused(source().inputs(&["1"])).contains("'1'"));
        assert!(refused(source().outputs(&[])).contains("no output"));

        let y = Spec::new(&[4], Dtype::Float32);
        let good = Launch::new([4, 1, 1], [4, 1, 1]).output(y.clone()).template("T", Dtype::Float32);
        good.check("kernel", &source(), 1).unwrap();
        let refused = |launch: Launch, n| launch.check("kernel", &source(), n).unwrap_err().to_string();
        assert!(refused(good.clone(), 2).contains("2 arrays"));
        assert!(refused(good.clone().output(y.clone()), 1).contains("to 2"));
        assert!(refused(good.clone().template("N-1", 3), 1).contains("'N-1'"));
        assert!(refused(Launch::new([0, 1, 1], [4, 1, 1]).output(y.clone()), 1).contains("positive"));
        assert!(refused(Launch::new([4, 1, 1], [64, 32, 1]).output(y.clone()), 1).contains("1024"));
        assert!(refused(Launch::new([4, 1, 1], [1 << 16, 1 << 16, 1]).output(y), 1).contains("1024"));
        let negative = Launch::new([4, 1, 1], [4, 1, 1]).output(Spec::new(&[-1], Dtype::Float32));
        assert!(refused(negative, 1).contains("-1"));
    }
}
