// Indices that stay inside the array that they point into, whatever their values: MLX checks none.
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "at_hand.h"
#include "bridge.h"
#include "into.h"
#include "mlx/c/private/mlx.h"
#include "mlx/mlx.h"

namespace {

namespace mx = mlx::core;

// As int32, uint32, int64 or uint64: smaller types may not hold the bounds.
mx::array widened(const mx::array& indices, mx::Stream stream) {
  if (!mx::issubdtype(indices.dtype(), mx::integer)) {
    throw std::invalid_argument("indices must be integers");
  }
  return mx::size_of(indices.dtype()) < 4 ? mx::astype(indices, mx::int32, stream) : indices;
}

// Negative ones count from the end; then at least 0 and at most `room`.
mx::array
clamped(mx::array indices, const mx::array& count, const mx::array& room, mx::Stream stream) {
  if (mx::issubdtype(indices.dtype(), mx::signedinteger)) {
    auto zero = mx::array(0, indices.dtype());
    indices =
        mx::where(mx::less(indices, zero, stream), mx::add(indices, count, stream), indices, stream);
    indices = mx::maximum(indices, zero, stream);
  }
  return mx::minimum(indices, room, stream);
}

int64_t product(const mx::array& of, const std::vector<int>& axes) {
  int64_t count = 1;
  for (int axis : axes) {
    count *= of.shape(axis);
  }
  return count;
}

mx::array bounded(
    const mx::array& given,
    const mx::array& of,
    const std::vector<int>& axes,
    int span,
    mx::Stream stream) {
  auto indices = widened(given, stream);
  if (indices.size() == 0) {
    return indices;
  }
  int64_t count = product(of, axes);
  int64_t room = count - span;
  if (room < 0) {
    throw std::invalid_argument("an index into an axis without elements");
  }
  if (count > std::numeric_limits<int32_t>::max() && mx::size_of(indices.dtype()) < 8) {
    throw std::invalid_argument("too many elements for indices of 32 bits");
  }
  // A constant, or the size at the time of the call in a function compiled without shapes.
  auto dtype = indices.dtype();
  auto n = mx::number_of_elements(of, axes, false, dtype, stream);
  if (!n.has_primitive() && ortmlx::known_within(indices, 0, room, stream)) {
    return indices;
  }
  auto last = mx::subtract(n, mx::array(span, dtype), stream);
  return clamped(indices, n, last, stream);
}

// Where dynamic slices of `sizes` begin: int64, one for each of `axes`.
mx::array bounded_starts(
    const mx::array& given,
    const mx::array& of,
    const std::vector<int>& axes,
    const std::vector<int>& sizes,
    mx::Stream stream) {
  widened(given, stream);
  std::vector<mx::array> counts, rooms;
  for (size_t i = 0; i < axes.size(); ++i) {
    counts.push_back(mx::number_of_elements(of, {axes[i]}, false, mx::int64, stream));
    rooms.push_back(mx::subtract(counts.back(), mx::array(int64_t{sizes[i]}, mx::int64), stream));
  }
  if (axes.empty()) {
    return given;
  }
  auto starts = mx::reshape(mx::astype(given, mx::int64, stream), {-1}, stream);
  return clamped(starts, mx::stack(counts, stream), mx::stack(rooms, stream), stream);
}

std::vector<int> axes_of(const mx::array& of, const int* axes, size_t count) {
  std::vector<int> all(axes, axes + count);
  for (int& axis : all) {
    if (axis < 0) {
      axis += static_cast<int>(of.ndim());
    }
    if (axis < 0 || axis >= static_cast<int>(of.ndim())) {
      throw std::invalid_argument("there is no such axis");
    }
  }
  return all;
}

} // namespace

extern "C" int ortmlx_bounded_indices(
    mlx_array* res,
    const mlx_array indices,
    const mlx_array of,
    const int* axes,
    size_t axes_num,
    int span,
    const mlx_stream s) {
  return ortmlx::into(res, [&] {
    const auto& array = mlx_array_get_(of);
    return bounded(
        mlx_array_get_(indices), array, axes_of(array, axes, axes_num), span, mlx_stream_get_(s));
  });
}

extern "C" int ortmlx_bounded_starts(
    mlx_array* res,
    const mlx_array start,
    const mlx_array of,
    const int* axes,
    const int* sizes,
    size_t axes_num,
    const mlx_stream s) {
  return ortmlx::into(res, [&] {
    const auto& array = mlx_array_get_(of);
    return bounded_starts(
        mlx_array_get_(start),
        array,
        axes_of(array, axes, axes_num),
        {sizes, sizes + axes_num},
        mlx_stream_get_(s));
  });
}
