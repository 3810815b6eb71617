// The operations of a graph that is being recorded.
#pragma once

#include <vector>

#include "mlx/mlx.h"

namespace ortmlx {

// Whether an array stands for an input of a graph that is being recorded.
inline bool is_placeholder(const mlx::core::array& a) {
  return a.status() == mlx::core::array::Status::unscheduled && !a.has_primitive();
}

// Whether an array waits for an evaluation.
inline bool is_computed(const mlx::core::array& a) {
  return a.status() == mlx::core::array::Status::unscheduled && a.has_primitive();
}

// One output of each operation that `outputs` wait for, after those of the operations that it is computed from.
std::vector<mlx::core::array> operations_of(const std::vector<mlx::core::array>& outputs);

} // namespace ortmlx
