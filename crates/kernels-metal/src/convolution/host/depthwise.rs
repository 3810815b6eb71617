//! Groups of one input channel: products of shifted rows.
//!
//! An image is first copied between its zeros, its columns sorted by their place within a stride. So what an element of the
//! window meets in a row of windows lies side by side, whatever the stride.

use pulp::Simd;
use rayon::prelude::*;

use super::{Problem, SMALL, pick};
use crate::simd::{Exp2, Work, dispatch};

/// The widest vector's lanes.
const LANES: usize = 16;

pub(super) fn forward(problem: &Problem, x: &[f32], w: &[f32], bias: &[f32], y: &mut [f32]) {
    let channel = problem.outputs * problem.windows();
    let layout = Layout::new(problem);
    let task = |room: &mut Vec<f32>, (at, y): (usize, &mut [f32])| {
        let group = at % problem.groups;
        let outputs = problem.outputs;
        let x = &x[at * problem.plane()..][..problem.plane()];
        room.resize(layout.height * layout.row, 0.0);
        layout.fill(problem, x, room);
        let (w, bias) = (&w[group * outputs * problem.depth()..], &bias[group * outputs..]);
        for ((y, w), bias) in y.chunks_mut(problem.windows()).zip(w.chunks(problem.depth())).zip(bias) {
            dispatch(Plane { problem, layout, image: room, w, bias: *bias, y });
        }
    };
    let planes = y.chunks_mut(channel).enumerate();
    if problem.work() < SMALL {
        planes.fold(Vec::new(), |mut room, plane| {
            task(&mut room, plane);
            room
        });
    } else {
        y.par_chunks_mut(channel).enumerate().for_each_init(Vec::new, task);
    }
}

/// Where the copy of an image has what.
#[derive(Clone, Copy)]
struct Layout {
    /// Rows.
    height: usize,
    /// From one place within a stride to the next.
    phase: usize,
    /// From row to row.
    row: usize,
}

impl Layout {
    fn new(problem: &Problem) -> Self {
        let (rows, columns) = (problem.rows, problem.columns);
        let phase =
            columns.output.next_multiple_of(LANES) + (columns.kernel - 1) * columns.dilation / columns.stride;
        Self {
            height: (rows.output - 1) * rows.stride + (rows.kernel - 1) * rows.dilation + 1,
            phase,
            row: phase * columns.stride,
        }
    }

    fn fill(&self, problem: &Problem, x: &[f32], image: &mut [f32]) {
        let (rows, columns) = (problem.rows, problem.columns);
        for (number, row) in image.chunks_exact_mut(self.row).enumerate() {
            let from = usize::try_from(number as isize - rows.low).ok().filter(|&from| from < rows.size);
            match from.map(|from| &x[from * columns.size..][..columns.size]) {
                None => row.fill(0.0),
                Some(line) => {
                    for (place, phase) in row.chunks_exact_mut(self.phase).enumerate() {
                        pick(line, place as isize - columns.low, columns.stride, phase);
                    }
                }
            }
        }
    }
}

/// One output channel of one image.
struct Plane<'a> {
    problem: &'a Problem,
    layout: Layout,
    image: &'a [f32],
    w: &'a [f32],
    bias: f32,
    y: &'a mut [f32],
}

impl Work for Plane<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, E: Exp2<S>>(mut self, simd: S, _: E) {
        let (rows, columns) = (self.problem.rows.output, self.problem.columns.output);
        for row in 0..rows {
            let mut column = 0;
            while column + 4 * S::F32_LANES <= columns.next_multiple_of(S::F32_LANES) {
                self.tile::<S, 4>(simd, row, column);
                column += 4 * S::F32_LANES;
            }
            while column < columns {
                self.tile::<S, 1>(simd, row, column);
                column += S::F32_LANES;
            }
        }
    }
}

impl Plane<'_> {
    /// `N` vectors of a row of windows.
    #[inline(always)]
    fn tile<S: Simd, const N: usize>(&mut self, simd: S, row: usize, column: usize) {
        let Problem { rows, columns, .. } = *self.problem;
        let mut sums = [simd.splat_f32s(self.bias); N];
        for i in 0..rows.kernel {
            let line =
                &self.image[(row * rows.stride + i * rows.dilation) * self.layout.row..][..self.layout.row];
            for j in 0..columns.kernel {
                let step = j * columns.dilation;
                let at = step % columns.stride * self.layout.phase + step / columns.stride + column;
                let w = simd.splat_f32s(self.w[i * columns.kernel + j]);
                let (x, _) = S::as_simd_f32s(&line[at..][..N * S::F32_LANES]);
                for n in 0..N {
                    sums[n] = simd.mul_add_e_f32s(w, x[n], sums[n]);
                }
            }
        }
        let y = &mut self.y[row * columns.output..][..columns.output];
        for (sum, y) in sums.into_iter().zip(y[column..].chunks_mut(S::F32_LANES)) {
            simd.partial_store_f32s(y, sum);
        }
    }
}
