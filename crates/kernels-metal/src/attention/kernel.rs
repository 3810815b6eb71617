//! Which of the kernels computes an attention: the one place that chooses.

use std::fmt;
use std::sync::OnceLock;

use mlx_safe::{Device, DeviceType, Dtype, Property, Stream, cuda};

use super::{Attention, Inputs, gpu};
use crate::{Emitter, Result};

/// A way to compute an attention and its pullback. All give the same, to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// Rust on the CPU, with SIMD and threads, as a host op.
    Host,
    /// Tiles of scores in threadgroup memory, in Metal's language. Sizes above 0, widths up to 256.
    Metal,
    /// The same in CUDA C++. Compute capability 9 or 10.
    Cuda,
    /// MLX's operations on some queries at a time.
    Mlx,
    /// MLX's own attention and its derivative, with sizes filled up to those for which MLX has one kernel. It gives no
    /// log-sum-exp.
    MlxFused,
}

impl Kernel {
    /// What runs on the current stream when the log-sum-exp is wanted or given.
    pub(super) fn with_lse(inputs: &Inputs) -> Result<Self> {
        Ok(match (Emitter::current()?, Stream::current_device()?) {
            (Emitter::Metal, _) if gpu::takes(&inputs.sizes()?) => Self::Metal,
            (Emitter::Cuda, _) if gpu::takes(&inputs.sizes()?) && has_room_for_tiles()? => Self::Cuda,
            (_, DeviceType::Gpu) => Self::Mlx,
            (_, DeviceType::Cpu) => Self::Host,
        })
    }

    /// What runs on the current stream for Y alone, and for the pullback of dY alone.
    pub(super) fn without_lse(attention: &Attention, inputs: &Inputs) -> Result<Self> {
        let fused = Stream::current_device()? == DeviceType::Gpu
            && cuda::is_available()?
            && Self::is_fused_by_mlx(attention, inputs)?;
        if fused { Ok(Self::MlxFused) } else { Self::with_lse(inputs) }
    }

    /// Whether MLX's CUDA kernels take it, forward and backward, once sizes are filled up, to less than twice as many queries.
    /// What they give for a query that sees nothing is not told, so masks are not for them.
    fn is_fused_by_mlx(attention: &Attention, inputs: &Inputs) -> Result<bool> {
        let sizes = inputs.sizes()?;
        Ok(matches!(inputs.q.dtype(), Dtype::Float16 | Dtype::Bfloat16)
            && inputs.mask.is_none()
            && (1..=128).contains(&sizes.width)
            && (1..=128).contains(&sizes.value_width)
            && (!attention.causal || sizes.queries <= sizes.keys)
            && 2 * sizes.queries > sizes.queries.next_multiple_of(128)
            && !sizes.is_empty())
    }
}

/// Whether a group of the CUDA device has the 227 KiB of shared memory that tiles may take.
fn has_room_for_tiles() -> Result<bool> {
    static ROOM: OnceLock<bool> = OnceLock::new();
    if let Some(&room) = ROOM.get() {
        return Ok(room);
    }
    let info = Device::GPU.info()?;
    let room = matches!(info.get("compute_capability_major"), Some(Property::Number(9 | 10)));
    Ok(*ROOM.get_or_init(|| room))
}

/// As in traces: `host`, `metal`, `cuda`, `mlx`, `mlx_fused`.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Metal => "metal",
            Self::Cuda => "cuda",
            Self::Mlx => "mlx",
            Self::MlxFused => "mlx_fused",
        })
    }
}
