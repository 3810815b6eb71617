//! Operators that bring values to a common scale.

use crate::op::Entry;

mod batch_norm;
mod group_norm;
mod layer_norm;
mod local_response;
mod lp_norm;
mod mean_variance;
mod skip_norm;
mod softmax;

/// Every operator of this family.
pub(crate) static OPS: &[Entry] = &[
    Entry::of::<batch_norm::BatchNorm>(),
    Entry::of::<group_norm::GroupNorm>(),
    Entry::of::<layer_norm::LayerNorm>(),
    Entry::of::<local_response::LocalResponse>(),
    Entry::of::<lp_norm::LpNorm>(),
    Entry::of::<mean_variance::MeanVariance>(),
    Entry::of::<skip_norm::SkipNorm>(),
    Entry::of::<softmax::Softmax>(),
];
