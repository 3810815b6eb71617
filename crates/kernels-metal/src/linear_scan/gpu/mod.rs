//! The dialects for GPUs: a thread for every element and segment of the steps. Where there are few elements the steps are cut
//! up, and the segments' products of factors and own states are known before the scan.

use mlx_safe::{Array, Dtype, Spec, TemplateArg};

use super::LinearScan;
use crate::Result;
use crate::gpu::{Call, Kernel, Run};

const SCAN: &str = include_str!("source/scan.h");

static SUMMARY: Kernel = Kernel {
    name: "linear_scan_summary",
    functions: &[SCAN],
    body: include_str!("source/summary.body.h"),
    inputs: &["sizes", "a", "u"],
    outputs: &["products", "states"],
};

static FORWARD: Kernel = Kernel {
    name: "linear_scan",
    functions: &[SCAN],
    body: include_str!("source/forward.body.h"),
    inputs: &["sizes", "a", "u", "h0", "products", "states"],
    outputs: &["all", "last"],
};

const THREADS: usize = 128;
/// Threads that keep a big GPU busy.
const ENOUGH: usize = 1 << 17;
/// The fewest steps of a segment.
const LEAST: usize = 32;

/// Whether these kernels take u (T, M...): no size is 0, and numbers of threads have 32 bits.
pub(super) fn takes(u: &Array) -> bool {
    u.size() > 0 && u.size() <= i32::MAX as usize - THREADS
}

/// All states (T, M...) and the last (M...) from a (T or 1, M...), u and h0 (M...), which is in float32.
pub(super) fn forward(scan: LinearScan, a: &Array, u: &Array, h0: &Array, run: Run) -> Result<Vec<Array>> {
    let steps = u.dim(0)? as usize;
    let elements = u.size() / steps;
    let segments = (ENOUGH / elements).min(steps / LEAST).max(1);
    let length = steps.div_ceil(segments);
    forward_in(length, scan, a, u, h0, run)
}

fn forward_in(
    length: usize,
    scan: LinearScan,
    a: &Array,
    u: &Array,
    h0: &Array,
    run: Run,
) -> Result<Vec<Array>> {
    let steps = u.dim(0)? as usize;
    let (elements, segments) = (u.size() / steps, steps.div_ceil(length));
    let flags = [scan.reverse, a.dim(0)? == 1].map(usize::from);
    let numbers = [steps, elements, length, segments].into_iter().chain(flags);
    let header = Array::from_slice(&numbers.map(|n| n as i32).collect::<Vec<_>>(), &[6])?;
    let types: Vec<(&str, TemplateArg)> = vec![("O", u.dtype().into()), ("W", (THREADS as i32).into())];
    let call = |kernel, segments: usize, inputs, outputs| Call {
        kernel,
        groups: (elements * segments).div_ceil(THREADS),
        threads: THREADS,
        memory: 0,
        resident: 1,
        template: types.clone(),
        inputs,
        outputs,
    };
    let before = segments - 1;
    let summary = match before {
        0 => None,
        _ => {
            let each = Spec::new(&[before as i32, elements as i32], Dtype::Float32);
            Some(run(call(&SUMMARY, before, vec![&header, a, u], vec![each.clone(), each]))?)
        }
    };
    let (products, states) = summary.as_deref().map_or((h0, h0), |list| (&list[0], &list[1]));
    let last = Spec::new(&u.shape()[1..], Dtype::Float32);
    let outputs = vec![Spec::new(u.shape(), u.dtype()), last];
    run(call(&FORWARD, segments, vec![&header, a, u, h0, products, states], outputs))
}

#[cfg(test)]
mod tests {
    use mlx_safe::Array;

    use super::*;
    use crate::gpu::Dialect;

    fn values(count: usize, low: f32, high: f32, salt: usize) -> Vec<f32> {
        (0..count).map(|i| low + (high - low) * ((i + 1000 * salt) as f32 * 0.754_877_7).fract()).collect()
    }

    fn on_the_host(call: Call) -> Result<Vec<Array>> {
        let (source, launch) = (call.source(Dialect::Metal), call.launch()?);
        Ok(metal_host::launch(&source, &launch, &call.inputs, metal_host::Checks::Memory).unwrap())
    }

    fn check(steps: usize, elements: usize, length: usize, reverse: bool, constant: bool, dtype: Dtype) {
        let array = |data: Vec<f32>, shape: &[usize]| {
            let shape: Vec<i32> = shape.iter().map(|&n| n as i32).collect();
            Array::from_slice(&data, &shape).unwrap()
        };
        let factors = if constant { 1 } else { steps };
        let a = array(values(factors * elements, 0.0, 1.0, 1), &[factors, elements]).astype(dtype).unwrap();
        let u = array(values(steps * elements, -1.0, 1.0, 2), &[steps, elements]).astype(dtype).unwrap();
        let h0 = array(values(elements, -1.0, 1.0, 3), &[elements]);
        let got = forward_in(length, LinearScan { reverse }, &a, &u, &h0, &on_the_host).unwrap();

        let floats = |x: &Array| x.astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap();
        let (a, u, tolerance) = (floats(&a), floats(&u), if dtype == Dtype::Float32 { 1e-6 } else { 1e-2 });
        let [all, last] = [floats(&got[0]), floats(&got[1])];
        for (m, h0) in floats(&h0).into_iter().enumerate() {
            let mut h = f64::from(h0);
            for step in 0..steps {
                let at = if reverse { steps - 1 - step } else { step } * elements + m;
                h = f64::from(a[if constant { m } else { at }]) * h + f64::from(u[at]);
                assert!((f64::from(all[at]) - h).abs() <= tolerance * 4.0, "{} for {h}", all[at]);
            }
            assert!((f64::from(last[m]) - h).abs() <= 4e-6, "{} for {h}", last[m]);
        }
    }

    #[test]
    fn agrees_with_float64() {
        for reverse in [false, true] {
            check(1, 1, 1, reverse, false, Dtype::Float32);
            check(70, 131, 70, reverse, false, Dtype::Float32);
            check(67, 5, 20, reverse, false, Dtype::Float32);
            check(67, 5, 16, reverse, true, Dtype::Float32);
            check(33, 3, 11, reverse, false, Dtype::Bfloat16);
        }
    }
}
