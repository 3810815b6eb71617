//! Checks of the arrays that a kernel is given.

use mlx_safe::{Array, Dtype};

use crate::{Error, Result};

/// The arguments of the kernel of this name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments(pub(crate) &'static str);

impl Arguments {
    /// That the argument `array` has the shape that the others imply.
    pub(crate) fn shape(self, array: &'static str, found: &Array, wanted: &[usize]) -> Result<()> {
        let wanted: Vec<i32> = wanted.iter().map(|&n| n as i32).collect();
        if found.shape() == wanted {
            return Ok(());
        }
        Err(Error::Shape { kernel: self.0, array, shape: found.shape().into(), wanted })
    }

    /// That the argument `array` is of a type that kernels compute with.
    pub(crate) fn float(self, array: &'static str, found: &Array) -> Result<()> {
        match found.dtype() {
            Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16 => Ok(()),
            _ => Err(self.dtype(array, found, "float32, float16 or bfloat16")),
        }
    }

    /// The error of an argument `array` that is not of the type wanted, in words.
    pub(crate) fn dtype(self, array: &'static str, found: &Array, wanted: &'static str) -> Error {
        Error::Dtype { kernel: self.0, array, dtype: found.dtype(), wanted }
    }
}
