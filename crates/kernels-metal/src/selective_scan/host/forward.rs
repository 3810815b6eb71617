//! Outputs and last state.

use super::{Inputs, Outputs, Sizes, length};
use crate::Result;
use crate::sample::Sample;

/// y and the last state; `reverse` takes the steps from the last to the first.
///
/// # Errors
/// If a length does not fit the sizes.
pub fn forward<T: Sample>(
    sizes: Sizes,
    inputs: &Inputs<'_, T>,
    outputs: Outputs<'_, T>,
    reverse: bool,
) -> Result<()> {
    let Sizes { steps, batch, channels, states } = sizes;
    inputs.check(sizes)?;
    length("y", outputs.y, steps * batch * channels)?;
    length("h", outputs.h, batch * channels * states)?;
    match inputs.h0 {
        Some(h0) => outputs.h.copy_from_slice(h0),
        None => outputs.h.fill(0.0),
    }
    let value = |from: &[T], at: usize| {
        let mut out = [0.0];
        T::load(&from[at..=at], &mut out);
        out[0]
    };
    for step in 0..steps {
        let t = if reverse { steps - 1 - step } else { step };
        for i in 0..batch {
            for d in 0..channels {
                let at = (t * batch + i) * channels + d;
                let dt = value(inputs.dt, at);
                let u = dt * value(inputs.x, at);
                let mut y = 0.0;
                for n in 0..states {
                    let row = (t * batch + i) * states + n;
                    let h = &mut outputs.h[(i * channels + d) * states + n];
                    *h = (dt * inputs.a[d * states + n]).exp() * *h + u * value(inputs.b, row);
                    y += *h * value(inputs.c, row);
                }
                T::store(&[y], &mut outputs.y[at..=at]);
            }
        }
    }
    Ok(())
}
