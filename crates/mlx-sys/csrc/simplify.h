// Does a recorded graph's work in fewer and better-laid steps.
#pragma once

#include <vector>

#include "mlx/mlx.h"

namespace ortmlx {

// Arrays with the values of `outputs`, from the same placeholders: transpositions go behind what works element by element, so that
// they meet and cancel, and a bias is added by the product that it belongs to.
std::vector<mlx::core::array> simplified(const std::vector<mlx::core::array>& outputs);

} // namespace ortmlx
