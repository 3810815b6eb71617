//! Trains a small convolutional network to tell horizontal from vertical stripes in noisy pictures that the example makes:
//! `cargo run -p mlx-safe --example conv_net`.

use mlx_safe::{Array, ConvGeometry, Result, eval, value_and_grad};

const SIZE: usize = 8;
const FILTERS: i32 = 4;

/// A small generator of numbers in -0.5..0.5, the same at every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    }

    fn array(&mut self, scale: f32, shape: &[i32]) -> Result<Array> {
        let count = shape.iter().product::<i32>() as usize;
        Array::from_slice(&(0..count).map(|_| scale * self.next()).collect::<Vec<f32>>(), shape)
    }
}

/// `count` pictures (count, 8, 8, 1) and their labels (count): 1 for vertical stripes, 0 for horizontal ones.
fn pictures(noise: &mut Noise, count: usize) -> Result<(Array, Array)> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let vertical = noise.next() > 0.0;
        let phase = usize::from(noise.next() > 0.0);
        labels.push(f32::from(u8::from(vertical)));
        for y in 0..SIZE {
            for x in 0..SIZE {
                let stripe = (if vertical { x } else { y } + phase) % 2;
                pixels.push(stripe as f32 - 0.5 + 1.5 * noise.next());
            }
        }
    }
    let (n, size) = (count as i32, SIZE as i32);
    Ok((Array::from_slice(&pixels, &[n, size, size, 1])?, Array::from_slice(&labels, &[n])?))
}

/// One number a picture, positive for vertical: convolution, relu, mean over the picture, a weighted sum of the filters.
fn network(parameters: &[Array], pictures: &Array) -> Result<Array> {
    let geometry = ConvGeometry {
        stride: vec![1, 1],
        padding_low: vec![0, 0],
        padding_high: vec![0, 0],
        kernel_dilation: vec![1, 1],
        input_dilation: vec![1, 1],
        groups: 1,
        flip: false,
    };
    let [filters, bias, weights, offset] = parameters else { unreachable!("the parameters of `main`") };
    let features = pictures.conv_general(filters, &geometry)?.add(bias)?;
    let features = features.maximum(&Array::scalar(0.0f32))?.mean(&[1, 2], false)?;
    features.matmul(weights)?.squeeze(&[1])?.add(offset)
}

fn accuracy(parameters: &[Array], pictures: &Array, labels: &Array) -> Result<f32> {
    let said = network(parameters, pictures)?.greater(&Array::scalar(0.0f32))?;
    said.equal(labels)?.mean(&[0], false)?.item()
}

fn main() -> Result<()> {
    let mut noise = Noise(1);
    let (x, y) = pictures(&mut noise, 256)?;
    let (unseen_x, unseen_y) = pictures(&mut noise, 256)?;
    let mut parameters = vec![
        noise.array(1.0, &[FILTERS, 3, 3, 1])?,
        noise.array(0.1, &[FILTERS])?,
        noise.array(1.0, &[FILTERS, 1])?,
        Array::scalar(0.0f32),
    ];
    println!(
        "before: {:.1} % of unseen pictures right",
        100.0 * accuracy(&parameters, &unseen_x, &unseen_y)?
    );

    // Cross entropy of a sigmoid: ln(1 + e^z) - y z.
    let loss = value_and_grad(
        |p| {
            let z = network(p, &x)?;
            let softplus = z.logaddexp(&Array::scalar(0.0f32))?;
            Ok(vec![softplus.subtract(&y.multiply(&z)?)?.mean(&[0], false)?])
        },
        &[0, 1, 2, 3],
    );
    let rate = Array::scalar(1.0f32);
    for step in 0..=200 {
        let (values, gradients) = loss(&parameters)?;
        if step % 50 == 0 {
            println!("step {step:3}: loss {:.4}", values[0].item::<f32>()?);
        }
        for (parameter, gradient) in parameters.iter_mut().zip(&gradients) {
            *parameter = parameter.subtract(&gradient.multiply(&rate)?)?;
        }
        eval(&parameters)?;
    }
    println!("after: {:.1} % of unseen pictures right", 100.0 * accuracy(&parameters, &unseen_x, &unseen_y)?);
    Ok(())
}
