//! Whether a host kernel takes the place of MLX's operations.

use mlx_safe::{Array, DeviceType, Result, Stream};

/// Below so many elements MLX's operations, one element at a time, are as quick as the call of a host op.
const SMALL: usize = 1024;

/// Whether the current stream is a CPU's, and `x` large enough.
pub(crate) fn worth_host(x: &Array) -> Result<bool> {
    Ok(x.size() >= SMALL && Stream::current_device()? == DeviceType::Cpu)
}
