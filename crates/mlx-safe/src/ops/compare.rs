//! Comparisons with a tolerance, and of whole arrays.

use super::methods;
use crate::Array;

methods! {
    /// Where |x - y| <= `atol` + `rtol` |y|; NaN equals NaN if `equal_nan`.
    isclose(other: &Array, rtol: f64, atol: f64, equal_nan: bool) => mlx_isclose(other.raw(), rtol, atol, equal_nan);
    /// Whether [`Array::isclose`] holds everywhere: a bool of shape [].
    allclose(other: &Array, rtol: f64, atol: f64, equal_nan: bool) => mlx_allclose(other.raw(), rtol, atol, equal_nan);
    /// Whether shapes and all elements are equal: a bool of shape []. NaN equals NaN if `equal_nan`.
    array_equal(other: &Array, equal_nan: bool) => mlx_array_equal(other.raw(), equal_nan);
}
