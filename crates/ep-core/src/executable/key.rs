//! What a recording is right for: types and shapes of all inputs, which it knows itself, and the contents of those that its
//! trace read. Both are compared in full: a hash alone would run the wrong recording one day.

use mlx_safe::Spec;

use crate::io::TensorView;

/// One run's inputs.
pub(crate) struct Call<'a> {
    pub(crate) views: &'a [TensorView<'a>],
    /// The same types and shapes as MLX has them.
    pub(crate) specs: Vec<Spec>,
}

/// What is kept for some calls.
pub(crate) trait Fits {
    /// Whether it is right for `call`.
    fn fits(&self, call: &Call<'_>) -> bool;
}

/// The contents of some inputs: by number, with their bytes.
#[derive(Debug)]
pub(crate) struct Contents(Vec<(usize, Box<[u8]>)>);

impl Contents {
    /// Those of the inputs `read` of `call`.
    pub(crate) fn new(call: &Call<'_>, read: &[usize]) -> Self {
        Self(read.iter().map(|&i| (i, call.views[i].data.into())).collect())
    }
}

impl Fits for Contents {
    fn fits(&self, call: &Call<'_>) -> bool {
        self.0.iter().all(|(i, bytes)| call.views.get(*i).is_some_and(|view| **bytes == *view.data))
    }
}
