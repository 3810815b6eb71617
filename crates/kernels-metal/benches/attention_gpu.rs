//! Attention forward and backward on a GPU through MLX: `cargo bench -p kernels-metal --bench attention_gpu`. Rows name the
//! kernels that ran; MLX's own attention with its VJP stands beside them. Times are medians of what a longer batch of calls
//! takes more than a shorter one; memory is MLX's peak beyond inputs and outputs.
#![allow(clippy::unwrap_used)] // A bench: it stops where something fails.

mod measure;

use kernels_metal::attention::{Attention, Inputs};
use measure::{extra_bytes, one_more_ms};
use mlx_safe::fast::{Mask, scaled_dot_product_attention};
use mlx_safe::{Array, DeviceType, Dtype, Stream, eval, memory, random, vjp};

fn inputs([b, h, l, e]: [i32; 4], dtype: Dtype) -> Vec<Array> {
    let list: Vec<_> =
        (0..4).map(|_| random::normal(&[b, h, l, e], dtype, 0.0, 1.0, None).unwrap()).collect();
    eval(&list).unwrap();
    list
}

fn of(list: &[Array]) -> Inputs {
    Inputs { q: list[0].clone(), k: list[1].clone(), v: list[2].clone(), mask: None }
}

/// Y and the derivatives, from q, k, v and dy: a saved log-sum-exp is made use of where the kernels give one.
fn ours(attention: Attention, list: &[Array]) -> Vec<Array> {
    let (y, grads) = vjp(|x| Ok(vec![attention.apply(&of(x))?]), &list[..3], &list[3..]).unwrap();
    [y, grads].concat()
}

fn theirs(causal: bool, list: &[Array]) -> Vec<Array> {
    let mask = if causal { Mask::Causal } else { Mask::None };
    let scale = (list[0].dim(3).unwrap() as f32).sqrt().recip();
    let attention = |x: &[Array]| Ok(vec![scaled_dot_product_attention(&x[0], &x[1], &x[2], scale, mask)?]);
    let (y, grads) = vjp(attention, &list[..3], &list[3..]).unwrap();
    [y, grads].concat()
}

fn time(few: usize, call: &dyn Fn() -> Vec<Array>) -> f64 {
    one_more_ms(few, 5, |count| (0..count).flat_map(|_| call()).collect())
}

/// Megabytes beyond inputs and outputs.
fn extra(call: &dyn Fn() -> Vec<Array>) -> f64 {
    extra_bytes(call) / 1e6
}

fn main() {
    if Stream::current_device().unwrap() != DeviceType::Gpu {
        println!("no GPU: nothing to measure");
        return;
    }
    println!("| B, H, L, E | type | causal | kernel | ms | MB | MLX ms | MLX MB |");
    println!("|---|---|---|---|---|---|---|---|");
    let rows = [1000, 1024, 2048, 4096, 8192].map(|l| [2, 16, l, 64]);
    for dtype in [Dtype::Float32, Dtype::Bfloat16] {
        for shape in rows {
            for causal in [false, true] {
                row(shape, dtype, causal, true);
            }
        }
    }
    row([1, 8, 8192, 64], Dtype::Float32, false, false);
}

fn row(shape: [i32; 4], dtype: Dtype, causal: bool, beside: bool) {
    let (list, attention) = (inputs(shape, dtype), Attention { scale: None, causal });
    let few = if shape[2] > 4000 { 1 } else { 8 };
    let name = attention.kernel(&of(&list)).unwrap();
    let call = || ours(attention, &list);
    let (mb, ms) = (extra(&call), time(few, &call));
    let mlx = match beside {
        true => {
            let call = || theirs(causal, &list);
            let mb = extra(&call);
            let cell = format!("{:.3} | {mb:.0}", time(few, &call));
            memory::clear_cache().unwrap();
            cell
        }
        false => " | ".to_owned(),
    };
    println!("| {shape:?} | {dtype:?} | {causal} | {name} | {ms:.3} | {mb:.1} | {mlx} |");
}
