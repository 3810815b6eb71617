//! Which dialect of a kernel runs.

use std::fmt;

use mlx_safe::{CudaKernel, DeviceType, MetalKernel, Stream};

use crate::Result;
use crate::gpu::Dialect;

/// A dialect of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Emitter {
    /// Rust on the CPU, with SIMD and threads, as a host op. It is right under a GPU's stream too.
    Host,
    /// Metal's shading language.
    Metal,
    /// CUDA C++.
    Cuda,
}

impl Emitter {
    /// The dialect for the current stream.
    ///
    /// # Errors
    /// If MLX has no current stream.
    pub fn current() -> Result<Self> {
        Ok(match Stream::current_device()? {
            DeviceType::Gpu if MetalKernel::is_available() => Self::Metal,
            DeviceType::Gpu if CudaKernel::is_available() => Self::Cuda,
            _ => Self::Host,
        })
    }

    /// The language for a GPU.
    pub(crate) fn dialect(self) -> Option<Dialect> {
        match self {
            Self::Host => None,
            Self::Metal => Some(Dialect::Metal),
            Self::Cuda => Some(Dialect::Cuda),
        }
    }
}

impl fmt::Display for Emitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Metal => "metal",
            Self::Cuda => "cuda",
        })
    }
}
