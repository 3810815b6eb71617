//! Kernels with a mistake, which the harness must find.
#![allow(clippy::unwrap_used)] // A test file: `allow-unwrap-in-tests` sees only `#[test]` functions.

use metal_host::{Checks, Error};
use mlx_safe::{Array, Dtype, KernelSource, Launch, Spec};

/// The message for a kernel with input x (64) and output out (64) in one group of 64.
fn found(name: &str, body: &str, checks: Checks) -> String {
    let source = KernelSource::new(name, body).inputs(&["x"]).outputs(&["out"]);
    let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let launch = Launch::new([64, 1, 1], [64, 1, 1]).output(Spec::new(&[64], Dtype::Float32));
    let input = Array::from_slice(&x, &[64]).unwrap();
    match metal_host::launch(&source, &launch, &[&input], checks) {
        Err(Error::Run(message) | Error::Compile(message)) => message,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn accesses_outside_of_buffers() {
    let read = found("read", "uint i = thread_position_in_grid.x; out[i] = x[i + 1];", Checks::Memory);
    assert!(read.contains("heap-buffer-overflow"), "{read}");
    let write = found("write", "uint i = thread_position_in_grid.x; out[i + 1] = 0;", Checks::Memory);
    assert!(write.contains("heap-buffer-overflow"), "{write}");
    let shared = "threadgroup float t[63]; uint i = thread_position_in_grid.x; t[i] = 0; out[i] = 0;";
    let shared = found("shared", shared, Checks::Memory);
    assert!(shared.contains("out of bounds"), "{shared}");
}

#[test]
fn misaligned_vectors() {
    let body = "uint i = thread_position_in_grid.x; if (i < 8) out[i] = ((const device float4*)(x + i))->y;";
    assert!(found("misaligned", body, Checks::Memory).contains("misaligned"));
}

#[test]
fn a_missing_barrier_is_a_race() {
    let body =
        "threadgroup float t[64]; uint i = thread_position_in_grid.x; t[i] = x[i]; out[i] = t[63 - i];";
    let message = found("race", body, Checks::Races);
    assert!(message.contains("data race"), "{message}");
}

#[test]
fn barriers_that_not_all_reach() {
    let body = "
        uint i = thread_position_in_grid.x;
        if (i >= 60) return;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[i] = x[i];";
    assert!(found("early", body, Checks::Memory).contains("threadgroup_barrier"));
}

#[test]
fn lanes_that_part() {
    let body = "
        uint i = thread_position_in_grid.x;
        out[i] = i % 2 == 0 ? simd_sum(x[i]) : simd_max(x[i]);";
    assert!(found("part", body, Checks::Memory).contains("different functions"));
    let body = "
        uint i = thread_position_in_grid.x;
        float sum = 0;
        if (i < 33) sum = simd_sum(x[i]);
        threadgroup_barrier(mem_flags::mem_none);
        out[i] = sum;";
    assert!(found("wait", body, Checks::Memory).contains("threadgroup_barrier"));
}

#[test]
fn memory_that_nobody_wrote_is_nan() {
    let body = "
        threadgroup float t[64];
        uint i = thread_position_in_grid.x;
        if (i > 0) t[i] = x[i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (i != 5) out[i] = t[i];";
    let source = KernelSource::new("unwritten", body).inputs(&["x"]).outputs(&["out"]);
    let launch = Launch::new([64, 1, 1], [64, 1, 1]).output(Spec::new(&[64], Dtype::Float32));
    let x = Array::from_slice(&[1.0f32; 64], &[64]).unwrap();
    let out = metal_host::launch(&source, &launch, &[&x], Checks::Memory).unwrap();
    let nan: Vec<usize> =
        out[0].to_vec::<f32>().unwrap().iter().enumerate().filter(|v| v.1.is_nan()).map(|v| v.0).collect();
    assert_eq!(nan, [0, 5]);
}

#[test]
fn too_much_threadgroup_memory() {
    let body = "threadgroup float t[8193]; uint i = thread_position_in_grid.x; t[i] = 0; out[i] = t[i];";
    assert!(found("much", body, Checks::Memory).contains("32768"));
}

#[test]
fn text_that_does_not_compile() {
    assert!(found("text", "out[0] = nonsense;", Checks::Memory).contains("nonsense"));
    // A bfloat from a float takes a cast.
    let body = "bfloat b = x[0]; out[0] = b;";
    assert!(found("cast", body, Checks::Memory).contains("bfloat"));
}
