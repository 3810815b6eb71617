//! Which of the kernels computes an attention: the one place that chooses.

use std::fmt;

use mlx_safe::{DeviceType, Dtype, Stream, cuda};

use super::{Attention, Inputs};
use crate::Result;

/// A way to compute an attention and its pullback. All give the same, to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// Rust on the CPU, with SIMD and threads, as a host op.
    Host,
    /// MLX's operations on some queries at a time.
    Mlx,
    /// MLX's own attention and its derivative, with sizes filled up to those for which MLX has one kernel. It gives no
    /// log-sum-exp.
    MlxFused,
}

impl Kernel {
    /// What runs on the current stream when the log-sum-exp is wanted or given.
    pub(super) fn with_lse() -> Result<Self> {
        Ok(match Stream::current_device()? {
            DeviceType::Cpu => Self::Host,
            DeviceType::Gpu => Self::Mlx,
        })
    }

    /// What runs on the current stream for Y alone, and for the pullback of dY alone.
    pub(super) fn without_lse(attention: &Attention, inputs: &Inputs) -> Result<Self> {
        let fused = Stream::current_device()? == DeviceType::Gpu
            && cuda::is_available()?
            && Self::is_fused_by_mlx(attention, inputs)?;
        if fused { Ok(Self::MlxFused) } else { Self::with_lse() }
    }

    /// Whether MLX's CUDA kernels take it, forward and backward, once sizes are filled up. What they give for a query that
    /// sees nothing is not told, so masks are not for them.
    fn is_fused_by_mlx(attention: &Attention, inputs: &Inputs) -> Result<bool> {
        let sizes = inputs.sizes()?;
        Ok(matches!(inputs.q.dtype(), Dtype::Float16 | Dtype::Bfloat16)
            && inputs.mask.is_none()
            && (1..=128).contains(&sizes.width)
            && (1..=128).contains(&sizes.value_width)
            && (!attention.causal || sizes.queries <= sizes.keys)
            && !sizes.is_empty())
    }
}

/// As in traces: `host`, `mlx`, `mlx_fused`.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Mlx => "mlx",
            Self::MlxFused => "mlx_fused",
        })
    }
}
