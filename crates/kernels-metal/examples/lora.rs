//! Fine-tunes a tiny character transformer with LoRA adapters (Hu and others 2021, arXiv:2106.09685), the gradient of its
//! attention by this crate's pullback: `cargo run -p kernels-metal --example lora [FILE.safetensors]`.
//!
//! All weights are trained on one text; then they are frozen, and adapters of rank 4 beside the projections to queries and
//! values learn another. A file gets the frozen weights, the adapters before and after, the tokens and the losses.

use kernels_metal::attention::{Attention, Inputs};
use mlx_safe::{Array, Dtype, Result, eval, fast, io, random, value_and_grad, zeros};

const FIRST: &str = "the quick brown fox jumps over the lazy dog. ";
const SECOND: &str = "a lazy brown dog naps under the quick fox. ";

const WIDTH: i32 = 32;
const HEADS: i32 = 2;
const LAYERS: usize = 2;
const RANK: i32 = 4;
const BATCH: usize = 8;
const LENGTH: usize = 32;

/// Weights of a layer: q, k, v, o (D, D), up (D, 4D), down (4D, D); then a (D, R), b (R, D) for q and for v.
const WEIGHTS: usize = 6;
const ADAPTERS: usize = 4;

fn main() -> Result<()> {
    fine_tune(std::env::args().nth(1).as_deref())
}

/// Trains all weights, then adapters; saves to `file`.
pub fn fine_tune(file: Option<&str>) -> Result<()> {
    let characters = characters();
    let mut weights = weights(characters.len() as i32)?;
    let mut adapters = adapters()?;
    let (first, second) = (batch(FIRST, &characters)?, batch(SECOND, &characters)?);

    let none = adapters.clone();
    train("weights", &mut weights, 120, 3e-3, |weights| loss(weights, &none, &first))?;

    let (before, frozen) = (adapters.clone(), weights);
    let losses = train("adapters", &mut adapters, 80, 2e-2, |adapters| loss(&frozen, adapters, &second))?;
    let (start, end) = (losses[0], losses[losses.len() - 1]);
    println!("the adapters take the loss on the second text from {start:.3} to {end:.3}");
    assert!(end < 0.5 * start, "the adapters learned nothing");

    if let Some(path) = file {
        save(path, &frozen, &before, &adapters, &second, &losses)?;
    }
    Ok(())
}

/// Tokens (B, T) and those that follow them (B, T).
struct Batch {
    tokens: Array,
    next: Array,
}

/// The mean cross entropy of `batch`.
fn loss(weights: &[Array], adapters: &[Array], batch: &Batch) -> Result<Array> {
    let embedding = &weights[0];
    let mut x = embedding.take(&batch.tokens, 0)?.add(&weights[1])?;
    for layer in 0..LAYERS {
        let w = &weights[2 + layer * WEIGHTS..][..WEIGHTS];
        let adapters = &adapters[layer * ADAPTERS..][..ADAPTERS];
        let h = fast::rms_norm(&x, None, 1e-5)?;
        let inputs = Inputs {
            q: heads(&adapted(&h, &w[0], &adapters[..2])?)?,
            k: heads(&h.matmul(&w[1])?)?,
            v: heads(&adapted(&h, &w[2], &adapters[2..])?)?,
            mask: None,
        };
        let y = Attention { scale: None, causal: true }.apply(&inputs)?;
        let y = y.swapaxes(1, 2)?.reshape(x.shape())?;
        x = x.add(&y.matmul(&w[3])?)?;
        let h = fast::rms_norm(&x, None, 1e-5)?.matmul(&w[4])?;
        x = x.add(&h.multiply(&h.sigmoid()?)?.matmul(&w[5])?)?;
    }
    let logits = fast::rms_norm(&x, None, 1e-5)?.matmul(&embedding.t()?)?;
    fast::cross_entropy(&logits, &batch.next)?.mean(.., false)
}

/// x W + x A B.
fn adapted(x: &Array, w: &Array, adapter: &[Array]) -> Result<Array> {
    x.matmul(w)?.add(&x.matmul(&adapter[0])?.matmul(&adapter[1])?)
}

/// (B, T, D) to (B, H, T, D / H).
fn heads(x: &Array) -> Result<Array> {
    x.reshape(&[BATCH as i32, LENGTH as i32, HEADS, WIDTH / HEADS])?.swapaxes(1, 2)
}

