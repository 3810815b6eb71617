//! The definition of the selective scan and its derivative in float64, and inputs to try them on.
#![allow(dead_code)] // Every test binary uses a part.

use kernels_metal::selective_scan::Sizes;

/// Values between `low` and `high` that look random: an additive recurrence.
pub fn values(count: usize, low: f64, high: f64, salt: usize) -> Vec<f32> {
    (0..count)
        .map(|i| (low + (high - low) * ((i + 1000 * salt) as f64 * 0.754_877_666).fract()) as f32)
        .collect()
}

/// One problem: inputs and the derivatives that come in.
pub struct Problem {
    pub sizes: Sizes,
    pub dt: Vec<f32>,
    pub x: Vec<f32>,
    pub b: Vec<f32>,
    pub c: Vec<f32>,
    pub a: Vec<f32>,
    pub h0: Option<Vec<f32>>,
    pub dy: Vec<f32>,
    pub dh: Vec<f32>,
}

/// Results in float64, in the layouts of the kernel.
pub struct Results {
    pub y: Vec<f64>,
    pub h: Vec<f64>,
    /// By dt, x, b, c, a, h0.
    pub grads: [Vec<f64>; 6],
}

impl Problem {
    /// Sizes T, B, D, N; `a` in a range; steps up to 2.78, as real checkpoints have them.
    pub fn new([steps, batch, channels, states]: [usize; 4], (low, high): (f64, f64), h0: bool) -> Self {
        let (wide, rows, state) =
            (steps * batch * channels, steps * batch * states, batch * channels * states);
        Self {
            sizes: Sizes { steps, batch, channels, states },
            dt: values(wide, 0.001, 2.78, 1),
            x: values(wide, -1.0, 1.0, 2),
            b: values(rows, -1.0, 1.0, 3),
            c: values(rows, -1.0, 1.0, 4),
            a: values(channels * states, low, high, 5),
            h0: h0.then(|| values(state, -1.0, 1.0, 6)),
            dy: values(wide, -1.0, 1.0, 7),
            dh: values(state, -1.0, 1.0, 8),
        }
    }

    /// The definition, one state after another.
    pub fn solve(&self, reverse: bool) -> Results {
        let Sizes { steps, batch, channels, states } = self.sizes;
        let (wide, rows, state) =
            (steps * batch * channels, steps * batch * states, batch * channels * states);
        let mut y = vec![0.0; wide];
        let mut last = vec![0.0; state];
        let [mut ddt, mut dx] = [vec![0.0; wide], vec![0.0; wide]];
        let [mut db, mut dc] = [vec![0.0; rows], vec![0.0; rows]];
        let (mut da, mut dh0) = (vec![0.0; channels * states], vec![0.0; state]);
        let of = |list: &[f32], at: usize| f64::from(list[at]);
        let mut trail = vec![0.0; steps + 1];
        for i in 0..batch {
            for d in 0..channels {
                for n in 0..states {
                    let a = of(&self.a, d * states + n);
                    let lane = (i * channels + d) * states + n;
                    let places = |step: usize| {
                        let t = if reverse { steps - 1 - step } else { step };
                        ((t * batch + i) * channels + d, (t * batch + i) * states + n)
                    };
                    trail[0] = self.h0.as_ref().map_or(0.0, |h0| of(h0, lane));
                    for step in 0..steps {
                        let (at, row) = places(step);
                        let dt = of(&self.dt, at);
                        trail[step + 1] =
                            (dt * a).exp() * trail[step] + dt * of(&self.x, at) * of(&self.b, row);
                        y[at] += trail[step + 1] * of(&self.c, row);
                    }
                    last[lane] = trail[steps];
                    let mut g = of(&self.dh, lane);
                    for step in (0..steps).rev() {
                        let (at, row) = places(step);
                        let (dt, x, b) = (of(&self.dt, at), of(&self.x, at), of(&self.b, row));
                        g += of(&self.c, row) * of(&self.dy, at);
                        dc[row] += of(&self.dy, at) * trail[step + 1];
                        db[row] += g * dt * x;
                        dx[at] += g * dt * b;
                        let decay = (dt * a).exp();
                        ddt[at] += g * (x * b + a * decay * trail[step]);
                        da[d * states + n] += g * dt * decay * trail[step];
                        g *= decay;
                    }
                    dh0[lane] = g;
                }
            }
        }
        Results { y, h: last, grads: [ddt, dx, db, dc, da, dh0] }
    }
}

/// Asserts that `got` is `wanted` up to `tolerance` of the largest of `wanted`.
#[track_caller]
pub fn near(what: &str, got: &[f32], wanted: &[f64], tolerance: f64) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    let scale = wanted.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    for (i, (&g, &w)) in got.iter().zip(wanted).enumerate() {
        assert!((f64::from(g) - w).abs() <= tolerance * scale, "{what}[{i}]: {g} for {w}, largest {scale}");
    }
}
