//! Fits a line to noisy points by gradient descent: `cargo run -p mlx-safe --example linear_regression`.

use mlx_safe::{Array, Result, eval, value_and_grad};

const TRUE_SLOPE: f32 = 3.0;
const TRUE_OFFSET: f32 = -0.5;

fn main() -> Result<()> {
    let x: Vec<f32> = (0..200).map(|i| i as f32 / 100.0 - 1.0).collect();
    // Noise that averages to zero, the same at every run.
    let noise = |i: usize| ((i * 7919 % 200) as f32 / 199.0 - 0.5) * 0.2;
    let y: Vec<f32> = x.iter().enumerate().map(|(i, x)| TRUE_SLOPE * x + TRUE_OFFSET + noise(i)).collect();
    let (x, y) = (Array::from_slice(&x, &[200])?, Array::from_slice(&y, &[200])?);

    // The data is borrowed; the parameters are what is differentiated.
    let loss = value_and_grad(
        |p| {
            let predicted = p[0].multiply(&x)?.add(&p[1])?;
            Ok(vec![predicted.subtract(&y)?.square()?.mean(&[0], false)?])
        },
        &[0, 1],
    );

    let rate = Array::scalar(0.2f32);
    let mut parameters = vec![Array::scalar(0.0f32), Array::scalar(0.0f32)];
    for step in 0..=100 {
        let (values, gradients) = loss(&parameters)?;
        if step % 25 == 0 {
            println!("step {step:3}: mean squared error {:.5}", values[0].item::<f32>()?);
        }
        for (parameter, gradient) in parameters.iter_mut().zip(&gradients) {
            *parameter = parameter.subtract(&gradient.multiply(&rate)?)?;
        }
        // Without this the graph would grow by every step.
        eval(&parameters)?;
    }
    let (slope, offset) = (parameters[0].item::<f32>()?, parameters[1].item::<f32>()?);
    println!(
        "learned y = {slope:.3} x + {offset:.3}; the points were made with {TRUE_SLOPE} and {TRUE_OFFSET}"
    );
    Ok(())
}
