//! Element-wise operations of two arrays, with broadcasting and MLX's type promotion. Shapes that do not broadcast are
//! errors.

use super::{methods, op_vec};
use crate::error::argument;
use crate::{Array, Result};

methods! {
    /// x + y
    add(other: &Array) => mlx_add(other.raw());
    /// x - y
    subtract(other: &Array) => mlx_subtract(other.raw());
    /// x * y
    multiply(other: &Array) => mlx_multiply(other.raw());
    /// x / y, in floating point.
    divide(other: &Array) => mlx_divide(other.raw());
    /// floor(x / y). MLX truncates integers towards zero, as C does; by 0 they give 0, as in NumPy, and the smallest by -1 wraps.
    floor_divide(other: &Array) => ortmlx_floor_divide(other.raw());
    /// x - y * floor(x / y): has the divisor's sign. Integers by 0 give 0.
    remainder(other: &Array) => ortmlx_remainder(other.raw());
    /// x^y
    power(other: &Array) => mlx_power(other.raw());
    /// The larger; NaN if either is.
    maximum(other: &Array) => mlx_maximum(other.raw());
    /// The smaller; NaN if either is.
    minimum(other: &Array) => mlx_minimum(other.raw());
    /// arctan(x / y) in the right quadrant.
    arctan2(other: &Array) => mlx_arctan2(other.raw());
    /// ln(e^x + e^y)
    logaddexp(other: &Array) => mlx_logaddexp(other.raw());
    /// x == y
    equal(other: &Array) => mlx_equal(other.raw());
    /// x != y
    not_equal(other: &Array) => mlx_not_equal(other.raw());
    /// x > y
    greater(other: &Array) => mlx_greater(other.raw());
    /// x >= y
    greater_equal(other: &Array) => mlx_greater_equal(other.raw());
    /// x < y
    less(other: &Array) => mlx_less(other.raw());
    /// x <= y
    less_equal(other: &Array) => mlx_less_equal(other.raw());
    /// x and y
    logical_and(other: &Array) => mlx_logical_and(other.raw());
    /// x or y
    logical_or(other: &Array) => mlx_logical_or(other.raw());
    /// x & y
    bitwise_and(other: &Array) => mlx_bitwise_and(other.raw());
    /// x | y
    bitwise_or(other: &Array) => mlx_bitwise_or(other.raw());
    /// x ^ y
    bitwise_xor(other: &Array) => mlx_bitwise_xor(other.raw());
    /// x << y
    left_shift(other: &Array) => mlx_left_shift(other.raw());
    /// x >> y
    right_shift(other: &Array) => mlx_right_shift(other.raw());
    /// x or y, not both
    logical_xor(other: &Array) => mlx_logical_xor(other.raw());
    /// At least `low` and at most `high`; `None` leaves that side open, and both open is an error.
    clip(low: Option<&Array>, high: Option<&Array>) => mlx_clip(Array::raw_or_null(low), Array::raw_or_null(high));
}

impl Array {
    /// Quotient and remainder: [`Array::floor_divide`] and [`Array::remainder`] in one.
    ///
    /// # Errors
    /// If the shapes do not broadcast.
    pub fn divmod(&self, other: &Array) -> Result<(Array, Array)> {
        // MLX's own would trap at integers by 0.
        if !self.dtype().is_float() && !other.dtype().is_float() {
            return Ok((self.floor_divide(other)?, self.remainder(other)?));
        }
        let mut parts = op_vec!("divmod", mlx_divmod(self.raw(), other.raw()))?.into_iter();
        match (parts.next(), parts.next()) {
            (Some(quotient), Some(remainder)) => Ok((quotient, remainder)),
            _ => argument("divmod", "MLX gave fewer than two arrays"),
        }
    }
}
