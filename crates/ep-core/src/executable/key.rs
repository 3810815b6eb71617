//! What a recording is right for: types and shapes of all inputs, and the contents of those that its trace read.

use mlx_safe::Spec;

use crate::io::TensorView;

/// One run's inputs.
pub(crate) struct Call<'a> {
    pub(crate) views: &'a [TensorView<'a>],
    /// The same types and shapes as MLX has them.
    pub(crate) specs: Vec<Spec>,
}

/// Compared in full: a hash alone would run the wrong recording one day.
#[derive(Debug)]
pub(crate) struct Key {
    specs: Vec<Spec>,
    /// Inputs by number, with their bytes.
    contents: Vec<(usize, Box<[u8]>)>,
}

impl Key {
    /// The key of a trace of `call` that read the inputs `read`.
    pub(crate) fn new(call: &Call<'_>, read: &[usize]) -> Self {
        let contents = read.iter().map(|&i| (i, call.views[i].data.into())).collect();
        Self { specs: call.specs.clone(), contents }
    }

    pub(crate) fn fits(&self, call: &Call<'_>) -> bool {
        let same = |(i, bytes): &(usize, Box<[u8]>)| **bytes == *call.views[*i].data;
        self.specs == call.specs && self.contents.iter().all(same)
    }
}
