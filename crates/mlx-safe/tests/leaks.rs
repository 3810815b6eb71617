//! Resident memory stays flat while handles of every kind are made and dropped by the hundred thousand.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

use std::time::Instant;

use mlx_safe::{Array, Closure, Device, Error, HostOp, Stream};
use mlx_safe::{checkpoint, compile, custom_vjp, grad, memory, vjp};

/// Resident bytes of this process.
fn resident() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<i64>().unwrap() * 4096
}

/// How many bytes `count` rounds of `work` leave resident.
fn growth(count: i64, work: impl FnMut(i64)) -> i64 {
    let before = resident();
    (0..count).for_each(work);
    resident() - before
}

/// Runs `work` for a warm-up and then `count` times, and checks that memory did not grow by 8 bytes a round, which is
/// less than any object of MLX's or ours, beyond a little that allocators need.
fn flat(name: &str, count: i64, mut work: impl FnMut(i64)) {
    (0..count / 10).for_each(&mut work);
    let active = memory::active().unwrap();
    let start = Instant::now();
    let grown = growth(count, &mut work);
    let seconds = start.elapsed().as_secs_f64();
    // A GPU lets go of its buffers behind its work.
    for device in [Device::CPU, Device::GPU].into_iter().filter(|device| device.is_available().unwrap()) {
        Stream::default_on(device).unwrap().synchronize().unwrap();
    }
    println!("{name}: {count} rounds, {grown:+} bytes, {seconds:.1} s");
    assert!(grown <= 8 * count + (1 << 20), "{name}: {grown} bytes for {count} rounds");
    assert!(memory::active().unwrap() <= active, "{name}: MLX holds more than before");
}

// One test: others beside it would count in.
#[test]
fn handles_come_and_go_in_flat_memory() {
    let x = Array::from_slice(&[1.0f32, 2.0], &[2]).unwrap();
    let inputs = std::slice::from_ref(&x);

    // The measure sees a leak of one small object a round.
    assert!(growth(100_000, |i| std::mem::forget(Array::scalar(i as f32))) > 8 * 100_000 + (1 << 20));
    flat("arrays", 1_000_000, |i| drop(Array::scalar(i as f32)));
    flat("lazy operations", 200_000, |_| drop(x.add(&x).unwrap().exp().unwrap()));
    flat("evaluations", 10_000, |_| x.add(&x).unwrap().eval().unwrap());
    flat("failed operations", 50_000, |_| drop(x.reshape(&[7]).unwrap_err()));
    flat("closures", 100_000, |i| drop(Closure::new(move |x| Ok(vec![x[0].add(&Array::scalar(i as f32))?]))));
    flat("closures with arrays", 50_000, |i| {
        let captured = Array::scalar(i as f32);
        let f = Closure::new(move |x| Ok(vec![x[0].add(&captured)?]));
        drop(f.apply(inputs).unwrap());
    });
    flat("failed closures", 20_000, |_| {
        drop(Closure::new(|_| Err(Error::Closure("no".into()))).apply(&[]).unwrap_err());
    });
    flat("gradients", 10_000, |_| drop(grad(|x| x[0].square()?.sum(&[0], false), &[0])(inputs).unwrap()));
    flat("failed gradients", 10_000, |_| {
        drop(vjp(|x| Ok(vec![x[0].square()?.reshape(&[7])?]), inputs, inputs).unwrap_err());
    });
    flat("own derivatives", 10_000, |_| {
        let f = custom_vjp(|x| Ok(x.to_vec()), |_, c, _| Ok(c.to_vec())).unwrap();
        let g = checkpoint(move |x| f.apply(x)).unwrap();
        drop(grad(|x| g.apply(x)?[0].sum(&[0], false), &[0])(inputs).unwrap());
    });
    // Each compiled function has a trace, with a constant in it, in the thread's cache.
    flat("compiled functions", 5_000, |_| {
        let captured = Array::from_slice(&[1.0f32; 256], &[256]).unwrap();
        let f = compile(move |x| Ok(vec![captured.add(&x[0].sum(&[0], false)?)?])).unwrap();
        drop(f.apply(inputs).unwrap());
    });
    let op = HostOp::new(
        "copy",
        |i| Ok(i.to_vec()),
        |i, o| {
            o[0].as_mut_slice::<f32>()?.copy_from_slice(i[0].as_slice()?);
            Ok(())
        },
    );
    flat("host ops", 10_000, |_| op.call(&[&x]).unwrap()[0].eval().unwrap());
    let bad = HostOp::new("bad", |i| Ok(i.to_vec()), |_, _| Err("no".into()));
    flat("failed host ops", 5_000, |_| drop(bad.call(&[&x]).unwrap()[0].eval().unwrap_err()));
    let stream = Stream::default_on(Device::CPU).unwrap();
    flat("streams in scope", 50_000, |_| drop(stream.scope(|| x.square().unwrap())));
}
