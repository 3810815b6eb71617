//! Kernels in one text for Metal and CUDA, launched through MLX.
//!
//! A kernel's text is in the language that both have in common; `dialect/` says the rest in each. Sizes are inputs: a new
//! size compiles nothing.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use mlx_safe::{Array, CudaKernel, KernelSource, Launch, MetalKernel, Spec, TemplateArg};

use crate::Result;

/// A language that kernels are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dialect {
    Metal,
    Cuda,
}

/// The text of a kernel.
pub(crate) struct Kernel {
    pub name: &'static str,
    /// Functions that the body calls, each after those that it needs itself.
    pub functions: &'static [&'static str],
    pub body: &'static str,
    pub inputs: &'static [&'static str],
    pub outputs: &'static [&'static str],
}

/// One run of a kernel.
pub(crate) struct Call<'a> {
    pub kernel: &'static Kernel,
    /// Number of threadgroups.
    pub groups: usize,
    /// Threads of each.
    pub threads: usize,
    /// Bytes of memory that a group shares, as the body counts them.
    pub memory: usize,
    /// How many groups a CUDA multiprocessor is to hold at once: bounds the registers of a thread.
    pub resident: usize,
    pub template: Vec<(&'static str, TemplateArg)>,
    pub inputs: Vec<&'a Array>,
    pub outputs: Vec<Spec>,
}

/// What runs a call: a GPU, or in tests a host that stands in for it.
pub(crate) type Run<'a> = &'a dyn Fn(Call) -> Result<Vec<Array>>;

impl Call<'_> {
    /// The grid that MLX is told, if its size can be said at all.
    fn grid(&self) -> Option<i32> {
        i32::try_from(self.groups.checked_mul(self.threads)?).ok()
    }

    pub fn launch(&self) -> Result<Launch> {
        let too_many = || mlx_safe::Error::Argument {
            op: self.kernel.name,
            message: format!("{} groups of {} threads are too many", self.groups, self.threads),
        };
        let grid = [self.grid().ok_or_else(too_many)?, 1, 1];
        let mut launch = Launch::new(grid, [self.threads as i32, 1, 1]);
        for spec in &self.outputs {
            launch = launch.output(spec.clone());
        }
        for &(name, value) in &self.template {
            launch = launch.template(name, value);
        }
        Ok(launch)
    }

    /// The whole source. MLX keeps compiled CUDA code on disk by name alone, over versions: the name says what is in it.
    pub fn source(&self, dialect: Dialect) -> KernelSource {
        type Key = (Dialect, &'static str, [usize; 3]);
        static SOURCES: LazyLock<Mutex<HashMap<Key, KernelSource>>> = LazyLock::new(Mutex::default);
        let (kernel, key) =
            (self.kernel, (dialect, self.kernel.name, [self.threads, self.resident, self.memory]));
        let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
        sources
            .entry(key)
            .or_insert_with(|| {
                let mut header = match dialect {
                    Dialect::Metal => include_str!("dialect/metal.h").to_owned(),
                    Dialect::Cuda => format!(
                        "#define THREADS {}\n#define GROUPS {}\n{}",
                        self.threads,
                        self.resident,
                        include_str!("dialect/cuda.h")
                    ),
                };
                for text in kernel.functions {
                    header.push('\n');
                    header.push_str(text);
                }
                let name = format!("{}_{:016x}", kernel.name, hash(&[&header, kernel.body]));
                KernelSource::new(&name, kernel.body)
                    .header(&header)
                    .inputs(kernel.inputs)
                    .outputs(kernel.outputs)
                    .shared_memory(if dialect == Dialect::Cuda { self.memory as i32 } else { 0 })
            })
            .clone()
    }
}

impl Dialect {
    /// Adds a call to the lazy graph, on the current stream.
    ///
    /// # Errors
    /// If there is no such GPU.
    #[allow(unsafe_code)] // The one place where this crate vouches for what its kernels do.
    pub fn run(self, call: Call) -> Result<Vec<Array>> {
        let (source, launch) = (call.source(self), call.launch()?);
        Ok(match self {
            Self::Metal => {
                let kernel = MetalKernel::new(&source)?;
                // SAFETY: texts come from this crate alone. They bound every access by the sizes that their callers take
                // from the arrays' shapes, write every element of every output, and share memory between barriers only:
                // the tests run them under address and thread checks.
                unsafe { kernel.launch(&launch, &call.inputs)? }
            }
            Self::Cuda => {
                let kernel = CudaKernel::new(&source)?;
                // SAFETY: as above, for the same text.
                unsafe { kernel.launch(&launch, &call.inputs)? }
            }
        })
    }
}

/// FNV-1a: the same in every build.
fn hash(texts: &[&str]) -> u64 {
    texts
        .iter()
        .flat_map(|text| text.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
