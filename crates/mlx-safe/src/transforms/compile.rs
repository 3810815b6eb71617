//! Compilation: a function traced once and replayed.

use mlx_sys as sys;

use crate::{Array, Closure, Result};

/// A compiled form of `function`: traced at the first call with inputs of new shapes or types, replayed as one simplified
/// and fused graph after.
///
/// The function must be pure: what it does besides building arrays happens at the trace only, and arrays that it captures
/// are constants of the trace. It cannot evaluate its inputs.
///
/// The traces live in a cache of the calling thread, which never evicts, and go when the `Closure` is dropped: keep one
/// and call it often, and [`compile_shapeless`] where shapes never settle. On a CPU, MLX fuses by running the system's
/// `g++`, and replays unfused where there is none. A `g++` newer than 12 may refuse what MLX 0.32.2 gives it (an error of the
/// evaluation, "Failed to compile function"): `MLX_DISABLE_COMPILE=1` in the environment then turns fusing off.
///
/// ```
/// use mlx_safe::{Array, compile};
/// let norm = compile(|x| Ok(vec![x[0].square()?.sum(&[0], false)?.sqrt()?]))?;
/// let x = Array::from_slice(&[3.0f32, 4.0], &[2])?;
/// assert_eq!(norm.apply(&[x])?[0].item::<f32>()?, 5.0);
/// # Ok::<(), mlx_safe::Error>(())
/// ```
///
/// # Errors
/// If MLX refuses. Errors of `function` come from [`Closure::apply`], and a call that failed is traced anew.
pub fn compile(function: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static) -> Result<Closure> {
    compiled(Closure::new(function), false)
}

/// Like [`compile`], with one trace for all shapes of the same rank.
///
/// The function must not look at sizes: those of the first call would be used for all.
///
/// # Errors
/// As [`compile`]; and at the first call, if the function uses an operation that MLX cannot replay for another shape.
pub fn compile_shapeless(function: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static) -> Result<Closure> {
    compiled(Closure::new(function), true)
}

fn compiled(function: Closure, shapeless: bool) -> Result<Closure> {
    // MLX erases the traces from the cache of the thread that compiled, when the result's last reference goes. `Closure`
    // stays on its thread, so that is the thread that called it, and nothing is left behind.
    Closure::from_op("compile", |out| {
        // SAFETY: `out` is empty, `function` is live; MLX shares its reference.
        unsafe { sys::mlx_compile(out, function.raw(), shapeless) }
    })
}
