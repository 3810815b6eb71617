//! Fine-tunes the same adapters as the example `lora` of kernels-metal, as one ONNX graph through ONNX Runtime with the
//! plugin, and compares the losses:
//!
//! ```sh
//! cargo run -p kernels-metal --example lora lora.safetensors
//! cargo run -p ort-mlx-tests --example lora_onnx lora.safetensors
//! ```

use std::error::Error;

use ort_mlx_tests::lora::{Attention, step, train};
use ort_mlx_tests::{model, session};

#[path = "../tests/lora/file.rs"]
mod file;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the file that the other example wrote is missing")?;
    let (start, wanted) = file::load(&path)?;
    for attention in [Attention::Operators, Attention::Spelled] {
        let graph = model(&step(&start, attention)?, 17);
        let mut session = session(&graph, &[("claim", "all")])?;
        let losses = train(&mut session, &start, wanted.len())?;
        for (i, (ours, wanted)) in losses.iter().zip(&wanted).enumerate().step_by(20) {
            println!("{attention:?}, step {:3}: loss {ours:.4}, without ONNX {wanted:.4}", i + 1);
        }
        let furthest = losses.iter().zip(&wanted).map(|(a, b)| (a - b).abs() / b.abs()).fold(0.0, f32::max);
        println!("{attention:?}: the losses differ by {furthest:.1e} of theirs at most");
    }
    Ok(())
}
