//! Reductions over axes, and running reductions along one. An axis that is not there is an error.

use super::{by_axes, by_axis, op};
use crate::handle::optional_dtype;
use crate::{Array, Dtype, Result};

by_axes! {
    /// Sum over `axes`.
    sum(keepdims: bool) => mlx_sum, mlx_sum_axis, mlx_sum_axes;
    /// Product over `axes`.
    prod(keepdims: bool) => mlx_prod, mlx_prod_axis, mlx_prod_axes;
    /// Mean over `axes`.
    mean(keepdims: bool) => mlx_mean, mlx_mean_axis, mlx_mean_axes;
    /// Median over `axes`, the mean of the two in the middle if their number is even.
    median(keepdims: bool) => mlx_median, mlx_median_axis, mlx_median_axes;
    /// Variance over `axes` with divisor n - `ddof`.
    var(keepdims: bool, ddof: i32) => mlx_var, mlx_var_axis, mlx_var_axes;
    /// Standard deviation over `axes`: the root of [`crate::Array::var`].
    std(keepdims: bool, ddof: i32) => mlx_std, mlx_std_axis, mlx_std_axes;
    /// Largest over `axes`.
    max(keepdims: bool) => mlx_max, mlx_max_axis, mlx_max_axes;
    /// Smallest over `axes`.
    min(keepdims: bool) => mlx_min, mlx_min_axis, mlx_min_axes;
    /// True where all over `axes` are.
    all(keepdims: bool) => mlx_all, mlx_all_axis, mlx_all_axes;
    /// True where any over `axes` is.
    any(keepdims: bool) => mlx_any, mlx_any_axis, mlx_any_axes;
    /// How many over `axes` are not zero.
    count_nonzero(keepdims: bool) => mlx_count_nonzero, mlx_count_nonzero_axis, mlx_count_nonzero_axes;
    /// ln of the sum of e^x over `axes`.
    logsumexp(keepdims: bool) => mlx_logsumexp, mlx_logsumexp_axis, mlx_logsumexp_axes;
    /// Softmax over `axes`; `precise` accumulates 16-bit types in 32 bits.
    softmax(precise: bool) => mlx_softmax, mlx_softmax_axis, mlx_softmax_axes;
}

by_axis! {
    /// Index (uint32) of the first largest along `axis`.
    argmax[axis](axis: impl Into<Option<i32>>, keepdims: bool)
        => mlx_argmax(keepdims), mlx_argmax_axis(axis, keepdims);
    /// Index (uint32) of the first smallest along `axis`.
    argmin[axis](axis: impl Into<Option<i32>>, keepdims: bool)
        => mlx_argmin(keepdims), mlx_argmin_axis(axis, keepdims);
}

/// Declares running reductions.
macro_rules! scans {
    ($($(#[$doc:meta])* $name:ident => $flat:ident, $along:ident($($dtype:expr)?);)*) => {
        impl Array {$(
            $(#[$doc])*
            pub fn $name(
                &self,
                axis: impl Into<Option<i32>>,
                reverse: bool,
                inclusive: bool,
            ) -> Result<Array> {
                const NAME: &str = stringify!($name);
                match axis.into() {
                    None => op!(NAME, $flat(self.raw(), reverse, inclusive, $($dtype)?)),
                    Some(axis) => op!(NAME, $along(self.raw(), axis, reverse, inclusive, $($dtype)?)),
                }
            }
        )*}
    };
}

scans! {
    /// Running sum along `axis`, from the end if `reverse`, counting the element itself if `inclusive`.
    cumsum => mlx_cumsum, mlx_cumsum_axis(optional_dtype(None));
    /// Running product along `axis`.
    cumprod => mlx_cumprod, mlx_cumprod_axis(optional_dtype(None));
    /// Running maximum along `axis`.
    cummax => mlx_cummax, mlx_cummax_axis();
    /// Running minimum along `axis`.
    cummin => mlx_cummin, mlx_cummin_axis();
    /// ln of the running sum of e^x along `axis`; of integers MLX computes it in integers, so truncated.
    logcumsumexp => mlx_logcumsumexp, mlx_logcumsumexp_axis();
}

impl Array {
    /// Differences of neighbours along `axis`, taken `n` times: `n` elements fewer, or none.
    ///
    /// # Errors
    /// If there is no such axis, or `n` is negative.
    pub fn diff(&self, n: i32, axis: i32) -> Result<Array> {
        // Once nothing is left, every further time is an operation for nothing.
        let n = n.min(self.dim(axis)?);
        op!("diff", mlx_diff(self.raw(), n, axis))
    }

    /// Sum of the diagonal of the matrices that the first two axes span.
    ///
    /// # Errors
    /// If there are fewer than two axes.
    pub fn trace(&self) -> Result<Array> {
        op!("trace", mlx_trace(self.raw()))?.zeros_if_from_empty(&[self])
    }

    /// Sum of diagonal `offset` of the matrices that `axis1` and `axis2` span, as `dtype`.
    ///
    /// # Errors
    /// If there are no such axes.
    pub fn trace_axes(&self, offset: i32, axis1: i32, axis2: i32, dtype: Dtype) -> Result<Array> {
        op!("trace_axes", mlx_trace_axes(self.raw(), offset, axis1, axis2, dtype.raw()))?
            .zeros_if_from_empty(&[self])
    }

    /// The product of the sizes of `axes`, or its reciprocal if `inverted`: a `dtype` of shape [].
    ///
    /// # Errors
    /// If there is no such axis.
    pub fn number_of_elements(&self, axes: &[i32], inverted: bool, dtype: Dtype) -> Result<Array> {
        // MLX divides by the rank before it looks.
        axes.iter().try_for_each(|&axis| self.dim(axis).map(drop))?;
        let (ptr, n) = (axes.as_ptr(), axes.len());
        op!("number_of_elements", mlx_number_of_elements(self.raw(), ptr, n, inverted, dtype.raw()))
    }
}
