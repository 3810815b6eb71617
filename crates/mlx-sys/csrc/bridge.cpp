#include "bridge.h"

#include "mlx/mlx.h"

namespace {

const mlx::core::array* evaluated(mlx_array arr) noexcept {
  const auto* a = static_cast<const mlx::core::array*>(arr.ctx);
  if (a == nullptr || a->status() == mlx::core::array::Status::unscheduled) {
    return nullptr;
  }
  return a;
}

} // namespace

extern "C" const void* ortmlx_array_data(mlx_array arr) {
  const auto* a = evaluated(arr);
  return a == nullptr || a->data_shared_ptr() == nullptr ? nullptr : a->data<void>();
}

extern "C" bool ortmlx_array_is_row_contiguous(mlx_array arr) {
  const auto* a = evaluated(arr);
  return a != nullptr && a->flags().row_contiguous;
}

extern "C" bool ortmlx_array_shares_memory(mlx_array a, mlx_array b) {
  const auto* x = evaluated(a);
  const auto* y = evaluated(b);
  return x != nullptr && y != nullptr && x->data_shared_ptr() == y->data_shared_ptr();
}
