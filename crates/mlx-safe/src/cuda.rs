//! What concerns CUDA alone.

use crate::Result;
use crate::error::check;

/// Whether the loaded MLX library has CUDA.
///
/// # Errors
/// If MLX cannot say.
pub fn is_available() -> Result<bool> {
    let mut available = false;
    check("cuda", || {
        // SAFETY: writes one bool.
        unsafe { mlx_sys::mlx_cuda_is_available(&mut available) }
    })?;
    Ok(available)
}
