//! Products of small matrices that lie in a core's cache, in registers' tiles.
//!
//! Rows come in multiples of [`ROWS`] and columns in multiples of [`COLUMNS`], filled up with zeros.

use pulp::{Simd, WithSimd};

/// What the number of rows of a product is a multiple of.
pub(super) const ROWS: usize = 8;
/// What the number of columns of a product is a multiple of: the widest vector's lanes.
pub(super) const COLUMNS: usize = 16;

/// A left factor, read where it lies: the matrix with this data, rows `stride` apart, or its transpose.
#[derive(Clone, Copy)]
pub(super) enum Left<'a> {
    Rows { data: &'a [f32], stride: usize },
    Transposed { data: &'a [f32], stride: usize },
}

/// Sizes of a product: (`rows`, `inner`) times (`inner`, `columns`).
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) rows: usize,
    pub(super) inner: usize,
    pub(super) columns: usize,
}

/// `c` = `a` `b`; `b` and `c` are row-major without gaps.
pub(super) fn product<S: Simd>(simd: S, extent: Extent, a: Left<'_>, b: &[f32], c: &mut [f32]) {
    call::<S, false>(simd, extent, a, b, c);
}

/// `c` += `a` `b`.
pub(super) fn add_product<S: Simd>(simd: S, extent: Extent, a: Left<'_>, b: &[f32], c: &mut [f32]) {
    call::<S, true>(simd, extent, a, b, c);
}

fn call<S: Simd, const ADD: bool>(simd: S, extent: Extent, a: Left<'_>, b: &[f32], c: &mut [f32]) {
    match a {
        Left::Rows { data, stride } => {
            simd.vectorize(Product::<ADD, false> { extent, a: data, stride, b, c })
        }
        Left::Transposed { data, stride } => {
            simd.vectorize(Product::<ADD, true> { extent, a: data, stride, b, c })
        }
    }
}

/// One function for each kind, not to be repeated wherever it is called.
struct Product<'a, const ADD: bool, const TRANSPOSED: bool> {
    extent: Extent,
    a: &'a [f32],
    stride: usize,
    b: &'a [f32],
    c: &'a mut [f32],
}

impl<const ADD: bool, const TRANSPOSED: bool> WithSimd for Product<'_, ADD, TRANSPOSED> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let (pair, columns) = (2 * S::F32_LANES, self.extent.columns);
        let mut column = 0;
        while column + pair <= columns {
            self.panel::<S, 2>(simd, column);
            column += pair;
        }
        while column < columns {
            self.panel::<S, 1>(simd, column);
            column += S::F32_LANES;
        }
    }
}

impl<const ADD: bool, const TRANSPOSED: bool> Product<'_, ADD, TRANSPOSED> {
    /// `N` vectors of columns.
    #[inline(always)]
    fn panel<S: Simd, const N: usize>(&mut self, simd: S, column: usize) {
        // Eight rows of two vectors need 19 registers.
        if S::REGISTER_COUNT >= 32 {
            for row in (0..self.extent.rows).step_by(ROWS) {
                self.tile::<S, ROWS, N>(simd, row, column);
            }
        } else {
            for row in (0..self.extent.rows).step_by(ROWS / 2) {
                self.tile::<S, { ROWS / 2 }, N>(simd, row, column);
            }
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const M: usize, const N: usize>(&mut self, simd: S, row: usize, column: usize) {
        let Extent { inner, columns, .. } = self.extent;
        let mut sums = [[simd.splat_f32s(0.0); N]; M];
        for inner in 0..inner {
            let (b, _) = S::as_simd_f32s(&self.b[inner * columns + column..][..N * S::F32_LANES]);
            let a: [f32; M] = self.left(row, inner);
            for m in 0..M {
                let a = simd.splat_f32s(a[m]);
                for n in 0..N {
                    sums[m][n] = simd.mul_add_e_f32s(a, b[n], sums[m][n]);
                }
            }
        }
        for (m, sums) in sums.iter().enumerate() {
            let (c, _) = S::as_mut_simd_f32s(&mut self.c[(row + m) * columns + column..][..N * S::F32_LANES]);
            for n in 0..N {
                c[n] = if ADD { simd.add_f32s(c[n], sums[n]) } else { sums[n] };
            }
        }
    }

    /// Column `inner` of the left factor's rows from `row` on.
    #[inline(always)]
    fn left<const M: usize>(&self, row: usize, inner: usize) -> [f32; M] {
        if TRANSPOSED {
            let data = &self.a[inner * self.stride + row..][..M];
            std::array::from_fn(|m| data[m])
        } else {
            let data = &self.a[row * self.stride + inner..][..(M - 1) * self.stride + 1];
            std::array::from_fn(|m| data[m * self.stride])
        }
    }
}
