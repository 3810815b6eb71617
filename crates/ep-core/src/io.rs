//! What a run reads and where its results go.

use std::cell::Cell;
use std::mem::MaybeUninit;

use mlx_safe::{Array, CopiedBy};
use onnx_graph::ElementType;

use crate::{Decision, Error};

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
pub struct Elements<'a> {
    array: &'a Array,
    /// The bytes that went through the host so far.
    copied: &'a Cell<usize>,
}

impl<'a> Elements<'a> {
    pub(crate) fn of(array: &'a Array, copied: &'a Cell<usize>) -> Self {
        Self { array, copied }
    }

    /// How many bytes they take.
    pub fn bytes(self) -> usize {
        self.array.nbytes()
    }

    /// Writes them to `room`, row-major, in one pass.
    ///
    /// # Errors
    /// If `room` has another size.
    pub fn write_to(self, room: &mut [MaybeUninit<u8>]) -> Result<(), Error> {
        match self.array.copy_to(room)? {
            CopiedBy::Host => self.count(),
            CopiedBy::Device => {}
        }
        Ok(())
    }

    /// A copy of them, row-major.
    ///
    /// # Errors
    /// If MLX cannot make one.
    pub fn to_vec(self) -> Result<Vec<u8>, Error> {
        self.count();
        Ok(self.array.with_bytes(<[u8]>::to_vec)?)
    }

    fn count(self) {
        self.copied.set(self.copied.get() + self.bytes());
    }
}

/// What one run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// What crossed between the caller and MLX.
    pub traffic: Traffic,
    /// What was decided about runs like this one, if it was the first.
    pub decision: Option<Decision>,
}

/// What crossed between the caller's tensors and MLX's arrays in one run, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Inputs copied to MLX.
    pub copied_in: usize,
    /// Inputs that MLX read where they lie.
    pub read_in_place: usize,
    /// Outputs that the host copied to the caller; not those that a device wrote to memory of [`allocate`](crate::allocate).
    pub copied_out: usize,
}