/// Adam (Kingma and Ba 2014, arXiv:1412.6980). Returns the losses.
fn train(
    name: &str,
    parameters: &mut [Array],
    steps: i32,
    rate: f32,
    loss: impl Fn(&[Array]) -> Result<Array>,
) -> Result<Vec<f32>> {
    let numbers: Vec<i32> = (0..parameters.len() as i32).collect();
    let both = value_and_grad(|x| Ok(vec![loss(x)?]), &numbers);
    let nothing: Result<Vec<Array>> = parameters.iter().map(Array::zeros_like).collect();
    let mut means = nothing?;
    let mut squares = means.clone();
    let mut losses = Vec::new();
    for step in 1..=steps {
        let (values, gradients) = both(parameters)?;
        for (i, gradient) in gradients.iter().enumerate() {
            means[i] = (&means[i] * 0.9f32)?.add(&(gradient * 0.1f32)?)?;
            squares[i] = (&squares[i] * 0.999f32)?.add(&(&gradient.square()? * 0.001f32)?)?;
            let mean = (&means[i] / (1.0 - 0.9f32.powi(step)))?;
            let deviation = (&squares[i] / (1.0 - 0.999f32.powi(step)))?.sqrt()?;
            let change = mean.divide(&(&deviation + 1e-8f32)?)?;
            parameters[i] = parameters[i].subtract(&(&change * rate)?)?;
        }
        eval(parameters.iter().chain(&means).chain(&squares))?;
        losses.push(values[0].item::<f32>()?);
        if step % 20 == 1 || step == steps {
            println!("{name}, step {step:3}: loss {:.4}", losses[losses.len() - 1]);
        }
    }
    Ok(losses)
}

/// The embedding (C, D), positions (T, D) and the layers' weights.
fn weights(characters: i32) -> Result<Vec<Array>> {
    let wide = 4 * WIDTH;
    let mut shapes = vec![[characters, WIDTH], [LENGTH as i32, WIDTH]];
    for _ in 0..LAYERS {
        shapes.extend([[WIDTH, WIDTH]; 4]);
        shapes.extend([[WIDTH, wide], [wide, WIDTH]]);
    }
    let draw = |(seed, shape): (usize, &[i32; 2])| normal(shape, 0.15, seed as u64);
    shapes.iter().enumerate().map(draw).collect()
}

/// A is random and B zero: at first they change nothing.
fn adapters() -> Result<Vec<Array>> {
    let mut all = Vec::new();
    for seed in 0..2 * LAYERS as u64 {
        all.push(normal(&[WIDTH, RANK], 0.15, 100 + seed)?);
        all.push(zeros(&[RANK, WIDTH], Dtype::Float32)?);
    }
    Ok(all)
}

fn normal(shape: &[i32], deviation: f32, seed: u64) -> Result<Array> {
    random::normal(shape, Dtype::Float32, 0.0, deviation, Some(&random::key(seed)?))
}

fn characters() -> Vec<char> {
    let mut all: Vec<char> = FIRST.chars().chain(SECOND.chars()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Pieces of `text`, repeated, from different places.
fn batch(text: &str, characters: &[char]) -> Result<Batch> {
    let number = |c: char| characters.iter().position(|&known| known == c).unwrap_or(0) as i32;
    let text: Vec<i32> = text.chars().map(number).collect();
    let rows = |shift: usize| {
        let at = move |i: usize| (i / LENGTH) * 5 + i % LENGTH + shift;
        let tokens: Vec<i32> = (0..BATCH * LENGTH).map(|i| text[at(i) % text.len()]).collect();
        Array::from_slice(&tokens, &[BATCH as i32, LENGTH as i32])
    };
    Ok(Batch { tokens: rows(0)?, next: rows(1)? })
}

fn save(
    path: &str,
    frozen: &[Array],
    before: &[Array],
    after: &[Array],
    batch: &Batch,
    losses: &[f32],
) -> Result<()> {
    let mut file = io::Safetensors::default();
    for (kind, parameters) in [("weight", frozen), ("before", before), ("after", after)] {
        for (i, parameter) in parameters.iter().enumerate() {
            file.arrays.insert(format!("{kind}.{i}"), parameter.clone());
        }
    }
    file.arrays.insert("tokens".into(), batch.tokens.clone());
    file.arrays.insert("next".into(), batch.next.clone());
    file.arrays.insert("losses".into(), Array::from_slice(losses, &[losses.len() as i32])?);
    file.save(path)
}
