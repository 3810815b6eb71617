//! What can be wrong with a kernel's arguments.

use mlx_safe::Dtype;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An array has another number of axes than it must.
    #[error("{kernel}: {array} of shape {shape:?} is not {axes}")]
    Axes {
        /// The kernel's name.
        kernel: &'static str,
        /// The argument's name.
        array: &'static str,
        /// Its shape.
        shape: Vec<i32>,
        /// The axes it must have, as letters: `(T, B, D)`.
        axes: &'static str,
    },
    /// An array's sizes do not fit those of the others.
    #[error("{kernel}: {array} of shape {shape:?} does not fit the others, which want {wanted:?}")]
    Shape {
        /// The kernel's name.
        kernel: &'static str,
        /// The argument's name.
        array: &'static str,
        /// Its shape.
        shape: Vec<i32>,
        /// The shape that the other arguments imply.
        wanted: Vec<i32>,
    },
    /// An array has an element type that the kernel does not take there.
    #[error("{kernel}: {array} holds {dtype:?}, not {wanted}")]
    Dtype {
        /// The kernel's name.
        kernel: &'static str,
        /// The argument's name.
        array: &'static str,
        /// Its element type.
        dtype: Dtype,
        /// What it may be, in words.
        wanted: &'static str,
    },
    /// A slice has another length than the sizes say.
    #[error("{kernel}: {array} has {length} elements, not {wanted}")]
    Length {
        /// The kernel's name.
        kernel: &'static str,
        /// The argument's name.
        array: &'static str,
        /// Its length.
        length: usize,
        /// The length that the sizes imply.
        wanted: usize,
    },
    /// Query heads cannot be shared out among key heads.
    #[error("{kernel}: {heads} query heads are no multiple of {key_heads} key heads")]
    Heads {
        /// The kernel's name.
        kernel: &'static str,
        /// The number of query heads.
        heads: usize,
        /// The number of key heads.
        key_heads: usize,
    },
    /// A kernel that was asked for by name does not do what is wanted.
    #[error("{kernel} gives no {lacks}")]
    Kernel {
        /// The kernel's name in traces.
        kernel: &'static str,
        /// What it lacks.
        lacks: &'static str,
    },
    /// MLX refused.
    #[error(transparent)]
    Mlx(#[from] mlx_safe::Error),
}

impl From<Error> for mlx_safe::Error {
    /// For use inside functions that MLX differentiates or compiles.
    fn from(error: Error) -> Self {
        match error {
            Error::Mlx(error) => error,
            other => Self::Closure(other.to_string()),
        }
    }
}

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
