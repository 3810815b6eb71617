//! Products of matrices, and attention.

use crate::op::Entry;

mod attention;
mod einsum;
mod gemm;
mod matmul;
mod matmul_integer;
mod product;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::of::<attention::Attention>(),
    Entry::of::<einsum::Einsum>(),
    Entry::of::<gemm::Gemm>(),
    Entry::of::<matmul::MatMul>(),
    Entry::of::<matmul_integer::MatMulInteger>(),
];
