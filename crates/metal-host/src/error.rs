//! What can go wrong.

use std::io;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The compiler refused the text.
    #[error("the kernel does not compile:\n{0}")]
    Compile(String),
    /// The checks found something, or the program broke.
    #[error("the kernel failed:\n{0}")]
    Run(String),
    /// The program did not end in time.
    #[error("the kernel did not end within {0} seconds: do all threads reach the same barriers?")]
    Hang(u64),
    /// The program wrote less than the outputs.
    #[error("the kernel's program wrote less than its outputs")]
    Short,
    /// A type that Metal has not.
    #[error("Metal has no {0:?}")]
    Dtype(mlx_safe::Dtype),
    /// A file or process could not be used.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// MLX refused.
    #[error(transparent)]
    Mlx(#[from] mlx_safe::Error),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
