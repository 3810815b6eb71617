//! Operators that move or describe elements without reading them.

use crate::op::Entry;

mod concat;
mod constant;
mod constant_of_shape;
mod describe;
mod expand;
mod eye_like;
mod identity;
mod one_hot;
mod range;
mod reverse_sequence;
mod select;
mod slice;
mod split;
mod transpose;
mod trilu;
mod view;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::of::<concat::Concat>(),
    Entry::of::<constant::Constant>(),
    Entry::of::<constant_of_shape::ConstantOfShape>(),
    Entry::of::<describe::Describe>(),
    Entry::of::<expand::Expand>(),
    Entry::of::<eye_like::EyeLike>(),
    Entry::of::<identity::Identity>(),
    Entry::of::<one_hot::OneHot>(),
    Entry::of::<range::Range>(),
    Entry::of::<reverse_sequence::ReverseSequence>(),
    Entry::of::<select::Select>(),
    Entry::of::<slice::Slice>(),
    Entry::of::<split::Split>(),
    Entry::of::<transpose::Transpose>(),
    Entry::of::<trilu::Trilu>(),
    Entry::of::<view::View>(),
];
