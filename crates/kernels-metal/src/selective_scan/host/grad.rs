//! Derivatives by the inputs.

use super::{Grads, Inputs, Sizes, length};
use crate::Result;
use crate::sample::Sample;

/// Derivatives of a loss by the inputs, from those by y, `dy` (T, B, D), and by the last state, `dh` (B, D, N; zero if left
/// out).
///
/// # Errors
/// If a length does not fit the sizes.
pub fn grad<T: Sample>(
    sizes: Sizes,
    inputs: &Inputs<'_, T>,
    dy: &[T],
    dh: Option<&[f32]>,
    grads: Grads<'_, T>,
    reverse: bool,
) -> Result<()> {
    let Sizes { steps, batch, channels, states } = sizes;
    let (steps_size, rows_size) = (steps * batch * channels, steps * batch * states);
    let state_size = batch * channels * states;
    inputs.check(sizes)?;
    length("dy", dy, steps_size)?;
    dh.map_or(Ok(()), |dh| length("dh", dh, state_size))?;
    length("the derivative by dt", grads.dt, steps_size)?;
    length("the derivative by x", grads.x, steps_size)?;
    length("the derivative by b", grads.b, rows_size)?;
    length("the derivative by c", grads.c, rows_size)?;
    length("the derivative by a", grads.a, channels * states)?;
    length("the derivative by h0", grads.h0, state_size)?;
    let f32s = |from: &[T]| {
        let mut out = vec![0.0; from.len()];
        T::load(from, &mut out);
        out
    };
    let (dt, x, b, c, dy) = (f32s(inputs.dt), f32s(inputs.x), f32s(inputs.b), f32s(inputs.c), f32s(dy));
    let (mut ddt, mut dx) = (vec![0.0; steps_size], vec![0.0; steps_size]);
    let (mut db, mut dc) = (vec![0.0; rows_size], vec![0.0; rows_size]);
    grads.a.fill(0.0);
    let order = |step: usize| if reverse { steps - 1 - step } else { step };
    let mut trail = vec![0.0; steps + 1];
    for i in 0..batch {
        for d in 0..channels {
            for n in 0..states {
                let (a, state) = (inputs.a[d * states + n], (i * channels + d) * states + n);
                trail[0] = inputs.h0.map_or(0.0, |h0| h0[state]);
                for step in 0..steps {
                    let (at, row) =
                        ((order(step) * batch + i) * channels + d, (order(step) * batch + i) * states + n);
                    trail[step + 1] = (dt[at] * a).exp() * trail[step] + dt[at] * x[at] * b[row];
                }
                let mut g = dh.map_or(0.0, |dh| dh[state]);
                for step in (0..steps).rev() {
                    let (at, row) =
                        ((order(step) * batch + i) * channels + d, (order(step) * batch + i) * states + n);
                    let decay = (dt[at] * a).exp();
                    g += c[row] * dy[at];
                    dc[row] += dy[at] * trail[step + 1];
                    db[row] += g * dt[at] * x[at];
                    dx[at] += g * b[row] * dt[at];
                    let by_exponent = g * decay * trail[step];
                    ddt[at] += g * b[row] * x[at] + by_exponent * a;
                    grads.a[d * states + n] += by_exponent * dt[at];
                    g *= decay;
                }
                grads.h0[state] = g;
            }
        }
    }
    T::store(&ddt, grads.dt);
    T::store(&dx, grads.x);
    T::store(&db, grads.b);
    T::store(&dc, grads.c);
    Ok(())
}
