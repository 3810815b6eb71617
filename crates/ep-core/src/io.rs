//! What a run reads and where its results go.

use std::mem::MaybeUninit;

use mlx_safe::Array;
use onnx_graph::ElementType;

use crate::Error;

/// A tensor of the caller's, read during a run.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Element type.
    pub element: ElementType,
    /// Sizes; empty for a scalar.
    pub shape: &'a [usize],
    /// The elements, row-major in the host's byte order.
    pub data: &'a [u8],
}

/// Where a run puts its results.
pub trait OutputSink: Send {
    /// Takes output `index`: makes room for `shape` elements and has them written there.
    ///
    /// # Errors
    /// Whatever keeps the caller from making room, or the elements from being written.
    fn write(
        &mut self,
        index: usize,
        element: ElementType,
        shape: &[usize],
        elements: Elements<'_>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

/// The elements of a result, wherever and however they lie.
#[derive(Clone, Copy)]
pub struct Elements<'a>(&'a Array);

impl<'a> Elements<'a> {
    pub(crate) fn of(array: &'a Array) -> Self {
        Self(array)
    }

    /// How many bytes they take.
    pub fn bytes(self) -> usize {
        self.0.nbytes()
    }

    /// Writes them to `room`, row-major, in one pass.
    ///
    /// # Errors
    /// If `room` has another size.
    pub fn write_to(self, room: &mut [MaybeUninit<u8>]) -> Result<(), Error> {
        Ok(self.0.copy_to(room)?)
    }

    /// A copy of them, row-major.
    ///
    /// # Errors
    /// If MLX cannot make one.
    pub fn to_vec(self) -> Result<Vec<u8>, Error> {
        Ok(self.0.with_bytes(<[u8]>::to_vec)?)
    }
}

/// What crossed between the caller's tensors and MLX's arrays in one run, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Inputs copied to MLX.
    pub copied_in: usize,
    /// Inputs that MLX read where they lie.
    pub read_in_place: usize,
    /// Outputs copied to the caller.
    pub copied_out: usize,
}
