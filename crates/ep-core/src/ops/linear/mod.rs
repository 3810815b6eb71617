//! Products of matrices, attention, and the embedding of positions for it.

use crate::op::Entry;

mod attention;
mod einsum;
mod gemm;
mod matmul;
mod matmul_integer;
mod product;
mod rotary;
mod scaled_dot_product;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::of::<attention::Attention>(),
    Entry::of::<einsum::Einsum>(),
    Entry::of::<gemm::Gemm>(),
    Entry::of::<matmul::MatMul>(),
    Entry::of::<matmul_integer::MatMulInteger>(),
    Entry::of::<rotary::Rotary>(),
    Entry::of::<rotary::RotaryEmbedding>(),
    Entry::of::<scaled_dot_product::ScaledDotProductAttention>(),
    Entry::of::<scaled_dot_product::ScaledDotProductAttentionGrad>(),
];
