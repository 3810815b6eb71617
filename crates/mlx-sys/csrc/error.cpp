// Takes the place of mlx-c's error.cpp, which hands the texts of exceptions to printf as formats (a '%' in a user's string
// would read the stack) and whose default handler ends the process.
#include "mlx/c/error.h"

#include <atomic>

namespace {

std::atomic<mlx_error_handler_func> handler{nullptr};
std::atomic<void*> handler_data{nullptr};

} // namespace

// The handler lives as long as the process: `dtor` has nothing to do.
extern "C" void mlx_set_error_handler(mlx_error_handler_func to, void* data, void (*)(void*)) {
  handler_data = data;
  handler = to;
}

// mlx-c's own sources pass complete texts, never a format with arguments.
extern "C" void _mlx_error(const char*, const int, const char* message, ...) {
  if (auto call = handler.load()) {
    call(message, handler_data);
  }
}
