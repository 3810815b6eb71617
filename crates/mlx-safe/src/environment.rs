//! MLX's own environment variables, where its defaults are wrong for a program that runs for long and wants float32.

/// What [`set_defaults`] sets.
const DEFAULTS: [(&str, &str); 2] = [
    // On CUDA, float32 products are rounded to TF32 (10 bits of mantissa) unless this is 0.
    ("MLX_ENABLE_TF32", "0"),
    // MLX's CUDA caches count misses for the life of the process and fail every later new shape past a limit.
    ("MLX_ENABLE_CACHE_THRASHING_CHECK", "0"),
];

/// Asks MLX for exact float32 products and for caches that evict instead of failing, unless the user's environment says
/// something else. MLX reads its variables once, at first use: call this before any work on a GPU.
///
/// The variables are the process's: another copy of MLX in it sees them too.
pub fn set_defaults() {
    for (name, value) in DEFAULTS {
        if std::env::var_os(name).is_none() {
            set(name, value);
        }
    }
}

/// Lets MLX round the factors of float32 products to TF32 on a GPU that is faster with it, whatever the environment said.
/// MLX reads this once, at the first such product of the process: call this before.
pub fn allow_tf32() {
    set("MLX_ENABLE_TF32", "1");
}

fn set(name: &str, value: &str) {
    // SAFETY: Rust's readers are kept out by the standard library's lock; C code that reads the environment at this very
    // moment is the one danger, and callers are told to come here at start-up.
    unsafe { std::env::set_var(name, value) };
}
