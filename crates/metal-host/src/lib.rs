//! Runs the source of Metal kernels on the CPU, for tests where there is no Metal.
//!
//! [`launch`] takes what [`mlx_safe::MetalKernel`] takes. It writes the signature that MLX would write, has the C++ compiler
//! compile the same text under headers that supply Metal's types and functions, and runs the whole grid, threadgroup after
//! threadgroup, with one thread of the system for every thread of the GPU, under the compiler's sanitizers.
//!
//! # What it finds
//! With [`Checks::Memory`]: accesses outside of buffers and threadgroup arrays, misaligned ones, undefined arithmetic,
//! threadgroup memory and outputs that are read before they are written (they hold NaN or all bits set), more than 32 KiB of
//! threadgroup memory, barriers that not all threads reach, SIMD functions that not all lanes of a group call, values taken
//! from lanes that have returned. With [`Checks::Races`]: unsynchronised accesses of two threads to one place.
//!
//! # What it cannot find
//! - What needs a GPU's weaker memory order: barriers and SIMD functions here order all memory, whatever their flags say.
//! - Reliance on lanes running in step, or on divergent lanes that meet again later than they do here; two threadgroups
//!   that communicate (they run one after the other, in the order of the grid).
//! - Limits of registers, of threads for a big kernel, of compile time; performance of any kind.
//! - Fast-math and the lower precision of Metal's functions: arithmetic is the host's, without contraction to `fma`. half
//!   rounds after every operation or after every expression, as the host's compiler likes.
//! - Address spaces: a pointer of the wrong one compiles. Language that C++20 has and Metal has not.
//! - Inputs that are not row-major, and 64-bit sizes.
//!
//! Not supplied: swizzles, textures, `simdgroup_matrix`, quad-group functions beyond the first few.
#![forbid(unsafe_code)]

mod address_space;
mod compiler;
mod error;
mod program;
mod signature;

pub use error::{Error, Result};
use mlx_safe::{Array, KernelSource, Launch, Spec, full};

/// What a run looks for; each is a program of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checks {
    /// Wrong accesses and undefined arithmetic.
    Memory,
    /// Data races. Slower.
    Races,
}

/// The outputs of a kernel as [`mlx_safe::MetalKernel::launch`] would give them.
///
/// # Errors
/// If the launch does not fit the source; if the text does not compile; if the checks find something.
pub fn launch(
    source: &KernelSource,
    launch: &Launch,
    inputs: &[&Array],
    checks: Checks,
) -> Result<Vec<Array>> {
    source.check("metal_host")?;
    launch.check("metal_host", source, inputs.len())?;
    let specs: Vec<Spec> = inputs.iter().map(|&input| input.into()).collect();
    let text = signature::program(source, launch, &specs)?;
    let executable = compiler::build(&source.name, &text, checks)?;
    let mut message = Vec::new();
    program::put(&mut message, launch.grid.map(i64::from));
    program::put(&mut message, launch.threadgroup.map(i64::from));
    for input in inputs {
        program::put_shape(&mut message, input.shape(), input.nbytes());
        input.with_bytes(|bytes| message.extend_from_slice(bytes))?;
    }
    for spec in &launch.outputs {
        let initial = match launch.init_value {
            Some(value) => Some(full(&spec.shape, &Array::scalar(value))?.astype(spec.dtype)?),
            None => None,
        };
        program::put(&mut message, [initial.is_some().into()]);
        let size = spec.shape.iter().map(|&n| n as usize).product::<usize>() * spec.dtype.size();
        program::put_shape(&mut message, &spec.shape, size);
        if let Some(initial) = initial {
            initial.with_bytes(|bytes| message.extend_from_slice(bytes))?;
        }
    }
    let answer = program::run(&executable, message)?;
    let mut rest = answer.as_slice();
    let mut outputs = Vec::new();
    for spec in &launch.outputs {
        let size = spec.shape.iter().map(|&n| n as usize).product::<usize>() * spec.dtype.size();
        let (bytes, after) = rest.split_at_checked(size).ok_or(Error::Short)?;
        outputs.push(Array::from_bytes(spec.dtype, &spec.shape, bytes)?);
        rest = after;
    }
    Ok(outputs)
}
