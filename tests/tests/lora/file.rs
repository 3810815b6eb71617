//! The file that the example `lora` of kernels-metal writes.

use mlx_safe::{Array, Dtype, Result, io::Safetensors};
use ort_mlx_tests::lora::{Floats, Start};

/// What training starts from, and the losses.
pub fn load(path: &str) -> Result<(Start, Vec<f32>)> {
    let file = Safetensors::load(path)?;
    let named = |kind: &str| {
        let all = (0..).map_while(|i| file.arrays.get(&format!("{kind}.{i}")));
        all.map(floats).collect::<Result<Vec<_>>>()
    };
    let whole = |name: &str| file.arrays[name].astype(Dtype::Int64)?.to_vec::<i64>();
    let start = Start {
        weights: named("weight")?,
        adapters: named("before")?,
        tokens: whole("tokens")?,
        next: whole("next")?,
    };
    Ok((start, file.arrays["losses"].to_vec::<f32>()?))
}

fn floats(array: &Array) -> Result<Floats> {
    Ok(Floats { dims: array.shape().iter().map(|&n| n as usize).collect(), data: array.to_vec::<f32>()? })
}
