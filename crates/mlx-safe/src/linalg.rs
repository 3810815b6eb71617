//! Linear algebra (`mlx.core.linalg`). Everything but [`norm`] (the nuclear one apart) and [`cross`] runs on the CPU only and is
//! an error on a GPU's stream: use a CPU's, see [`crate::Stream::scope`]. Matrices are the last two axes, float32 or float64; leading axes are
//! a batch. Of matrices with NaN the functions give NaN, an error, or (eigenvalues) whatever LAPACK makes of them.

use std::ffi::CStr;

use crate::error::argument;
use crate::ops::{functions, op, op_pair, op_vec};
use crate::{Array, Axes, Result};

/// MLX and LAPACK divide by sizes: a matrix without elements is refused here.
fn filled(op: &'static str, a: &Array) -> Result<()> {
    if a.size() == 0 || a.ndim() < 2 {
        return argument(op, format!("{a:?} holds no matrix"));
    }
    Ok(())
}

/// Declares functions of a matrix that wrap one mlx-c call each.
macro_rules! matrix_functions {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) => $raw:ident(a.raw() $(, $pass:expr)*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// If shapes do not fit or there are no elements.
        pub fn $name(a: &Array $(, $arg: $ty)*) -> Result<Array> {
            filled(stringify!($name), a)?;
            op!(stringify!($name), $raw(a.raw() $(, $pass)*))
        }
    )*};
}

functions! {
    /// The cross product of vectors of 2 or 3 elements along `axis`.
    cross(a: &Array, b: &Array, axis: i32) => mlx_linalg_cross(a.raw(), b.raw(), axis);
}

matrix_functions! {
    /// L with A = L L^T, or U with A = U^T U if `upper`: (..., N, N). MLX does not tell if `a` is not positive definite.
    cholesky(upper: bool) => mlx_linalg_cholesky(a.raw(), upper);
    /// The inverse of the matrix whose Cholesky factor is `a`: (..., N, N).
    cholesky_inv(upper: bool) => mlx_linalg_cholesky_inv(a.raw(), upper);
    /// Determinants of (..., N, N): (...).
    det() => mlx_linalg_det(a.raw());
    /// Eigenvalues of (..., N, N), complex64: (..., N), in no order.
    eigvals() => mlx_linalg_eigvals(a.raw());
    /// The inverse of (..., N, N); a singular matrix is an error when evaluated.
    inv() => mlx_linalg_inv(a.raw());
    /// The Moore-Penrose inverse of (..., M, N): (..., N, M).
    pinv() => mlx_linalg_pinv(a.raw());
    /// X with A X = B for (..., N, N) and (..., N, K) or (N).
    solve(b: &Array) => mlx_linalg_solve(a.raw(), b.raw());
}

/// A triangle of `a`, zero elsewhere: under `vmap` MLX forgets which one to read.
fn triangle(a: &Array, upper: bool) -> Result<Array> {
    if upper { a.triu(0) } else { a.tril(0) }
}

/// X with A X = B, reading one triangle of A only.
///
/// # Errors
/// If shapes do not fit or there are no elements.
pub fn solve_triangular(a: &Array, b: &Array, upper: bool) -> Result<Array> {
    filled("solve_triangular", a)?;
    let a = triangle(a, upper)?;
    op!("solve_triangular", mlx_linalg_solve_triangular(a.raw(), b.raw(), upper))
}

/// The inverse of a triangular matrix, reading one triangle only.
///
/// # Errors
/// If shapes do not fit or there are no elements.
pub fn tri_inv(a: &Array, upper: bool) -> Result<Array> {
    filled("tri_inv", a)?;
    let a = triangle(a, upper)?;
    op!("tri_inv", mlx_linalg_tri_inv(a.raw(), upper))
}

/// The triangle of a symmetric matrix that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triangle {
    /// The one below the diagonal.
    Lower,
    /// The one above the diagonal.
    Upper,
}

impl Triangle {
    fn name(self) -> &'static CStr {
        match self {
            Self::Lower => c"L",
            Self::Upper => c"U",
        }
    }
}

/// Eigenvalues (..., N) and eigenvectors, as columns of (..., N, N), of any square matrix; both complex64.
///
/// # Errors
/// If `a` is not square or has no elements.
pub fn eig(a: &Array) -> Result<(Array, Array)> {
    filled("eig", a)?;
    op_pair!("eig", mlx_linalg_eig(a.raw()))
}

/// Eigenvalues (..., N), ascending, and eigenvectors, as columns of (..., N, N), of a symmetric or Hermitian matrix.
///
/// # Errors
/// If `a` is not square or has no elements.
pub fn eigh(a: &Array, triangle: Triangle) -> Result<(Array, Array)> {
    filled("eigh", a)?;
    op_pair!("eigh", mlx_linalg_eigh(a.raw(), triangle.name().as_ptr()))
}

