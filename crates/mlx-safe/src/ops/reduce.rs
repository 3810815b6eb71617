//! Reductions over axes, and running reductions along one.

use mlx_sys as sys;

use super::methods;
use crate::Dtype;

fn own_dtype() -> sys::mlx_optional_dtype {
    sys::mlx_optional_dtype { value: Dtype::Float32.raw(), has_value: false }
}

methods! {
    /// Sum over `axes`.
    sum(axes: &[i32], keepdims: bool) => mlx_sum_axes(axes.as_ptr(), axes.len(), keepdims);
    /// Product over `axes`.
    prod(axes: &[i32], keepdims: bool) => mlx_prod_axes(axes.as_ptr(), axes.len(), keepdims);
    /// Mean over `axes`.
    mean(axes: &[i32], keepdims: bool) => mlx_mean_axes(axes.as_ptr(), axes.len(), keepdims);
    /// Variance over `axes` with divisor n - `ddof`.
    var(axes: &[i32], keepdims: bool, ddof: i32) => mlx_var_axes(axes.as_ptr(), axes.len(), keepdims, ddof);
    /// Largest over `axes`.
    max(axes: &[i32], keepdims: bool) => mlx_max_axes(axes.as_ptr(), axes.len(), keepdims);
    /// Smallest over `axes`.
    min(axes: &[i32], keepdims: bool) => mlx_min_axes(axes.as_ptr(), axes.len(), keepdims);
    /// True where all over `axes` are.
    all(axes: &[i32], keepdims: bool) => mlx_all_axes(axes.as_ptr(), axes.len(), keepdims);
    /// True where any over `axes` is.
    any(axes: &[i32], keepdims: bool) => mlx_any_axes(axes.as_ptr(), axes.len(), keepdims);
    /// ln of the sum of e^x over `axes`.
    logsumexp(axes: &[i32], keepdims: bool) => mlx_logsumexp_axes(axes.as_ptr(), axes.len(), keepdims);
    /// Index (uint32) of the first largest along `axis`.
    argmax(axis: i32, keepdims: bool) => mlx_argmax_axis(axis, keepdims);
    /// Index (uint32) of the first smallest along `axis`.
    argmin(axis: i32, keepdims: bool) => mlx_argmin_axis(axis, keepdims);
    /// Softmax over `axes`; `precise` accumulates 16-bit types in 32 bits.
    softmax(axes: &[i32], precise: bool) => mlx_softmax_axes(axes.as_ptr(), axes.len(), precise);
    /// Running sum along `axis`, from the end if `reverse`, counting the element itself if `inclusive`.
    cumsum(axis: i32, reverse: bool, inclusive: bool) => mlx_cumsum_axis(axis, reverse, inclusive, own_dtype());
    /// Running product along `axis`.
    cumprod(axis: i32, reverse: bool, inclusive: bool) => mlx_cumprod_axis(axis, reverse, inclusive, own_dtype());
    /// Running maximum along `axis`.
    cummax(axis: i32, reverse: bool, inclusive: bool) => mlx_cummax_axis(axis, reverse, inclusive);
    /// Running minimum along `axis`.
    cummin(axis: i32, reverse: bool, inclusive: bool) => mlx_cummin_axis(axis, reverse, inclusive);
}
