// Division of integers that no values end: a processor may trap at a divisor of 0, and at the smallest integer by -1.
#include <cstdint>
#include <limits>

#include "at_hand.h"
#include "bridge.h"
#include "into.h"
#include "mlx/c/private/mlx.h"
#include "mlx/mlx.h"

namespace {

namespace mx = mlx::core;

bool without_traps(mx::Dtype dtype, const mx::array& divisor, mx::Stream stream) {
  return mx::issubdtype(dtype, mx::inexact) ||
      ortmlx::known_within(divisor, 1, std::numeric_limits<int64_t>::max(), stream);
}

// Where `divisor` is 0 or -1.
mx::array traps(const mx::array& divisor, mx::Stream stream) {
  auto dtype = divisor.dtype();
  auto zero = mx::equal(divisor, mx::array(0, dtype), stream);
  if (!mx::issubdtype(dtype, mx::signedinteger)) {
    return zero;
  }
  return mx::logical_or(zero, mx::equal(divisor, mx::array(-1, dtype), stream), stream);
}

mx::array quotient(const mx::array& a, const mx::array& b, mx::Stream stream) {
  auto dtype = mx::promote_types(a.dtype(), b.dtype());
  if (without_traps(dtype, b, stream)) {
    return mx::floor_divide(a, b, stream);
  }
  auto divisor = mx::astype(b, dtype, stream);
  auto special = traps(divisor, stream);
  auto one = mx::array(1, dtype);
  auto q = mx::floor_divide(
      mx::astype(a, dtype, stream), mx::where(special, one, divisor, stream), stream);
  // By 0 that is 0, by -1 the negative.
  return mx::multiply(q, mx::where(special, divisor, one, stream), stream);
}

mx::array modulus(const mx::array& a, const mx::array& b, mx::Stream stream) {
  auto dtype = mx::promote_types(a.dtype(), b.dtype());
  if (without_traps(dtype, b, stream)) {
    return mx::remainder(a, b, stream);
  }
  auto divisor = mx::astype(b, dtype, stream);
  auto safe = mx::where(traps(divisor, stream), mx::array(1, dtype), divisor, stream);
  return mx::remainder(mx::astype(a, dtype, stream), safe, stream);
}

} // namespace

extern "C" int ortmlx_floor_divide(
    mlx_array* res,
    const mlx_array a,
    const mlx_array b,
    const mlx_stream s) {
  return ortmlx::into(
      res, [&] { return quotient(mlx_array_get_(a), mlx_array_get_(b), mlx_stream_get_(s)); });
}

extern "C" int ortmlx_remainder(
    mlx_array* res,
    const mlx_array a,
    const mlx_array b,
    const mlx_stream s) {
  return ortmlx::into(
      res, [&] { return modulus(mlx_array_get_(a), mlx_array_get_(b), mlx_stream_get_(s)); });
}
