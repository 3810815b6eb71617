//! Every operation against what NumPy computes in float64: `tests/data/generate.py` makes the numbers, the tables here hold
//! the calls. A case is named after the function of mlx-c, with a variant after a slash.
//!
//! `MLX_SAFE_DEVICE=gpu` runs them on the GPU, but for those that MLX has on the CPU only.

#![allow(clippy::unwrap_used)] // A test file: `allow-unwrap-in-tests` sees only `#[test]` functions.

mod compute;
mod coverage;
mod data;
mod movement;
mod transforms;

use data::{Case, Results};
use mlx_safe::{Array, Device, Result, Stream};

/// One call: its case's inputs to its outputs.
type Call = fn(&[Array]) -> Result<Vec<Array>>;

/// `"name": |inputs| call` to `("name", call)`, whatever arrays the call returns.
macro_rules! calls {
    ($($name:literal: |$x:ident| $call:expr;)*) => {
        &[$(($name, |$x: &[mlx_safe::Array]| Ok(crate::data::Results::arrays($call?)))),*]
    };
}
use calls;

fn tables() -> Vec<(&'static str, Call)> {
    [compute::CALLS, movement::CALLS, transforms::CALLS].concat()
}

/// What MLX has no GPU code for.
fn cpu_only(name: &str) -> bool {
    let fine = ["linalg_norm", "linalg_norm/inf", "linalg_norm_matrix", "linalg_norm_l2", "linalg_cross"];
    (name.starts_with("linalg_") && !fine.contains(&name))
        || ["block_masked_mm", "segmented_mm"].contains(&name)
}

#[test]
fn operations_agree_with_numpy() {
    let gpu = std::env::var("MLX_SAFE_DEVICE").is_ok_and(|device| device == "gpu");
    let cpu = Stream::default_on(Device::CPU).unwrap();
    let chosen = if gpu { Stream::default_on(Device::GPU).unwrap() } else { cpu.clone() };
    let cases = data::read();
    let mut failures = Vec::new();
    for (name, call) in tables() {
        let Some(case) = cases.get(name) else {
            failures.push(format!("{name}: no case in ops.json"));
            continue;
        };
        let stream = if cpu_only(name) { &cpu } else { &chosen };
        let outputs = stream.scope(|| {
            let outputs = call(&case.inputs)?;
            mlx_safe::eval(&outputs)?;
            Ok(outputs)
        });
        let checked =
            outputs.map_err(|e: mlx_safe::Error| e.to_string()).and_then(|o| cpu.scope(|| case.check(&o)));
        if let Err(error) = checked {
            failures.push(format!("{name}: {error}"));
        }
    }
    let called: Vec<_> = tables().into_iter().map(|(name, _)| name).collect();
    failures
        .extend(cases.keys().filter(|c| !called.contains(&c.as_str())).map(|c| format!("{c}: not called")));
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

/// Empty inputs, for every operation that takes arrays: an answer or an error, never a crash.
#[test]
fn scalars_and_empty_arrays_end_nothing() {
    let shapes: [&[i32]; 7] = [&[0], &[0, 3], &[3, 0], &[0, 0], &[0, 3, 3], &[2, 3, 0, 4], &[2, 0, 5, 2]];
    let empty = shapes.map(|shape| Array::from_slice::<f32>(&[], shape).unwrap());
    for input in [Array::scalar(1.0f32)].into_iter().chain(empty) {
        for (name, call) in tables() {
            // These read where their indices say, which the caller answers for.
            let indexed = ["take", "gather", "scatter", "put_", "segmented", "cross_entropy"];
            if indexed.iter().any(|part| name.contains(part)) {
                continue;
            }
            let inputs = vec![input.clone(); 6];
            if let Ok(outputs) = call(&inputs) {
                let _ = mlx_safe::eval(&outputs);
            }
        }
    }
}

/// Checks that a case compares at all.
#[test]
fn a_wrong_value_is_seen() {
    let cases = data::read();
    let case: &Case = &cases["add"];
    let wrong = case.inputs[0].subtract(&case.inputs[1]).unwrap();
    assert!(case.check(&Results::arrays(wrong)).is_err());
}
