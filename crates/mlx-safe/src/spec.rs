//! An array's shape and element type without its values.

use crate::{Array, Dtype};

/// Shape and element type: what an operation of your own promises of an output.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Sizes; empty for a scalar.
    pub shape: Vec<i32>,
    /// The element type.
    pub dtype: Dtype,
}

impl Spec {
    /// `dtype[shape]`.
    pub fn new(shape: &[i32], dtype: Dtype) -> Self {
        Self { shape: shape.to_vec(), dtype }
    }

    /// The number of bytes of such an array; `None` if a size is negative or there are too many.
    pub(crate) fn nbytes(&self) -> Option<usize> {
        let sizes = self.shape.iter().map(|&n| usize::try_from(n).ok());
        sizes.into_iter().try_fold(self.dtype.size(), |bytes, n| bytes.checked_mul(n?))
    }
}

impl From<&Array> for Spec {
    fn from(array: &Array) -> Self {
        Self::new(array.shape(), array.dtype())
    }
}
