//! What MLX's allocator holds.

use mlx_sys as sys;

use crate::Result;
use crate::error::check;

macro_rules! readings {
    ($($(#[$doc:meta])* $name:ident => $raw:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name() -> Result<usize> {
            let mut bytes = 0usize;
            check(stringify!($name), || {
                // SAFETY: writes one size_t.
                unsafe { sys::$raw(&mut bytes) }
            })?;
            Ok(bytes)
        }
    )*};
}

readings! {
    /// Bytes in use by arrays.
    active => mlx_get_active_memory;
    /// The most bytes in use at once since the start or the last [`reset_peak`].
    peak => mlx_get_peak_memory;
    /// Bytes kept for reuse.
    cached => mlx_get_cache_memory;
    /// The most bytes that MLX means to use; by default a part of the device's memory.
    limit => mlx_get_memory_limit;
}

/// Starts measuring [`peak`] anew.
pub fn reset_peak() -> Result<()> {
    check("reset_peak", || {
        // SAFETY: takes nothing.
        unsafe { sys::mlx_reset_peak_memory() }
    })
}

/// Gives the bytes kept for reuse back to the system.
pub fn clear_cache() -> Result<()> {
    check("clear_cache", || {
        // SAFETY: takes nothing.
        unsafe { sys::mlx_clear_cache() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_plausible() {
        let before = limit().unwrap();
        println!("limit {before}");
        assert!(before > 1 << 28, "{before}");
        let kept = crate::zeros(&[1 << 20], crate::Dtype::Float32).unwrap().copy().unwrap();
        kept.eval().unwrap();
        assert!(active().unwrap() >= 4 << 20 && peak().unwrap() >= active().unwrap());
        reset_peak().unwrap();
        clear_cache().unwrap();
        assert_eq!(cached().unwrap(), 0);
    }
}
