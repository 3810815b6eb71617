//! Weights times windows, which are laid out as columns, a block at a time.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::{Problem, SMALL, pick};
use crate::simd::{Exp2, Work, dispatch};

/// Windows that a task takes.
const WINDOWS: usize = 256;
/// Elements of windows that are laid out at once.
const DEPTH: usize = 256;
/// From row to row of a block: not a power of two, because rows would then share few places of a cache.
const STRIDE: usize = WINDOWS + 16;
/// Rows of weights that are multiplied at once.
const ROWS: usize = 6;

pub(super) fn forward(problem: &Problem, x: &[f32], w: &[f32], bias: &[f32], y: &mut [f32]) {
    let (outputs, depth, windows) = (problem.outputs, problem.depth(), problem.windows());
    let blocks = problem.batch * problem.groups * windows.div_ceil(WINDOWS);
    let alone = problem.work() < SMALL;
    // Where there are fewer blocks of windows than threads, weights are shared out too.
    let parts = if alone { 1 } else { (2 * rayon::current_num_threads()).div_ceil(blocks) };
    let part = outputs.div_ceil(parts).next_multiple_of(ROWS);
    let mut tasks = Vec::new();
    for (at, y) in y.chunks_mut(outputs * windows).enumerate() {
        let group = at % problem.groups;
        let image = &x[at * problem.channels * problem.plane()..][..problem.channels * problem.plane()];
        for (number, y) in y.chunks_mut(part * windows).enumerate() {
            let first = group * outputs + number * part;
            let mut rows: Vec<_> = y.chunks_mut(windows).map(|row| row.chunks_mut(WINDOWS)).collect();
            let (w, bias) = (&w[first * depth..][..rows.len() * depth], &bias[first..][..rows.len()]);
            for first in (0..windows).step_by(WINDOWS) {
                let y = rows.iter_mut().filter_map(Iterator::next).collect();
                tasks.push(Task { problem, image, w, bias, first, y });
            }
        }
    }
    if alone {
        tasks.into_iter().for_each(dispatch);
    } else {
        tasks.into_par_iter().for_each(dispatch);
    }
}

/// Some output channels at some windows of one image.
struct Task<'a> {
    problem: &'a Problem,
    /// The group's channels.
    image: &'a [f32],
    w: &'a [f32],
    bias: &'a [f32],
    /// The first window.
    first: usize,
    /// A row for each output channel.
    y: Vec<&'a mut [f32]>,
}

impl Work for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, E: Exp2<S>>(mut self, simd: S, _: E) {
        for (y, bias) in self.y.iter_mut().zip(self.bias) {
            y.fill(*bias);
        }
        let depth = self.problem.depth();
        let width = self.y.first().map_or(0, |row| row.len());
        let mut block = vec![0.0; DEPTH.min(depth) * STRIDE];
        for from in (0..depth).step_by(DEPTH) {
            let count = DEPTH.min(depth - from);
            for (inner, row) in (from..from + count).zip(block.chunks_exact_mut(STRIDE)) {
                self.column(inner, &mut row[..width]);
            }
            let block = &block[..count * STRIDE];
            simd.vectorize(Product { w: self.w, depth, from, count, block, y: &mut self.y });
        }
    }
}

impl Task<'_> {
    /// What element `inner` of the windows meets.
    fn column(&self, inner: usize, mut to: &mut [f32]) {
        let Problem { rows, columns, .. } = *self.problem;
        let (i, j) = (inner / columns.kernel % rows.kernel, inner % columns.kernel);
        let plane = &self.image[inner / columns.kernel / rows.kernel * self.problem.plane()..];
        let (mut row, mut column) = (self.first / columns.output, self.first % columns.output);
        while !to.is_empty() {
            let (line, rest) = to.split_at_mut(to.len().min(columns.output - column));
            let at = (row * rows.stride + i * rows.dilation) as isize - rows.low;
            match usize::try_from(at).ok().filter(|&at| at < rows.size) {
                None => line.fill(0.0),
                Some(at) => {
                    let first = (column * columns.stride + j * columns.dilation) as isize - columns.low;
                    pick(&plane[at * columns.size..][..columns.size], first, columns.stride, line);
                }
            }
            (to, row, column) = (rest, row + 1, 0);
        }
    }
}

/// Adds weights times a block to `y`.
struct Product<'a, 'y> {
    w: &'a [f32],
    /// From row to row of the weights.
    depth: usize,
    /// The block's first row, and how many it has.
    from: usize,
    count: usize,
    block: &'a [f32],
    y: &'a mut [&'y mut [f32]],
}

impl WithSimd for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let width = self.y.first().map_or(0, |row| row.len());
        let mut column = 0;
        while column < width {
            // Six rows of four vectors need 29 registers, of two vectors 15.
            let most = if S::REGISTER_COUNT >= 32 { 4 } else { 2 };
            let vectors = (width - column).div_ceil(S::F32_LANES).min(most);
            match vectors {
                1 => self.panel::<S, 1>(simd, column),
                2 => self.panel::<S, 2>(simd, column),
                3 => self.panel::<S, 3>(simd, column),
                _ => self.panel::<S, 4>(simd, column),
            }
            column += vectors * S::F32_LANES;
        }
    }
}

impl Product<'_, '_> {
    /// `N` vectors of columns.
    #[inline(always)]
    fn panel<S: Simd, const N: usize>(&mut self, simd: S, column: usize) {
        for row in (0..self.y.len()).step_by(ROWS) {
            self.tile::<S, N>(simd, row, column);
        }
    }

    /// Some rows of them. What is not there is computed as the last row is, and left out.
    #[inline(always)]
    fn tile<S: Simd, const N: usize>(&mut self, simd: S, row: usize, column: usize) {
        let mut sums = [[simd.splat_f32s(0.0); N]; ROWS];
        let last = self.y.len() - 1;
        let [a, b, c, d, e, f] = std::array::from_fn(|m| {
            self.w[(row + m).min(last) * self.depth + self.from..][..self.count].iter()
        });
        // Zipped, they are checked once for all.
        let w = a.zip(b).zip(c).zip(d).zip(e).zip(f);
        for (x, (((((a, b), c), d), e), f)) in self.block.chunks_exact(STRIDE).zip(w) {
            let (x, _) = S::as_simd_f32s(&x[column..][..N * S::F32_LANES]);
            for (sums, w) in sums.iter_mut().zip([a, b, c, d, e, f]) {
                let w = simd.splat_f32s(*w);
                for n in 0..N {
                    sums[n] = simd.mul_add_e_f32s(w, x[n], sums[n]);
                }
            }
        }
        for (sums, y) in sums.iter().zip(&mut self.y[row..]) {
            for (sum, y) in sums.iter().zip(y[column..].chunks_mut(S::F32_LANES)) {
                simd.partial_store_f32s(y, simd.add_f32s(simd.partial_load_f32s(y), *sum));
            }
        }
    }
}