/// Eigenvalues (..., N), ascending, of a symmetric or Hermitian matrix.
///
/// # Errors
/// If `a` is not square or has no elements.
pub fn eigvalsh(a: &Array, triangle: Triangle) -> Result<Array> {
    filled("eigvalsh", a)?;
    op!("eigvalsh", mlx_linalg_eigvalsh(a.raw(), triangle.name().as_ptr()))
}

/// (P, L, U) of (..., M, N): row indices P (..., M) uint32, L (..., M, K), U (..., K, N) with K = min(M, N), such that
/// `L[P, :] U` is `a`.
///
/// # Errors
/// If `a` is no matrix or has no elements.
pub fn lu(a: &Array) -> Result<(Array, Array, Array)> {
    filled("lu", a)?;
    three("lu", op_vec!("lu", mlx_linalg_lu(a.raw()))?)
}

/// L and U in one matrix (..., M, N), and the pivots (..., min(M, N)), uint32, counted from 0.
///
/// # Errors
/// If `a` is no matrix or has no elements.
pub fn lu_factor(a: &Array) -> Result<(Array, Array)> {
    filled("lu_factor", a)?;
    let (both, pivots) = op_pair!("lu_factor", mlx_linalg_lu_factor(a.raw()))?;
    // MLX believes its array to be as many elements long as it has bytes, and would read that far. This copy goes by the shape.
    Ok((both.contiguous()?, pivots))
}

/// Q (..., M, K) and R (..., K, N) with K = min(M, N).
///
/// # Errors
/// If `a` is no matrix or has no elements.
pub fn qr(a: &Array) -> Result<(Array, Array)> {
    filled("qr", a)?;
    op_pair!("qr", mlx_linalg_qr(a.raw()))
}

/// Sign and natural logarithm of the determinant's absolute value, of (..., N, N): (...) each.
///
/// # Errors
/// If `a` is not square or has no elements.
pub fn slogdet(a: &Array) -> Result<(Array, Array)> {
    filled("slogdet", a)?;
    op_pair!("slogdet", mlx_linalg_slogdet(a.raw()))
}

/// (U, S, V^T) of (..., M, N): (..., M, M), (..., min(M, N)) descending, (..., N, N).
///
/// # Errors
/// If `a` is no matrix or has no elements.
pub fn svd(a: &Array) -> Result<(Array, Array, Array)> {
    filled("svd", a)?;
    three("svd", op_vec!("svd", mlx_linalg_svd(a.raw(), true))?)
}

/// The singular values of (..., M, N), descending: (..., min(M, N)).
///
/// # Errors
/// If `a` is no matrix or has no elements.
pub fn singular_values(a: &Array) -> Result<Array> {
    filled("singular_values", a)?;
    let values = op_vec!("svd", mlx_linalg_svd(a.raw(), false))?;
    values.into_iter().next().map_or_else(|| argument("svd", "MLX gave no array"), Ok)
}

fn three(op: &'static str, arrays: Vec<Array>) -> Result<(Array, Array, Array)> {
    match <[Array; 3]>::try_from(arrays) {
        Ok([first, second, third]) => Ok((first, second, third)),
        Err(arrays) => argument(op, format!("MLX gave {} arrays, not 3", arrays.len())),
    }
}

/// Which norm [`norm`] computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// The root of the sum of squares, over any number of axes.
    L2,
    /// Of vectors (one axis) the p-norm, of matrices (two axes) the induced one; infinities are allowed.
    P(f64),
    /// Frobenius' norm of matrices.
    Frobenius,
    /// The sum of singular values of matrices; on the CPU only.
    Nuclear,
}

/// The norm over `axes`, which `keepdims` leaves as size 1.
///
/// # Errors
/// If the norm does not exist for that number of axes.
pub fn norm<'a>(a: &Array, kind: Norm, axes: impl Into<Axes<'a>>, keepdims: bool) -> Result<Array> {
    let axes = axes.into();
    let (axis, n) = match &axes {
        Axes::All => (std::ptr::null(), 0),
        Axes::One(axis) => (std::ptr::from_ref(axis), 1),
        Axes::These(axes) => (axes.as_ptr(), axes.len()),
    };
    match kind {
        Norm::L2 => op!("norm", mlx_linalg_norm_l2(a.raw(), axis, n, keepdims)),
        Norm::P(p) => op!("norm", mlx_linalg_norm(a.raw(), p, axis, n, keepdims)),
        Norm::Frobenius => op!("norm", mlx_linalg_norm_matrix(a.raw(), c"fro".as_ptr(), axis, n, keepdims)),
        Norm::Nuclear => op!("norm", mlx_linalg_norm_matrix(a.raw(), c"nuc".as_ptr(), axis, n, keepdims)),
    }
}
