//! Graphs and calls deeper than a stack: MLX recurses in its transformations, so they are an error before it does.
#![allow(clippy::unwrap_used)]

use mlx_safe::{Array, Closure, Result, checkpoint, compile, grad, jvp, vmap};

/// x + 1 + 1 ..., `count` times.
fn chain(x: &Array, count: usize) -> Result<Array> {
    let one = Array::scalar(1.0f32);
    (0..count).try_fold(x.clone(), |sum, _| sum.add(&one))
}

fn on_a_stack_of(bytes: usize, work: fn()) {
    std::thread::Builder::new().stack_size(bytes).spawn(work).unwrap().join().unwrap();
}

#[test]
fn hundreds_of_thousands_of_operations_are_evaluated_and_dropped_on_a_small_stack() {
    on_a_stack_of(64 << 10, || {
        let sum = chain(&Array::scalar(0.0f32), 300_000).unwrap();
        assert_eq!(sum.item::<f32>().unwrap(), 3e5);
        drop(chain(&Array::scalar(0.0f32), 300_000).unwrap());
    });
}

/// What each transformation makes of a chain of `count` additions.
fn transformed(count: usize) -> [Result<Vec<Array>>; 5] {
    let x = &[Array::scalar(1.0f32)][..];
    let sum = move |x: &[Array]| Ok(vec![chain(&x[0], count)?]);
    [
        grad(|x| chain(&x[0], count), &[0])(x),
        jvp(sum, x, x).map(|both| both.1),
        vmap(sum, &[Array::from_slice(&[1.0f32], &[1]).unwrap()], &[Some(0)]),
        compile(sum).unwrap().apply(x),
        grad(|x| Ok(checkpoint(sum)?.apply(x)?.remove(0)), &[0])(x),
    ]
}

#[test]
fn transformations_of_deep_graphs_work_or_are_errors() {
    on_a_stack_of(2 << 20, || {
        for (result, expected) in transformed(5000).into_iter().zip([1.0, 1.0, 5001.0, 5001.0, 1.0]) {
            assert_eq!(result.unwrap()[0].to_vec::<f32>().unwrap(), [expected]);
        }
        for result in transformed(40_000) {
            let error = result.unwrap_err().to_string();
            assert!(
                error.contains("operations one after another") && error.contains("MiB of stack"),
                "{error}"
            );
        }
    });
    on_a_stack_of(16 << 20, || {
        for (result, expected) in transformed(40_000).into_iter().zip([1.0, 1.0, 40_001.0, 40_001.0, 1.0]) {
            assert_eq!(result.unwrap()[0].to_vec::<f32>().unwrap(), [expected]);
        }
    });
}

#[test]
fn functions_that_call_themselves_without_end_are_errors() {
    on_a_stack_of(2 << 20, || {
        fn endless(x: &[Array]) -> Result<Vec<Array>> {
            Closure::new(endless).apply(x)
        }
        fn differentiated(x: &[Array]) -> Result<Vec<Array>> {
            grad(|x| Ok(differentiated(x)?.remove(0)), &[0])(x)
        }
        for function in [endless, differentiated] {
            let error = function(&[Array::scalar(1.0f32)]).unwrap_err().to_string();
            assert!(error.contains("too deeply"), "{error}");
        }
    });
}
