// Memory of MLX's allocator that others hold tensors in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "mlx/mlx.h"

namespace ortmlx {

// Where in a buffer of MLX's something lies.
struct Place {
  mlx::core::allocator::Buffer buffer;
  int64_t offset;
};

// The place of `bytes` from `data` on, if they lie in one block.
std::optional<Place> place_of(const void* data, size_t bytes);

// An evaluated array that lies at `place`, row-major, and does not own it.
mlx::core::array array_at(const Place& place, mlx::core::Shape shape, mlx::core::Dtype dtype);

} // namespace ortmlx
