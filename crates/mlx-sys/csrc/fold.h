// Computes beforehand what a recorded graph has in common in every replay.
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

// Evaluates what `outputs` need and no placeholder changes, as long as the results take little memory.
void fold_constants(const std::vector<mlx::core::array>& outputs);

} // namespace ortmlx
