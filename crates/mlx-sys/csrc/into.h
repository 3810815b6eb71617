// What a call of C makes of what is thrown.
#pragma once

#include <exception>

#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"

namespace ortmlx {

// Stores the array that `make` returns; 1, and the handler told, if it throws.
template <typename Make>
int into(mlx_array* res, Make&& make) {
  try {
    mlx_array_set_(*res, make());
    return 0;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}

} // namespace ortmlx
