//! The selective scan of Mamba (Gu and Dao 2023, arXiv:2312.00752, section 3.2).
//!
//! Sizes: T steps, B batch, D channels, N states. With h of shape (B, D, N):
//!
//! ```text
//! h[t] = exp(dt[t] A) h[t-1] + (dt[t] x[t]) b[t]        y[t] = sum over n of h[t] c[t]
//! ```

use mlx_safe::{Array, Dtype, Result, stack, zeros};

/// The inputs of a selective scan.
#[derive(Clone, Debug)]
pub struct SelectiveScan {
    /// Step sizes (T, B, D).
    pub dt: Array,
    /// Inputs (T, B, D).
    pub x: Array,
    /// Input projections (T, B, N).
    pub b: Array,
    /// Output projections (T, B, N).
    pub c: Array,
    /// State matrix, diagonal (D, N); negative in a stable model.
    pub a: Array,
    /// Initial state (B, D, N); zero if left out.
    pub h0: Option<Array>,
}

impl SelectiveScan {
    /// y (T, B, D) and the last state (B, D, N), one step after another in float32.
    ///
    /// Only decays exp(dt A) are multiplied, never divided by: what underflows becomes 0, and nothing overflows for
    /// dt A <= 0.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn composed(&self) -> Result<(Array, Array)> {
        let f32s = |x: &Array| x.astype(Dtype::Float32);
        let (dt, x, b, c, a) =
            (f32s(&self.dt)?, f32s(&self.x)?, f32s(&self.b)?, f32s(&self.c)?, f32s(&self.a)?);
        let (steps, batch, channels) = (dt.dim(0)?, dt.dim(1)?, dt.dim(2)?);
        let states = a.dim(1)?;
        let mut h = match &self.h0 {
            Some(h0) => f32s(h0)?,
            None => zeros(&[batch, channels, states], Dtype::Float32)?,
        };
        if steps == 0 {
            return Ok((zeros(&[0, batch, channels], self.x.dtype())?, h));
        }
        let mut ys = Vec::with_capacity(steps as usize);
        for t in 0..steps {
            let dt_t = at(&dt, t)?.expand_dims(&[-1])?;
            let decay = dt_t.multiply(&a)?.exp()?;
            let input =
                dt_t.multiply(&at(&x, t)?.expand_dims(&[-1])?)?.multiply(&at(&b, t)?.expand_dims(&[1])?)?;
            h = decay.multiply(&h)?.add(&input)?;
            ys.push(h.multiply(&at(&c, t)?.expand_dims(&[1])?)?.sum(&[-1], false)?);
        }
        Ok((stack(&ys, 0)?.astype(self.x.dtype())?, h))
    }
}

/// Entry `t` of the first axis.
fn at(array: &Array, t: i32) -> Result<Array> {
    let shape = array.shape();
    let (mut start, mut stop) = (vec![0; shape.len()], shape.to_vec());
    (start[0], stop[0]) = (t, t + 1);
    array.slice(&start, &stop, &vec![1; shape.len()])?.squeeze(&[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, in float64.
    struct Reference {
        y: Vec<f64>,
        h: Vec<f64>,
    }

    struct Sizes(usize, usize, usize, usize);

    fn values(count: usize, low: f64, high: f64, salt: usize) -> Vec<f32> {
        (0..count)
            .map(|i| (low + (high - low) * (((i + salt) as f64 * 0.754_877_666).fract())) as f32)
            .collect()
    }

    fn reference(s: &Sizes, dt: &[f32], x: &[f32], b: &[f32], c: &[f32], a: &[f32], h0: &[f32]) -> Reference {
        let Sizes(steps, batch, channels, states) = *s;
        let mut h: Vec<f64> = h0.iter().map(|&v| f64::from(v)).collect();
        let mut y = Vec::new();
        for t in 0..steps {
            for i in 0..batch {
                for d in 0..channels {
                    let at = (t * batch + i) * channels + d;
                    let mut sum = 0.0;
                    for n in 0..states {
                        let state = &mut h[(i * channels + d) * states + n];
                        let row = (t * batch + i) * states + n;
                        let step = f64::from(dt[at]);
                        *state = (step * f64::from(a[d * states + n])).exp() * *state
                            + step * f64::from(x[at]) * f64::from(b[row]);
                        sum += *state * f64::from(c[row]);
                    }
                    y.push(sum);
                }
            }
        }
        Reference { y, h }
    }

    fn check(s: Sizes, a_range: (f64, f64)) {
        let Sizes(steps, batch, channels, states) = s;
        let dt = values(steps * batch * channels, 0.001, 2.78, 1);
        let x = values(steps * batch * channels, -1.0, 1.0, 2);
        let b = values(steps * batch * states, -1.0, 1.0, 3);
        let c = values(steps * batch * states, -1.0, 1.0, 4);
        let a = values(channels * states, a_range.0, a_range.1, 5);
        let h0 = values(batch * channels * states, -1.0, 1.0, 6);
        let wanted = reference(&s, &dt, &x, &b, &c, &a, &h0);
        let array = |data: &[f32], shape: &[usize]| {
            Array::from_slice(data, &shape.iter().map(|&n| n as i32).collect::<Vec<_>>()).unwrap()
        };
        let scan = SelectiveScan {
            dt: array(&dt, &[steps, batch, channels]),
            x: array(&x, &[steps, batch, channels]),
            b: array(&b, &[steps, batch, states]),
            c: array(&c, &[steps, batch, states]),
            a: array(&a, &[channels, states]),
            h0: Some(array(&h0, &[batch, channels, states])),
        };
        let (y, h) = scan.composed().unwrap();
        assert_eq!(y.shape(), [steps as i32, batch as i32, channels as i32]);
        near(&y.to_vec().unwrap(), &wanted.y);
        near(&h.to_vec().unwrap(), &wanted.h);
    }

    fn near(got: &[f32], wanted: &[f64]) {
        let scale = wanted.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        for (&g, &w) in got.iter().zip(wanted) {
            assert!((f64::from(g) - w).abs() <= 1e-5 * scale, "{g} for {w}");
        }
    }

    #[test]
    fn agrees_with_float64() {
        check(Sizes(1, 1, 1, 1), (-1.0, -0.1));
        check(Sizes(37, 3, 5, 16), (-4.0, -0.01));
    }

    #[test]
    fn decays_past_the_range_of_exp_underflow_to_zero() {
        // dt A reaches -129: exp of its opposite would be infinite in float32.
        check(Sizes(24, 2, 3, 7), (-46.4, -1.0));
    }

    #[test]
    fn no_steps_leave_the_state() {
        check(Sizes(0, 2, 3, 4), (-1.0, -0.1));
    }
}
