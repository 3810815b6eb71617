//! What calls cost, beside the same calls to mlx-c without this crate.

use divan::{Bencher, black_box};
use mlx_safe::Array;

fn main() {
    divan::main();
}

/// A scalar by hand.
mod raw {
    use mlx_sys as sys;

    /// An owned handle, so that both sides of a comparison free what they make.
    pub struct Handle(pub sys::mlx_array);

    impl Drop for Handle {
        fn drop(&mut self) {
            // SAFETY: the handle is ours, and this is its last use.
            unsafe { sys::mlx_array_free(self.0) };
        }
    }

    pub fn scalar(value: f32) -> Handle {
        // SAFETY: one element is read from `value` and copied.
        Handle(unsafe {
            sys::mlx_array_new_data(
                (&raw const value).cast(),
                std::ptr::null(),
                0,
                sys::mlx_dtype__MLX_FLOAT32,
            )
        })
    }

    /// The calling thread's default stream; it is never freed.
    pub fn stream() -> sys::mlx_stream {
        // SAFETY: makes a handle.
        unsafe { sys::mlx_default_cpu_stream_new() }
    }

    pub fn add(x: &Handle, stream: sys::mlx_stream) -> Handle {
        // SAFETY: all handles are live; the result's is empty before the call.
        unsafe {
            let mut sum = Handle(sys::mlx_array_new());
            sys::mlx_add(&mut sum.0, x.0, x.0, stream);
            sum
        }
    }

    pub fn item(x: &Handle) -> f32 {
        let mut value = 0.0;
        // SAFETY: the handle is live; one float is written.
        unsafe {
            sys::mlx_array_eval(x.0);
            sys::mlx_array_item_float32(&mut value, x.0);
        }
        value
    }
}

#[divan::bench(sample_size = 100, sample_count = 2000)]
fn wrap_one_element() -> Array {
    Array::scalar(black_box(1.0f32))
}

#[divan::bench(sample_size = 100, sample_count = 2000)]
fn wrap_one_element_raw() -> raw::Handle {
    raw::scalar(black_box(1.0))
}

#[divan::bench(sample_size = 100, sample_count = 2000)]
fn lazy_add(bencher: Bencher) {
    let x = Array::scalar(1.0f32);
    bencher.bench_local(|| x.add(black_box(&x)));
}

#[divan::bench(sample_size = 100, sample_count = 2000)]
fn lazy_add_raw(bencher: Bencher) {
    let (x, stream) = (raw::scalar(1.0), raw::stream());
    bencher.bench_local(|| raw::add(black_box(&x), stream));
}

#[divan::bench(sample_count = 2000)]
fn add_and_evaluate(bencher: Bencher) {
    let x = Array::scalar(1.0f32);
    bencher.bench_local(|| x.add(black_box(&x)).and_then(|y| y.item::<f32>()));
}

#[divan::bench(sample_count = 2000)]
fn add_and_evaluate_raw(bencher: Bencher) {
    let (x, stream) = (raw::scalar(1.0), raw::stream());
    bencher.bench_local(|| raw::item(&raw::add(black_box(&x), stream)));
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
