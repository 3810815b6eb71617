//! What the selective scan allocates beyond its inputs and outputs. Linux only: it asks the system.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // A test file: `allow-unwrap-in-tests` sees only `#[test]` functions.

mod reference;

use kernels_metal::selective_scan::Sizes;
use kernels_metal::selective_scan::host::{Grads, Inputs, Outputs, forward, grad};
use reference::Problem;

/// The most memory that this process has held since `work` began, beyond what it held before, in bytes.
fn peak(work: impl FnOnce()) -> usize {
    let field = |name: &str| -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    };
    // Sets the peak back to the present.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = field("VmRSS");
    work();
    field("VmHWM").saturating_sub(before)
}

#[test]
fn is_a_small_part_of_all_states_of_all_steps() {
    let run = |problem: &Problem| {
        let Sizes { steps, batch, channels, states } = problem.sizes;
        let (wide, rows, state) =
            (steps * batch * channels, steps * batch * states, batch * channels * states);
        let Problem { dt, x, b, c, a, dy, dh, .. } = problem;
        let inputs = Inputs { dt: &dt[..], x, b, c, a, h0: None };
        // Ones, so that the system has given the memory before.
        let (mut y, mut h) = (vec![1.0; wide], vec![1.0; state]);
        let mut grads = [wide, wide, rows, rows, channels * states, state].map(|n| vec![1.0f32; n]);
        let there = peak(|| {
            forward(problem.sizes, &inputs, Outputs { y: &mut y, h: &mut h }, false).unwrap();
        });
        let back = peak(|| {
            let [dt, x, b, c, a, h0] = &mut grads;
            let grads = Grads { dt, x, b, c, a, h0 };
            grad(problem.sizes, &inputs, dy, Some(dh), grads, false).unwrap();
        });
        (there, back, wide * states * size_of::<f32>())
    };
    // Threads start here.
    run(&Problem::new([64, 4, 256, 16], (-4.0, -0.1), false));
    for sizes in [[1024, 4, 256, 16], [4096, 1, 256, 16], [64, 16, 1024, 16]] {
        let (there, back, all) = run(&Problem::new(sizes, (-4.0, -0.1), false));
        assert!(there < all / 10, "{sizes:?}: forward {there} of {all} bytes");
        assert!(back < all / 10, "{sizes:?}: back {back} of {all} bytes");
    }
}
