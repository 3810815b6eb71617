//! MLX's own environment variables, where its defaults are wrong for a program that runs for long and wants float32.

/// What [`set_defaults`] sets on every GPU.
const DEFAULTS: [(&str, &str); 2] = [
    // Float32 products are rounded to TF32 (10 bits of mantissa) unless this is 0.
    ("MLX_ENABLE_TF32", "0"),
    // MLX's CUDA caches count misses for the life of the process and fail every later new shape past a limit.
    ("MLX_ENABLE_CACHE_THRASHING_CHECK", "0"),
];

/// How many operations MLX gathers before a CUDA device starts on them. Its own 100 leave an H200 idle until a large part of
/// a network is gathered: networks of 200 to 400 operations took 0.93 (float32) to 0.6 (float16) of the time with 10 or 20.
const OPERATIONS: (&str, &str) = ("MLX_MAX_OPS_PER_BUFFER", "16");

/// Asks MLX for exact float32 products, for caches that evict instead of failing, and for CUDA devices that start early,
/// unless the user's environment says something else. MLX reads its variables once, at first use: call this before any work
/// on a GPU.
///
/// The variables are the process's: another copy of MLX in it sees them too.
pub fn set_defaults() {
    let cuda = crate::cuda::is_available().unwrap_or(false);
    for (name, value) in DEFAULTS.into_iter().chain(cuda.then_some(OPERATIONS)) {
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
