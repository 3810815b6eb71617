// Whether a transformation can walk over what a function has built: MLX does so by recursion, one or two frames an operation,
// and the end of a stack is the end of the process.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <unordered_set>
#include <vector>

#include <pthread.h>

#include "bridge.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"
#include "mlx/mlx.h"

namespace {

namespace mx = mlx::core;

// Of stack for an operation. Measured with GCC on x86-64: 80 for vjp, 97 for jvp, 114 for vmap, 145 for compile.
constexpr size_t FRAMES = 192;

// Of stack for all else.
constexpr size_t RESERVE = 128 << 10;

// The lowest address of this thread's stack; 0 where the system does not say.
uintptr_t stack_end() {
#if defined(__APPLE__)
  auto self = pthread_self();
  return reinterpret_cast<uintptr_t>(pthread_get_stackaddr_np(self)) - pthread_get_stacksize_np(self);
#elif defined(__linux__)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
    return 0;
  }
  void* low = nullptr;
  size_t size = 0;
  bool known = pthread_attr_getstack(&attributes, &low, &size) == 0;
  pthread_attr_destroy(&attributes);
  return known ? reinterpret_cast<uintptr_t>(low) : 0;
#else
  return 0;
#endif
}

// Bytes of stack that recursion may take here.
size_t stack_left() {
  thread_local const uintptr_t end = stack_end();
  if (end == 0) {
    return std::numeric_limits<size_t>::max();
  }
  int here = 0;
  uintptr_t top = reinterpret_cast<uintptr_t>(&here);
  return top > end + RESERVE ? top - end - RESERVE : 0;
}

// How deep a walk from `outputs` to `inputs` goes that enters every array once, as MLX's do.
size_t depth(const std::vector<mx::array>& inputs, const std::vector<mx::array>& outputs) {
  struct Step {
    const mx::array* array;
    size_t next;
  };
  std::unordered_set<std::uintptr_t> seen;
  for (const auto& input : inputs) {
    seen.insert(input.id());
  }
  std::vector<Step> path;
  size_t deepest = 0;
  for (const auto& output : outputs) {
    if (seen.insert(output.id()).second) {
      path.push_back({&output, 0});
    }
    while (!path.empty()) {
      auto& [array, next] = path.back();
      deepest = std::max(deepest, path.size());
      if (next == array->inputs().size()) {
        path.pop_back();
        continue;
      }
      const auto& input = array->inputs()[next++];
      if (seen.insert(input.id()).second) {
        path.push_back({&input, 0});
      }
    }
  }
  return deepest;
}

} // namespace

extern "C" bool ortmlx_stack_is_short(void) {
  return stack_left() == 0;
}

extern "C" int ortmlx_check_depth(const mlx_vector_array inputs, const mlx_vector_array outputs) {
  try {
    size_t deep = depth(mlx_vector_array_get_(inputs), mlx_vector_array_get_(outputs));
    if (deep > stack_left() / FRAMES) {
      std::ostringstream text;
      text << deep << " operations one after another are too many for a transformation on this thread's stack: "
           << "evaluate in between, or use a thread with " << ((deep * FRAMES + 2 * RESERVE) >> 20) + 1
           << " MiB of stack";
      throw std::invalid_argument(text.str());
    }
    return 0;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}
