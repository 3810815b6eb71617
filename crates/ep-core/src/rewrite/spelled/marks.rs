//! What constants and casts do to a value beside what is computed: they give it axes, and they round it.

use onnx_graph::ElementType;
use onnx_graph::pattern::{Place, Scopes};

/// The marks of all that a value is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Marks {
    /// The largest rank of a constant, to which values of a lower one broadcast.
    rank: usize,
    to_float16: bool,
    to_bfloat16: bool,
}

impl Marks {
    /// Those of a constant of so many axes.
    pub(crate) fn rank(rank: usize) -> Self {
        Self { rank, ..Self::default() }
    }

    /// Those of a cast to fewer bits.
    pub(crate) fn rounded(to: ElementType) -> Self {
        let (to_float16, to_bfloat16) = (to == ElementType::Float16, to == ElementType::Bfloat16);
        Self { to_float16, to_bfloat16, ..Self::default() }
    }

    /// Those of what is made of two values.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            rank: self.rank.max(other.rank),
            to_float16: self.to_float16 || other.to_float16,
            to_bfloat16: self.to_bfloat16 || other.to_bfloat16,
        }
    }

    /// Whether one operator of `x` may give `value`: it has no more axes than `x`, and is rounded no more than at the end.
    pub(crate) fn fit(self, scopes: &Scopes<'_, '_>, x: Place, value: Place) -> bool {
        let element = scopes.element(value);
        (self.rank == 0 || scopes.rank(x).is_some_and(|rank| self.rank <= rank))
            && (!self.to_float16 || element == Some(ElementType::Float16))
            && (!self.to_bfloat16 || element == Some(ElementType::Bfloat16))
    }
}
