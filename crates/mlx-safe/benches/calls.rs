//! What calls cost: making an array, asking for an addition, evaluating one.

use divan::{Bencher, black_box};
use mlx_safe::Array;

fn main() {
    divan::main();
}

#[divan::bench]
fn wrap_one_element() -> Array {
    Array::scalar(black_box(1.0f32))
}

#[divan::bench]
fn lazy_add(bencher: Bencher) {
    let x = Array::scalar(1.0f32);
    bencher.bench_local(|| x.add(black_box(&x)));
}

#[divan::bench]
fn add_and_evaluate(bencher: Bencher) {
    let x = Array::scalar(1.0f32);
    bencher.bench_local(|| x.add(black_box(&x)).and_then(|y| y.item::<f32>()));
}

#[divan::bench(args = [256, 1024])]
fn matmul(bencher: Bencher, n: i32) {
    let data = vec![0.5f32; (n * n) as usize];
    let x = Array::from_slice(&data, &[n, n]);
    bencher.bench_local(|| {
        let x = x.as_ref().map_err(|e| e.to_string())?;
        x.matmul(x).and_then(|y| y.eval()).map_err(|e| e.to_string())
    });
}
