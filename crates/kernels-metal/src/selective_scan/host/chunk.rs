//! A chunk of steps of one sequence's block of channels, forward and back.

use pulp::Simd;
use pulp::bytemuck::Pod;

use super::Inputs;
use super::rows::{Rows, STEPS};
use crate::sample::Sample;
use crate::simd::{Exp2, take};

/// The most states that are in registers at a time.
const TILE: usize = 2;

/// Vectors over channels: step s of vector v at v STEPS + s.
pub(super) struct Chunk<'a, V> {
    dt: &'a mut [V],
    x: &'a mut [V],
    /// dt x.
    u: &'a mut [V],
    dy: &'a mut [V],
    /// A row on its way in.
    line: &'a mut [V],
    /// Of a tile: the decay of every step and the state before it for one vector, the sums of `by_b` and `by_c` by lane.
    decays: &'a mut [V],
    before: &'a mut [V],
    lanes_b: &'a mut [V],
    lanes_c: &'a mut [V],
    b: Vec<f32>,
    c: Vec<f32>,
    count: usize,
    states: usize,
    /// Derivatives of the chunk.
    pub by_dt: &'a mut [V],
    pub by_x: &'a mut [V],
    /// Sums over the block's channels (steps, N).
    pub by_b: Vec<f32>,
    pub by_c: Vec<f32>,
}

impl<'a, V: Pod> Chunk<'a, V> {
    /// How many vectors a chunk takes.
    pub fn room(vectors: usize) -> usize {
        (6 * vectors + 4 * TILE) * STEPS + vectors
    }

    /// Vectors from `room`, whose values are zero.
    pub fn new(rows: &Rows, vectors: usize, room: &mut &'a mut [V]) -> Self {
        let states = rows.sizes.states;
        let narrow = || vec![0.0; states * STEPS];
        let mut wide = || take(room, vectors * STEPS);
        let (dt, x, u, dy, by_dt, by_x) = (wide(), wide(), wide(), wide(), wide(), wide());
        let mut tile = || take(room, TILE * STEPS);
        let (decays, before, lanes_b, lanes_c) = (tile(), tile(), tile(), tile());
        let line = take(room, vectors);
        let (b, c, by_b, by_c) = (narrow(), narrow(), narrow(), narrow());
        Self {
            dt,
            x,
            u,
            dy,
            line,
            decays,
            before,
            lanes_b,
            lanes_c,
            b,
            c,
            count: 0,
            states,
            by_dt,
            by_x,
            by_b,
            by_c,
        }
    }

    /// What going forward needs of `count` steps from `from` on.
    #[inline(always)]
    pub fn read<T: Sample, S: Simd<f32s = V>>(
        &mut self,
        simd: S,
        inputs: &Inputs<'_, T>,
        rows: &Rows,
        from: usize,
        count: usize,
    ) {
        self.count = count;
        rows.load(inputs.dt, from, count, self.dt, self.line);
        rows.load(inputs.x, from, count, self.x, self.line);
        for ((u, dt), x) in self.u.iter_mut().zip(&*self.dt).zip(&*self.x) {
            *u = simd.mul_f32s(*dt, *x);
        }
        rows.load_states(inputs.b, from, count, TILE, &mut self.b);
    }

    /// What going back needs besides.
    #[inline(always)]
    pub fn read_backward<T: Sample>(&mut self, c: &[T], dy: &[T], rows: &Rows, from: usize) {
        rows.load_states(c, from, self.count, TILE, &mut self.c);
        rows.load(dy, from, self.count, self.dy, self.line);
    }

    /// Takes the state through the chunk.
    #[inline(always)]
    pub fn forward<S: Simd<f32s = V>, E: Exp2<S>>(&self, simd: S, exp: E, a: &[V], state: &mut [V]) {
        let blocks = a.chunks_exact(self.states).zip(state.chunks_exact_mut(self.states));
        for (v, (a, state)) in blocks.enumerate() {
            let mut n = 0;
            while n < self.states {
                n += match self.states - n >= TILE {
                    true => self.forward_tile::<S, E, TILE>(simd, exp, v, n, a, state),
                    false => self.forward_tile::<S, E, 1>(simd, exp, v, n, a, state),
                };
            }
        }
    }

    #[inline(always)]
    fn forward_tile<S: Simd<f32s = V>, E: Exp2<S>, const K: usize>(
        &self,
        simd: S,
        exp: E,
        v: usize,
        n: usize,
        a: &[V],
        state: &mut [V],
    ) -> usize {
        let at = v * STEPS..v * STEPS + self.count;
        let a: [V; K] = std::array::from_fn(|k| a[n + k]);
        let mut h: [V; K] = std::array::from_fn(|k| state[n + k]);
        let (b, _) = self.b[n * STEPS..].as_chunks::<K>();
        for ((dt, u), b) in self.dt[at.clone()].iter().zip(&self.u[at]).zip(b) {
            for k in 0..K {
                let decay = exp.exp2(simd, simd.mul_f32s(*dt, a[k]));
                h[k] = simd.mul_add_f32s(decay, h[k], simd.mul_f32s(*u, simd.splat_f32s(b[k])));
            }
        }
        state[n..n + K].copy_from_slice(&h);
        K
    }

