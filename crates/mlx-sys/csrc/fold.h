// Computes beforehand what a recorded graph has in common in every replay.
#pragma once

#include <vector>

#include "mlx/mlx.h"

namespace ortmlx {

// Evaluates what `outputs` need and no placeholder changes, as long as the results take little memory.
void fold_constants(const std::vector<mlx::core::array>& outputs);

} // namespace ortmlx
