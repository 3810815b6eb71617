//! Which types cross threads, and several threads at work at once.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mlx_safe::{Array, Closure, CudaKernel, Device, HostOp, MetalKernel, Spec, Stream, compile, eval, grad};

/// Whether a type is `Send`: an inherent constant wins over the trait's where its bound holds.
macro_rules! is_send {
    ($type:ty) => {{
        #[allow(dead_code)]
        struct Probe<T>(std::marker::PhantomData<T>);
        #[allow(dead_code)]
        trait Fallback {
            const SEND: bool = false;
        }
        impl<T> Fallback for Probe<T> {}
        #[allow(dead_code)]
        impl<T: Send> Probe<T> {
            const SEND: bool = true;
        }
        Probe::<$type>::SEND
    }};
}

#[test]
fn what_belongs_to_a_thread_stays_there() {
    // Evaluating mutates the graph that handles share; streams and compiled traces are the thread's.
    const { assert!(!is_send!(Array) && !is_send!(&Array)) };
    const { assert!(!is_send!(Stream) && !is_send!(&Stream)) };
    const { assert!(!is_send!(Closure) && !is_send!(&Closure)) };
    const { assert!(!is_send!(MetalKernel) && !is_send!(&MetalKernel)) };
    const { assert!(!is_send!(CudaKernel) && !is_send!(&CudaKernel)) };
    // Plain data, and functions that are `Send` and `Sync` themselves.
    const { assert!(is_send!(HostOp) && is_send!(&HostOp)) };
    const { assert!(is_send!(Device) && is_send!(Spec) && is_send!(mlx_safe::Error)) };
}

#[test]
fn threads_with_streams_of_their_own_do_not_disturb_each_other() {
    let barrier = Arc::new(std::sync::Barrier::new(6));
    let threads: Vec<_> = (0..6)
        .map(|thread| {
            let barrier = barrier.clone();
            std::thread::spawn(move || {
                let stream = Stream::new_on(Device::CPU).unwrap();
                barrier.wait();
                stream.scope(|| work(thread));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Builds, differentiates, compiles, fails and evaluates, and checks every result.
fn work(thread: i32) {
    let cube = compile(|x| Ok(vec![x[0].multiply(&x[0])?.multiply(&x[0])?])).unwrap();
    for round in 0..40 {
        let value = (thread * 7 + round % 5) as f32;
        let x = Array::from_slice(&[value; 4], &[4]).unwrap();
        let y = cube.apply(std::slice::from_ref(&x)).unwrap().remove(0);
        let slope = grad(|x| cube.apply(x)?[0].sum(&[0], false), &[0]);
        let slope = slope(std::slice::from_ref(&x)).unwrap().remove(0);
        let error = x.reshape(&[thread + 10]).unwrap_err().to_string();
        assert!(error.contains(&format!("({})", thread + 10)), "{error}");
        eval([&y, &slope]).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), [value.powi(3); 4]);
        assert_eq!(slope.to_vec::<f32>().unwrap(), [3.0 * value * value; 4]);
    }
}

#[test]
fn many_short_threads_leave_nothing_behind_that_fails() {
    for i in 0..100 {
        let thread = std::thread::spawn(move || {
            let x = Array::scalar(i as f32);
            let f = compile(|x| Ok(vec![x[0].add(&x[0])?])).unwrap();
            f.apply(&[x]).unwrap()[0].item::<f32>().unwrap()
        });
        assert_eq!(thread.join().unwrap(), 2.0 * i as f32);
    }
}

#[test]
fn a_compiled_function_in_a_thread_local_outlives_nothing_it_needs() {
    thread_local! {
        static KEPT: Closure = compile(|x| Ok(vec![x[0].square()?])).unwrap();
    }
    for _ in 0..10 {
        let thread = std::thread::spawn(|| {
            KEPT.with(|f| f.apply(&[Array::scalar(3.0f32)]).unwrap()[0].item::<f32>().unwrap())
        });
        assert_eq!(thread.join().unwrap(), 9.0);
    }
}