    /// Goes back over the chunk from the states at its start: `g` is the derivative by the state at its end and then by that
    /// at its start. `a` is that of base 2; `sums_a` grows by the derivative by the natural one.
    #[inline(always)]
    pub fn backward<S: Simd<f32s = V>, E: Exp2<S>>(
        &mut self,
        simd: S,
        exp: E,
        a: &[V],
        start: &[V],
        g: &mut [V],
        sums_a: &mut [V],
    ) {
        let zero = simd.splat_f32s(0.0);
        // At first the sums over states of g b, and of g h a times the decay.
        self.by_x.fill(zero);
        self.by_dt.fill(zero);
        let mut n = 0;
        while n < self.states {
            n += match self.states - n >= TILE {
                true => self.backward_tile::<S, E, TILE>(simd, exp, n, a, start, g, sums_a),
                false => self.backward_tile::<S, E, 1>(simd, exp, n, a, start, g, sums_a),
            };
        }
        let ln_2 = simd.splat_f32s(std::f32::consts::LN_2);
        let inputs = self.dt.iter().zip(&*self.x);
        for ((by_dt, by_x), (dt, x)) in self.by_dt.iter_mut().zip(&mut *self.by_x).zip(inputs) {
            *by_dt = simd.mul_add_f32s(*by_dt, ln_2, simd.mul_f32s(*x, *by_x));
            *by_x = simd.mul_f32s(*dt, *by_x);
        }
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // It is the inner loop.
    fn backward_tile<S: Simd<f32s = V>, E: Exp2<S>, const K: usize>(
        &mut self,
        simd: S,
        exp: E,
        n: usize,
        a: &[V],
        start: &[V],
        g: &mut [V],
        sums_a: &mut [V],
    ) -> usize {
        let zero = simd.splat_f32s(0.0);
        let count = self.count;
        let (b, _) = self.b[n * STEPS..].as_chunks::<K>();
        let (c, _) = self.c[n * STEPS..].as_chunks::<K>();
        let (b, c) = (&b[..count], &c[..count]);
        let (by_b, _) = self.lanes_b.as_chunks_mut::<K>();
        let (by_c, _) = self.lanes_c.as_chunks_mut::<K>();
        let (decays, _) = self.decays.as_chunks_mut::<K>();
        let (before, _) = self.before.as_chunks_mut::<K>();
        let (by_b, by_c) = (&mut by_b[..count], &mut by_c[..count]);
        let (decays, before) = (&mut decays[..count], &mut before[..count]);
        by_b.fill([zero; K]);
        by_c.fill([zero; K]);
        for v in 0..a.len() / self.states {
            let first = v * self.states + n;
            let at = v * STEPS..v * STEPS + count;
            let (dt, u, dy) = (&self.dt[at.clone()], &self.u[at.clone()], &self.dy[at.clone()]);
            let (by_u, by_exponent) = (&mut self.by_x[at.clone()], &mut self.by_dt[at]);
            let a: [V; K] = std::array::from_fn(|k| a[first + k]);
            let mut h: [V; K] = std::array::from_fn(|k| start[first + k]);
            for ((((dt, u), b), decay), before) in dt.iter().zip(u).zip(b).zip(&mut *decays).zip(&mut *before)
            {
                for k in 0..K {
                    before[k] = h[k];
                    decay[k] = exp.exp2(simd, simd.mul_f32s(*dt, a[k]));
                    h[k] = simd.mul_add_f32s(decay[k], h[k], simd.mul_f32s(*u, simd.splat_f32s(b[k])));
                }
            }
            let mut g_tile: [V; K] = std::array::from_fn(|k| g[first + k]);
            let mut sum_a = [zero; K];
            for t in (0..count).rev() {
                let (dt, u, dy) = (dt[t], u[t], dy[t]);
                let (mut sum_u, mut sum_exponent) = (by_u[t], by_exponent[t]);
                let (mut sum_b, mut sum_c) = (by_b[t], by_c[t]);
                for k in 0..K {
                    let g = simd.mul_add_f32s(dy, simd.splat_f32s(c[t][k]), g_tile[k]);
                    sum_c[k] = simd.mul_add_f32s(dy, h[k], sum_c[k]);
                    sum_b[k] = simd.mul_add_f32s(g, u, sum_b[k]);
                    sum_u = simd.mul_add_f32s(g, simd.splat_f32s(b[t][k]), sum_u);
                    g_tile[k] = simd.mul_f32s(g, decays[t][k]);
                    h[k] = before[t][k];
                    let through = simd.mul_f32s(g_tile[k], h[k]);
                    sum_exponent = simd.mul_add_f32s(through, a[k], sum_exponent);
                    sum_a[k] = simd.mul_add_f32s(through, dt, sum_a[k]);
                }
                (by_u[t], by_exponent[t]) = (sum_u, sum_exponent);
                (by_b[t], by_c[t]) = (sum_b, sum_c);
            }
            g[first..first + K].copy_from_slice(&g_tile);
            for (sum, part) in sums_a[first..first + K].iter_mut().zip(sum_a) {
                *sum = simd.add_f32s(*sum, part);
            }
        }
        for t in 0..count {
            for k in 0..K {
                self.by_b[t * self.states + n + k] = simd.reduce_sum_f32s(by_b[t][k]);
                self.by_c[t * self.states + n + k] = simd.reduce_sum_f32s(by_c[t][k]);
            }
        }
        K
    }
}
