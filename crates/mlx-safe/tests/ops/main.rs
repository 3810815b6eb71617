//! Every operation against what NumPy computes in float64: `tests/data/generate.py` makes the numbers, the tables here hold
//! the calls. A case is named after the function of mlx-c, with a variant after a slash.
//!
//! They run on MLX's default device, a GPU where there is one; `MLX_SAFE_DEVICE=cpu` keeps them on the CPU. Each case is
//! named before it runs, so that a crash tells where; `MLX_SAFE_AFTER=name` then goes on behind it.

#![allow(clippy::unwrap_used)] // A test file: `allow-unwrap-in-tests` sees only `#[test]` functions.

mod compute;
mod coverage;
mod data;
mod movement;
mod transforms;

use data::{Case, Results};
use mlx_safe::{Array, Device, DeviceType, Dtype, Result, Stream};

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

/// What MLX has no code for on GPUs, and the function of MLX's that says so: an error there.
const CPU_ONLY: [(&str, &str); 20] = [
    ("linalg_cholesky", "linalg::cholesky"),
    ("linalg_cholesky/upper", "linalg::cholesky"),
    ("linalg_cholesky_inv", "linalg::cholesky_inv"),
    ("linalg_det", "linalg::det"),
    ("linalg_eig", "linalg::eig"),
    ("linalg_eigh", "linalg::eigh"),
    ("linalg_eigvals", "linalg::eigvals"),
    ("linalg_eigvalsh", "linalg::eigvalsh"),
    ("linalg_inv", "linalg::inv"),
    ("linalg_lu", "linalg::lu"),
    ("linalg_lu_factor", "linalg::lu_factor"),
    ("linalg_norm_matrix/nuclear", "linalg::svd"),
    ("linalg_pinv", "linalg::pinv"),
    ("linalg_qr", "linalg::qr"),
    ("linalg_slogdet", "linalg::slogdet"),
    ("linalg_solve", "linalg::solve"),
    ("linalg_solve_triangular", "linalg::solve_triangular"),
    ("linalg_svd", "linalg::svd"),
    ("linalg_svd/values", "linalg::svd"),
    ("linalg_tri_inv", "linalg::inv"),
];

/// The stream of the device under test.
fn stream() -> Stream {
    let cpu = std::env::var("MLX_SAFE_DEVICE").is_ok_and(|device| device == "cpu");
    let gpu = !cpu && Device::GPU.is_available().unwrap();
    Stream::default_on(if gpu { Device::GPU } else { Device::CPU }).unwrap()
}

/// The calls behind the one that `MLX_SAFE_AFTER` names.
fn calls_to_run() -> impl Iterator<Item = (&'static str, Call)> {
    let after = std::env::var("MLX_SAFE_AFTER").ok();
    let tables = tables();
    let at = after.and_then(|after| tables.iter().position(|(name, _)| *name == after));
    tables.into_iter().skip(at.map_or(0, |at| at + 1))
}

fn run(stream: &Stream, call: Call, inputs: &[Array]) -> Result<Vec<Array>> {
    stream.scope(|| {
        let outputs = call(inputs)?;
        mlx_safe::eval(&outputs)?;
        Ok(outputs)
    })
}

#[test]
fn operations_agree_with_numpy() {
    let (cpu, chosen) = (Stream::default_on(Device::CPU).unwrap(), stream());
    let on_gpu = chosen.scope(Stream::current_device).unwrap() == DeviceType::Gpu;
    let cases = data::read();
    let mut failures = Vec::new();
    for (name, call) in calls_to_run() {
        println!("{name}");
        let Some(case) = cases.get(name) else {
            failures.push(format!("{name}: no case in ops.json"));
            continue;
        };
        let lacks = CPU_ONLY.iter().find(|(only, _)| *only == name).filter(|_| on_gpu);
        if let Some((_, function)) = lacks {
            match run(&chosen, call, &case.inputs) {
                Ok(_) => failures.push(format!("{name}: MLX has it on this GPU")),
                Err(error) if error.to_string().contains(&format!("[{function}] This op is not yet")) => {}
                Err(error) => failures.push(format!("{name}: not for {function}: {error}")),
            }
        }
        let outputs = run(if lacks.is_some() { &cpu } else { &chosen }, call, &case.inputs);
        let checked = outputs.map_err(|e| e.to_string()).and_then(|o| cpu.scope(|| case.check(&o)));
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
    let stream = stream();
    for (name, call) in calls_to_run() {
        for dtype in [Dtype::Float32, Dtype::Int32, Dtype::Uint32, Dtype::Bool] {
            println!("{name} {dtype:?}");
            let one = Array::scalar(1.0f32).astype(dtype).unwrap();
            let empty = shapes.map(|shape| mlx_safe::zeros(shape, dtype).unwrap());
            for input in [one].into_iter().chain(empty) {
                let _ = run(&stream, call, &vec![input; 6]);
            }
        }
    }
}

/// One input without elements beside others that have some.
#[test]
fn an_empty_array_among_others_ends_nothing() {
    let stream = stream();
    let cases = data::read();
    for (name, call) in calls_to_run() {
        println!("{name}");
        for at in 0..cases[name].inputs.len() {
            let mut inputs = cases[name].inputs.clone();
            for axis in 0..inputs[at].ndim() {
                let mut shape = inputs[at].shape().to_vec();
                shape[axis] = 0;
                inputs[at] = mlx_safe::zeros(&shape, inputs[at].dtype()).unwrap();
                let _ = run(&stream, call, &inputs);
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
