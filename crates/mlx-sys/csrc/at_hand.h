// Integers whose values are known while the graph is built, so that it needs no guard against them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mlx/mlx.h"

namespace ortmlx {

// Up to so many are looked at.
constexpr size_t AT_HAND = 256;

template <typename T>
bool all_within(const mlx::core::array& values, int64_t low, int64_t high) {
  const T* first = values.data<T>();
  return std::all_of(first, first + values.size(), [=](T i) {
    return static_cast<int64_t>(i) >= low && static_cast<int64_t>(i) <= high;
  });
}

// Whether `values` are there and all from `low` to `high`.
inline bool known_within(
    const mlx::core::array& values,
    int64_t low,
    int64_t high,
    mlx::core::Stream stream) {
  bool at_hand = stream.device == mlx::core::Device::cpu && !values.is_tracer() &&
      values.status() == mlx::core::array::Status::available && values.size() <= AT_HAND &&
      values.flags().row_contiguous;
  if (!at_hand) {
    return false;
  }
  switch (values.dtype()) {
    case mlx::core::int32:
      return all_within<int32_t>(values, low, high);
    case mlx::core::uint32:
      return all_within<uint32_t>(values, low, high);
    case mlx::core::int64:
      return all_within<int64_t>(values, low, high);
    default:
      return false;
  }
}

} // namespace ortmlx
