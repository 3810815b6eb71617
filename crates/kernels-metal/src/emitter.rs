//! Which dialect of a kernel runs.

use std::fmt;

use mlx_safe::Stream;

use crate::Result;

/// A dialect of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Emitter {
    /// Rust on the CPU, with SIMD and threads, as a host op. It is right under a GPU's stream too.
    Host,
}

impl Emitter {
    /// The dialect for the current stream.
    ///
    /// # Errors
    /// If MLX has no current stream.
    pub fn current() -> Result<Self> {
        Stream::current_device()?;
        Ok(Self::Host)
    }
}

impl fmt::Display for Emitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
        })
    }
}
