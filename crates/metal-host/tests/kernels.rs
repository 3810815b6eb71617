//! Tiny kernels whose results are known.
#![allow(clippy::unwrap_used)] // A test file: `allow-unwrap-in-tests` sees only `#[test]` functions.

use half::{bf16, f16};
use metal_host::Checks;
use mlx_safe::{Array, Dtype, Element, KernelSource, Launch, Spec};

fn run(source: &KernelSource, launch: Launch, inputs: &[&Array]) -> Vec<Array> {
    metal_host::launch(source, &launch, inputs, Checks::Memory).unwrap()
}

fn vector<T: Element>(values: &[T]) -> Array {
    Array::from_slice(values, &[values.len() as i32]).unwrap()
}

fn floats(n: i32) -> Spec {
    Spec::new(&[n], Dtype::Float32)
}

#[test]
fn inputs_come_as_mlx_passes_them() {
    // A scalar is a reference, small arrays lie in constant memory, shapes and strides come where they are named.
    let body = "
        uint i = thread_position_in_grid.x;
        if (i < uint(x_shape[0] * x_shape[1])) {
            out[i] = a * T(x[elem_to_loc(i, x_shape, x_strides, x_ndim)]) + T(pair[i % 2]) + (FLAG ? N : 0);
        }";
    let source = KernelSource::new("axpy", body).inputs(&["a", "x", "pair"]).outputs(&["out"]);
    let launch = Launch::new([40, 1, 1], [32, 1, 1])
        .template("T", Dtype::Float32)
        .template("N", 1000)
        .template("FLAG", true)
        .output(floats(33));
    let x: Vec<i32> = (0..33).collect();
    let got = run(
        &source,
        launch,
        &[&Array::scalar(2.0f32), &Array::from_slice(&x, &[3, 11]).unwrap(), &vector(&[0.5f32, 0.25])],
    );
    let wanted: Vec<f32> = (0..33).map(|i| 2.0 * i as f32 + [0.5, 0.25][i as usize % 2] + 1000.0).collect();
    assert_eq!(got[0].to_vec::<f32>().unwrap(), wanted);
}

/// Runs 32 lanes; output `k` of lane `i` is at 32 k + i.
fn lanes(name: &str, values: &[&str]) -> Vec<Vec<i32>> {
    let lines: Vec<_> =
        values.iter().enumerate().map(|(k, value)| format!("out[{} + i] = {value};", 32 * k)).collect();
    let body = format!("int i = thread_index_in_simdgroup; int v = x[i];\n{}", lines.join("\n"));
    let source = KernelSource::new(name, &body).inputs(&["x"]).outputs(&["out"]);
    let launch =
        Launch::new([32, 1, 1], [32, 1, 1]).output(Spec::new(&[32 * values.len() as i32], Dtype::Int32));
    let x: Vec<i32> = (0..32).map(|i| i * i - 7).collect();
    let got = run(&source, launch, &[&vector(&x)]).remove(0).to_vec::<i32>().unwrap();
    got.chunks(32).map(<[i32]>::to_vec).collect()
}

#[test]
fn reductions_and_prefixes() {
    let got = lanes(
        "reductions",
        &[
            "simd_sum(v)",
            "simd_min(v)",
            "simd_max(v)",
            "simd_product(i % 16 == 0 ? 3 : 1)",
            "simd_or(1 << i)",
            "simd_and(~(1 << i))",
            "simd_xor(v)",
            "simd_prefix_inclusive_sum(v)",
            "simd_prefix_exclusive_sum(v)",
            "simd_prefix_inclusive_product(i % 8 == 0 ? 2 : 1)",
            "simd_prefix_exclusive_product(i % 8 == 0 ? 2 : 1)",
            "int(simd_any(i == 5)) + 2 * int(simd_all(i < 31)) + 4 * int(simd_all(i < 32))",
            "int(ulong(simd_ballot(i % 3 == 0)))",
            "int(simd_is_first())",
            "quad_sum(v)",
        ],
    );
    let v: Vec<i32> = (0..32).map(|i| i * i - 7).collect();
    let sum: i32 = v.iter().sum();
    let prefix = |to: usize| v[..to].iter().sum::<i32>();
    let each = |f: &dyn Fn(usize) -> i32| (0..32).map(f).collect::<Vec<_>>();
    let wanted = [
        each(&|_| sum),
        each(&|_| -7),
        each(&|_| 31 * 31 - 7),
        each(&|_| 9),
        each(&|_| -1),
        each(&|_| 0),
        each(&|_| v.iter().fold(0, |x, y| x ^ y)),
        each(&|i| prefix(i + 1)),
        each(&prefix),
        each(&|i| 1 << (i / 8 + 1)),
        each(&|i| 1 << i.div_ceil(8)),
        each(&|_| 1 + 4),
        each(&|_| (0..32).filter(|i| i % 3 == 0).fold(0u32, |m, i| m | 1 << i) as i32),
        each(&|i| i32::from(i == 0)),
        each(&|i| v[i / 4 * 4..][..4].iter().sum()),
    ];
    assert_eq!(got, wanted);
}

