//! Products of small matrices that lie in a core's cache, in registers' tiles.
//!
//! Rows come in multiples of [`ROWS`] and columns in multiples of [`COLUMNS`], filled up with zeros.

use pulp::Simd;

/// What the number of rows of a product is a multiple of.
pub(super) const ROWS: usize = 8;
/// What the number of columns of a product is a multiple of: the widest vector's lanes.
pub(super) const COLUMNS: usize = 16;

/// A left factor. Both forms are read where they lie.
pub(super) trait Left: Copy {
    /// Column `inner` of the rows from `row` on.
    fn column<const M: usize>(self, row: usize, inner: usize) -> [f32; M];
}

/// Row-major, rows `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) data: &'a [f32],
    pub(super) stride: usize,
}

/// The transpose of a row-major matrix with rows `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Transposed<'a> {
    pub(super) data: &'a [f32],
    pub(super) stride: usize,
}

impl Left for Rows<'_> {
    #[inline(always)]
    fn column<const M: usize>(self, row: usize, inner: usize) -> [f32; M] {
        let data = &self.data[row * self.stride + inner..][..(M - 1) * self.stride + 1];
        std::array::from_fn(|m| data[m * self.stride])
    }
}

impl Left for Transposed<'_> {
    #[inline(always)]
    fn column<const M: usize>(self, row: usize, inner: usize) -> [f32; M] {
        let data = &self.data[inner * self.stride + row..][..M];
        std::array::from_fn(|m| data[m])
    }
}

/// Sizes of a product: (`rows`, `inner`) times (`inner`, `columns`).
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) rows: usize,
    pub(super) inner: usize,
    pub(super) columns: usize,
}

/// `c` = `a` `b`, or `c` += `a` `b` if `ADD`; `b` and `c` are row-major without gaps.
#[inline(always)]
pub(super) fn product<S: Simd, const ADD: bool>(
    simd: S,
    extent: Extent,
    a: impl Left,
    b: &[f32],
    c: &mut [f32],
) {
    let pair = 2 * S::F32_LANES;
    let mut column = 0;
    while column + pair <= extent.columns {
        panel::<S, 2, ADD>(simd, extent, a, &b[column..], &mut c[column..]);
        column += pair;
    }
    while column < extent.columns {
        panel::<S, 1, ADD>(simd, extent, a, &b[column..], &mut c[column..]);
        column += S::F32_LANES;
    }
}

#[inline(always)]
fn panel<S: Simd, const N: usize, const ADD: bool>(
    simd: S,
    extent: Extent,
    a: impl Left,
    b: &[f32],
    c: &mut [f32],
) {
    for row in (0..extent.rows).step_by(ROWS) {
        let c = &mut c[row * extent.columns..];
        // Eight rows of two vectors need 19 registers.
        if S::REGISTER_COUNT >= 32 {
            tile::<S, ROWS, N, ADD>(simd, extent, a, row, b, c);
        } else {
            tile::<S, { ROWS / 2 }, N, ADD>(simd, extent, a, row, b, c);
            let half = &mut c[ROWS / 2 * extent.columns..];
            tile::<S, { ROWS / 2 }, N, ADD>(simd, extent, a, row + ROWS / 2, b, half);
        }
    }
}

#[inline(always)]
fn tile<S: Simd, const M: usize, const N: usize, const ADD: bool>(
    simd: S,
    extent: Extent,
    a: impl Left,
    row: usize,
    b: &[f32],
    c: &mut [f32],
) {
    let mut sums = [[simd.splat_f32s(0.0); N]; M];
    for inner in 0..extent.inner {
        let (b, _) = S::as_simd_f32s(&b[inner * extent.columns..][..N * S::F32_LANES]);
        let a: [f32; M] = a.column(row, inner);
        for m in 0..M {
            let a = simd.splat_f32s(a[m]);
            for n in 0..N {
                sums[m][n] = simd.mul_add_e_f32s(a, b[n], sums[m][n]);
            }
        }
    }
    for (m, sums) in sums.iter().enumerate() {
        let (c, _) = S::as_mut_simd_f32s(&mut c[m * extent.columns..][..N * S::F32_LANES]);
        for n in 0..N {
            c[n] = if ADD { simd.add_f32s(c[n], sums[n]) } else { sums[n] };
        }
    }
}
