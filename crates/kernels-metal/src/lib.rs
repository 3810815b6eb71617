//! Fused kernels for MLX, and the plain forms that define them.
//!
//! Every kernel has a composed form in MLX operations: it is the fallback where no fused kernel fits, and the oracle that
//! kernels are tested against. The composed forms themselves are tested against float64.
#![forbid(unsafe_code)]

pub mod selective_scan;
