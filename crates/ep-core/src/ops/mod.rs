//! The operators, one op or true family a file; the file's name says which.

use crate::op::Entry;

mod activation;
mod control;
mod elementwise;
mod image;
mod index;
mod linear;
mod nn;
mod norm;
mod recurrent;
mod reduce;
mod scan;
mod shape;

/// Every operator that can be claimed, family by family.
pub(crate) static FAMILIES: &[&[Entry]] = &[
    activation::OPS,
    control::OPS,
    elementwise::OPS,
    image::OPS,
    index::OPS,
    linear::OPS,
    nn::OPS,
    norm::OPS,
    recurrent::OPS,
    reduce::OPS,
    scan::OPS,
    shape::OPS,
];