#[test]
fn shuffles() {
    let got = lanes(
        "shuffles",
        &[
            "simd_shuffle(v, 31 - i)",
            "simd_shuffle_xor(v, 5)",
            "simd_shuffle_up(v, 3)",
            "simd_shuffle_down(v, 3)",
            "simd_shuffle_and_fill_up(v, i + 1000, 3)",
            "simd_shuffle_and_fill_down(v, i + 1000, 3)",
            "simd_shuffle_rotate_up(v, 3)",
            "simd_shuffle_rotate_down(v, 3)",
            "simd_broadcast(v, 9)",
            "simd_broadcast_first(v)",
            "quad_shuffle_xor(v, 1)",
            "quad_broadcast(v, 2)",
        ],
    );
    let v = |i: i32| i * i - 7;
    let each = |f: &dyn Fn(i32) -> i32| (0..32).map(f).collect::<Vec<_>>();
    let wanted = [
        each(&|i| v(31 - i)),
        each(&|i| v(i ^ 5)),
        each(&|i| if i < 3 { v(i) } else { v(i - 3) }),
        each(&|i| if i > 28 { v(i) } else { v(i + 3) }),
        each(&|i| if i < 3 { 1029 + i } else { v(i - 3) }),
        each(&|i| if i > 28 { 1000 + i - 29 } else { v(i + 3) }),
        each(&|i| v((i + 29) % 32)),
        each(&|i| v((i + 3) % 32)),
        each(&|_| v(9)),
        each(&|_| v(0)),
        each(&|i| v(i ^ 1)),
        each(&|i| v(i / 4 * 4 + 2)),
    ];
    assert_eq!(got, wanted);
}

#[test]
fn threadgroups_share_memory_between_barriers() {
    // Reverses every group of 70, in two SIMD groups and a part of one, then sums all by SIMD group.
    let header = "
        #define SHARED threadgroup
        METAL_FUNC_IS_NOT_NEEDED
        constant constexpr int groups = 3;
        inline float part(threadgroup const float* list, int n) {
            float sum = 0;
            for (int i = 0; i < n; ++i) sum += list[i];
            return sum;
        }"
    .replace("METAL_FUNC_IS_NOT_NEEDED", "");
    let body = "
        SHARED float tile[70];
        threadgroup float sums[groups];
        uint i = thread_index_in_threadgroup, n = threads_per_threadgroup.x;
        tile[i] = x[thread_position_in_grid.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float mine = tile[n - 1 - i];
        float sum = simd_sum(mine);
        if (thread_index_in_simdgroup == 0) sums[simdgroup_index_in_threadgroup] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        threadgroup float* first = &sums[0];
        out[thread_position_in_grid.x] = mine;
        if (i == 0) total[threadgroup_position_in_grid.x] = part(first, simdgroups_per_threadgroup);";
    let source = KernelSource::new("reverse", body).header(&header).inputs(&["x"]).outputs(&["out", "total"]);
    let launch = Launch::new([140, 1, 1], [70, 1, 1]).output(floats(140)).output(floats(2));
    let x: Vec<f32> = (0..140).map(|i| i as f32).collect();
    let inputs = vector(&x);
    for checks in [Checks::Memory, Checks::Races] {
        let got = metal_host::launch(&source, &launch, &[&inputs], checks).unwrap();
        let wanted: Vec<f32> = x.chunks(70).flat_map(|part| part.iter().rev()).copied().collect();
        assert_eq!(got[0].to_vec::<f32>().unwrap(), wanted);
        let sums: Vec<f32> = x.chunks(70).map(|part| part.iter().sum()).collect();
        assert_eq!(got[1].to_vec::<f32>().unwrap(), sums);
    }
}

#[test]
fn positions_in_a_grid_that_groups_do_not_divide() {
    let body = "
        uint3 p = thread_position_in_grid;
        uint at = (p.z * grid_size.y + p.y) * grid_size.x + p.x;
        uint3 t = thread_position_in_threadgroup, g = threadgroup_position_in_grid, n = threads_per_threadgroup;
        out[2 * at] = ((g.z * 10 + g.y) * 10 + g.x) * 1000 + (t.z * 10 + t.y) * 10 + t.x;
        out[2 * at + 1] = (n.z * 10 + n.y) * 10 + n.x + 1000 * thread_index_in_threadgroup;";
    let source = KernelSource::new("positions", body).outputs(&["out"]);
    let launch = Launch::new([5, 3, 2], [2, 2, 2]).output(Spec::new(&[60], Dtype::Uint32));
    let got = run(&source, launch, &[]).remove(0).to_vec::<u32>().unwrap();
    let mut wanted = Vec::new();
    for (z, y, x) in (0..2).flat_map(|z| (0..3).flat_map(move |y| (0..5).map(move |x| (z, y, x)))) {
        let ([g, t], n) =
            ([|p: u32| p / 2, |p: u32| p % 2], [2, if y == 2 { 1 } else { 2 }, if x == 4 { 1 } else { 2 }]);
        wanted.push(((g(z) * 10 + g(y)) * 10 + g(x)) * 1000 + (t(z) * 10 + t(y)) * 10 + t(x));
        wanted.push((n[0] * 10 + n[1]) * 10 + n[2] + 1000 * ((t(z) * n[1] + t(y)) * n[2] + t(x)));
    }
    assert_eq!(got, wanted);
}

#[test]
fn half_types_round() {
    let body = "
        uint i = thread_position_in_grid.x;
        T sum = x[i] + y[i];
        out[i] = sum * T(3.0f);
        wide[i] = float(x[i]) + float(y[i]);
        functions[i] = metal::exp2(x[i]) - metal::max(x[i], y[i]);";
    let source = KernelSource::new("halves", body).inputs(&["x", "y"]).outputs(&["out", "wide", "functions"]);
    let n = 64;
    let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.37 - 9.0).collect();
    let y: Vec<f32> = (0..n).map(|i| 5.0 - i as f32 * 0.11).collect();
    for dtype in [Dtype::Float16, Dtype::Bfloat16] {
        let round = |v: f32| match dtype {
            Dtype::Float16 => f16::from_f32(v).to_f32(),
            _ => bf16::from_f32(v).to_f32(),
        };
        let cast = |v: &[f32]| vector(v).astype(dtype).unwrap();
        let launch = Launch::new([n, 1, 1], [32, 1, 1])
            .template("T", dtype)
            .output(Spec::new(&[n], dtype))
            .output(floats(n))
            .output(Spec::new(&[n], dtype));
        let got = run(&source, launch, &[&cast(&x), &cast(&y)]);
        let got: Vec<Vec<f32>> =
            got.iter().map(|a| a.astype(Dtype::Float32).unwrap().to_vec().unwrap()).collect();
        for i in 0..n as usize {
            let (x, y) = (round(x[i]), round(y[i]));
            assert_eq!(got[1][i], x + y);
            // float16 may keep an expression in float32 until it is stored.
            let near = |got: f32, wanted: f32| (got - wanted).abs() <= 0.008 * wanted.abs().max(1.0);
            assert!(near(got[0][i], round(round(x + y) * 3.0)), "{} {x} {y}", got[0][i]);
            assert!(near(got[2][i], round(x.exp2()) - x.max(y)), "{} {x} {y}", got[2][i]);
        }
    }
}

