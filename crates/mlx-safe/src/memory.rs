//! What MLX's allocator holds.

use mlx_sys as sys;

use crate::Result;
use crate::error::check;

macro_rules! readings {
    ($($(#[$doc:meta])* $name:ident => $raw:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// If MLX cannot say.
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

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident => $raw:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// If MLX refuses.
        pub fn $name(bytes: usize) -> Result<usize> {
            let mut before = 0usize;
            check(stringify!($name), || {
                // SAFETY: writes one size_t.
                unsafe { sys::$raw(&mut before, bytes) }
            })?;
            Ok(before)
        }
    )*};
}

limits! {
    /// Sets [`limit`] and returns the one before. MLX waits for running work before it goes beyond it; a single array that is
    /// larger is an error when it is evaluated.
    set_limit => mlx_set_memory_limit;
    /// Sets how many bytes are kept for reuse and returns the limit before; 0 keeps none.
    set_cache_limit => mlx_set_cache_limit;
    /// Sets how many bytes Metal keeps resident (macOS 15 and later) and returns the limit before; elsewhere it does nothing.
    set_wired_limit => mlx_set_wired_limit;
}

/// Starts measuring [`peak`] anew.
///
/// # Errors
/// If MLX refuses.
pub fn reset_peak() -> Result<()> {
    check("reset_peak", || {
        // SAFETY: takes nothing.
        unsafe { sys::mlx_reset_peak_memory() }
    })
}

/// Gives the bytes kept for reuse back to the system.
///
/// # Errors
/// If MLX refuses.
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
        assert!(before > 1 << 28, "{before}");
        let kept = crate::zeros(&[1 << 20], crate::Dtype::Float32).unwrap().copy().unwrap();
        kept.eval().unwrap();
        assert!(active().unwrap() >= 4 << 20 && peak().unwrap() >= active().unwrap());
        reset_peak().unwrap();
        clear_cache().unwrap();
    }
    #[test]
    fn limits_are_set_and_handed_back() {
        let before = set_limit(usize::MAX).unwrap();
        // More than any machine has.
        let huge = crate::zeros(&[i32::MAX, 1 << 15], crate::Dtype::Float32).unwrap();
        assert!(huge.exp().unwrap().eval().unwrap_err().to_string().contains("not so much memory"));
        assert_eq!(set_limit(1 << 30).unwrap(), usize::MAX);
        assert_eq!(limit().unwrap(), 1 << 30);
        assert_eq!(set_limit(before).unwrap(), 1 << 30);
        let before = set_cache_limit(1 << 20).unwrap();
        assert_eq!(set_cache_limit(before).unwrap(), 1 << 20);
        set_wired_limit(0).unwrap();
    }
}
