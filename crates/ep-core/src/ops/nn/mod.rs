//! Convolution and pooling.

use crate::op::Entry;

mod average_pool;
mod conv;
mod conv_transpose;
mod convolve;
mod fused_conv;
mod global_pool;
mod max_pool;
mod max_unpool;
mod pool;
mod window;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::of::<average_pool::SumPool>(),
    Entry::of::<conv::Conv>(),
    Entry::of::<conv_transpose::ConvTranspose>(),
    Entry::of::<fused_conv::FusedConv>(),
    Entry::of::<global_pool::GlobalPool>(),
    Entry::of::<max_pool::MaxPool>(),
    Entry::of::<max_unpool::MaxUnpool>(),
];