#[test]
fn vectors_and_functions() {
    let header = "#include <metal_stdlib>\nusing namespace metal;\nconstant float scale = 2;\n";
    let body = "
        uint i = thread_position_in_grid.x;
        float4 v = *((const device float4*)(x + 4 * i));
        float4 w = fma(v, float4(scale), float4(1, 2, 3, 4));
        w += v * 0.5f;
        packed_float3 p = float3(v.x, v.y, v.z);
        out[4 * i] = dot(w, w);
        out[4 * i + 1] = metal::precise::exp(w.y) + exp2(w.x) + log2(8.0f) + rsqrt(4.0f);
        out[4 * i + 2] = clamp(w.z, 0.0f, 1.0f) + min(v.x, v.y) + max(v.z, v.w) + p[2];
        out[4 * i + 3] = as_type<float>(as_type<uint>(v.w)) + select(0.0f, 1.0f, isnan(v.x)) + abs(v.x);";
    let source = KernelSource::new("vectors", body).header(header).inputs(&["x"]).outputs(&["out"]);
    let x: Vec<f32> = (0..12).map(|i| i as f32 * 0.25 - 1.0).collect();
    let launch = Launch::new([3, 1, 1], [3, 1, 1]).output(floats(12));
    let got = run(&source, launch, &[&vector(&x)]).remove(0).to_vec::<f32>().unwrap();
    for (v, got) in x.chunks(4).zip(got.chunks(4)) {
        let w: Vec<f32> = (0..4).map(|k| v[k] * 2.0 + k as f32 + 1.0 + v[k] * 0.5).collect();
        let wanted = [
            w.iter().map(|w| w * w).sum::<f32>(),
            w[1].exp() + w[0].exp2() + 3.0 + 0.5,
            w[2].clamp(0.0, 1.0) + v[0].min(v[1]) + v[2].max(v[3]) + v[2],
            v[3] + v[0].abs(),
        ];
        for (got, wanted) in got.iter().zip(wanted) {
            assert!((got - wanted).abs() <= 1e-5 * wanted.abs().max(1.0), "{got} for {wanted}");
        }
    }
}

#[test]
fn outputs_may_be_atomic_and_initialised() {
    let body = "atomic_fetch_add_explicit(&out[thread_position_in_grid.x % 2], 1.5f, memory_order_relaxed);";
    let source = KernelSource::new("count", body).outputs(&["out"]).atomic_outputs(true);
    let launch = Launch::new([100, 1, 1], [64, 1, 1]).output(floats(2)).init_value(10.0);
    assert_eq!(run(&source, launch, &[])[0].to_vec::<f32>().unwrap(), [85.0, 85.0]);
}
