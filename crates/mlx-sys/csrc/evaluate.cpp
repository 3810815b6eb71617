// Evaluation that safe code can rely on: what a graph asks for is looked over before MLX computes it, and a failure leaves
// nothing behind.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <future>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

#include "bridge.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"
#include "mlx/memory.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"
#include "mlx/scheduler.h"

namespace {

namespace mx = mlx::core;

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  for (auto known : names) {
    if (name == known) {
      return true;
    }
  }
  return false;
}

// What shows other memory in another shape, however large, and allocates none.
constexpr std::array<std::string_view, 12> VIEWS = {
    "AsStrided", "Broadcast", "BroadcastAxes", "Copy", "CustomTransforms", "Depends",
    "ExpandDims", "Slice", "Split", "Squeeze", "StopGradient", "Transpose"};

// What makes elements although an input has none, and does it right on every back end. The rest divides by sizes, starts
// kernels without threads, or reads what is not there.
constexpr std::array<std::string_view, 20> FROM_EMPTY = {
    "AddMM", "And", "BlockMaskedMM", "Concatenate", "CustomKernel", "CustomTransforms", "Depends",
    "DynamicSliceUpdate", "GatherMM", "Matmul", "Max", "Min", "NumberOfElements", "Or",
    "Pad", "Prod", "SearchSorted", "SegmentedMM", "Sum", "Full"};

bool works_from_empty(std::string_view name) {
  return is_one_of(name, FROM_EMPTY) || name.starts_with("Scatter") || name.starts_with("SliceUpdate") ||
      name.starts_with("host op ");
}

// Above so many bytes the system is asked before MLX is, which does not survive its refusal.
constexpr size_t PROBED = size_t{1} << 30;

bool is_to_be_had(size_t bytes) {
  void* probe = std::malloc(bytes);
  std::free(probe);
  return probe != nullptr;
}

[[noreturn]] void refuse(const mx::array& a, const char* why) {
  std::ostringstream text;
  text << "[" << a.primitive().name() << "] " << why << ": shape " << a.shape();
  throw std::invalid_argument(text.str());
}

// The size in bytes as MLX computes it wraps around: a huge shape then seems to need little memory.
size_t checked_bytes(const mx::array& a) {
  size_t bytes = a.itemsize();
  bool empty = false;
  for (auto n : a.shape()) {
    if (n < 0) {
      refuse(a, "a size is too large for 32 bits");
    }
    empty |= n == 0;
  }
  if (empty) {
    return 0;
  }
  for (auto n : a.shape()) {
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(n), &bytes)) {
      refuse(a, "the array has more elements than 64 bits can count");
    }
  }
  return bytes;
}

// A function compiled without shapes carries the sizes of its first inputs along: what was checked when an operation was
// made holds no longer.
void check_sizes_carried_along(const mx::array& a, std::string_view name) {
  const auto& in = a.inputs();
  auto fits = [&](const mx::Shape& part, const mx::Shape& whole) {
    for (size_t i = 1; i <= whole.size(); ++i) {
      if (i > part.size() || part[part.size() - i] > whole[whole.size() - i]) {
        refuse(a, "a part is larger than the array that it is taken from or put into");
      }
    }
  };
  if (name == "Gather" || name == "DynamicSlice") {
    fits(a.shape(), in[0].shape());
  } else if (name == "DynamicSliceUpdate") {
    fits(in[1].shape(), in[0].shape());
  } else if (name == "Matmul" || name == "AddMM") {
    if (in[0].shape(-1) != in[1].shape(-2)) {
      refuse(a, "the inner sizes of a product differ");
    }
  } else if ((name == "Reshape" || name == "Flatten" || name == "Unflatten") && a.size() != in[0].size()) {
    refuse(a, "the array has another number of elements");
  }
}

// Without elements there is nothing to compute.
void set_empty(mx::array a) {
  auto outputs = a.outputs();
  for (auto& out : outputs) {
    out.set_data(mx::allocator::malloc(0));
    out.set_status(mx::array::Status::available);
  }
  if (!a.is_tracer()) {
    a.detach();
  }
}

bool all_empty(const mx::array& a) {
  for (const auto& sibling : a.siblings()) {
    if (sibling.size() != 0) {
      return false;
    }
  }
  return a.size() == 0;
}

// The graph that an evaluation computes.
class Graph {
 public:
  // Throws for what MLX would not survive; arrays without elements are done afterwards.
  explicit Graph(const std::vector<mx::array>& roots) : limit_(mx::get_memory_limit()) {
    std::vector<mx::array> stack;
    auto add = [&](const mx::array& a) {
      bool waits = a.status() == mx::array::Status::unscheduled && a.has_primitive();
      if (waits && seen_.insert(a.id()).second) {
        stack.push_back(a);
      }
    };
    for (const auto& root : roots) {
      add(root);
    }
    while (!stack.empty()) {
      auto a = std::move(stack.back());
      stack.pop_back();
      if (!a.has_primitive()) {
        continue; // Done with a sibling.
      }
      check(a);
      if (all_empty(a)) {
        set_empty(a);
        continue;
      }
      auto stream = a.primitive().stream();
      if (stream.device == mx::Device::cpu) {
        if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
          streams_.push_back(stream);
        }
      }
      for (const auto& in : a.inputs()) {
        add(in);
      }
    }
  }

  // Raises what a stream of the CPU kept for itself, because the array that was waited for is on another.
  void raise() const {
    for (auto stream : streams_) {
      mx::scheduler::check_error(stream);
    }
  }

  // Waits for the streams and forgets their errors, which otherwise fail the next evaluations too.
  void settle() const noexcept {
    for (auto stream : streams_) {
      try {
        mx::synchronize(stream);
      } catch (std::exception&) {
        // The failure that is being reported, or one that it led to.
      }
    }
  }

 private:
  void check(const mx::array& a) const {
    std::string_view name = a.primitive().name();
    size_t bytes = checked_bytes(a);
    if (bytes > std::min(limit_, PROBED) && !is_one_of(name, VIEWS)) {
      if (bytes > limit_) {
        refuse(a, "the array is larger than the memory limit");
      }
      if (!is_to_be_had(bytes)) {
        refuse(a, "there is not so much memory");
      }
    }
    if (bytes == 0) {
      return;
    }
    for (const auto& in : a.inputs()) {
      if (in.size() == 0 && !works_from_empty(name)) {
        refuse(a, "not possible with an array that has no elements");
      }
    }
    check_sizes_carried_along(a, name);
  }

  size_t limit_;
  std::unordered_set<std::uintptr_t> seen_;
  std::vector<mx::Stream> streams_;
};

template <typename Arrays, typename Evaluate>
int evaluate(Arrays&& arrays, bool waits, Evaluate&& call) {
  try {
    const std::vector<mx::array> roots = arrays();
    Graph graph(roots);
    try {
      call(roots);
      if (waits) {
        graph.raise();
      }
      return 0;
    } catch (...) {
      graph.settle();
      throw;
    }
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}

} // namespace

// Kept for the life of the process.
std::thread* ortmlx_main_thread = nullptr;

extern "C" void ortmlx_start(void) {
  // MLX takes the thread that first comes by for the main one. There, handing over a task throws if an earlier one failed,
  // and MLX has counted the task already: after some hundred failures every evaluation waits for ever. So the main thread is
  // one that never works, and errors travel with the arrays that are waited for. It is never joined, because the system
  // would give its identity to another thread.
  try {
    std::promise<void> started;
    ortmlx_main_thread = new std::thread([&started] {
      try {
        mx::scheduler::scheduler();
      } catch (std::exception&) {
        // The first operation tries again and tells.
      }
      started.set_value();
    });
    started.get_future().wait();
  } catch (std::exception&) {
    // There is no thread to be had: the first operation fails too.
  }
}

extern "C" int ortmlx_array_eval(mlx_array arr) {
  auto roots = [=] { return std::vector<mx::array>{mlx_array_get_(arr)}; };
  return evaluate(roots, true, [](const auto& arrays) { mx::eval(arrays); });
}

extern "C" int ortmlx_eval(const mlx_vector_array arrays) {
  auto roots = [=] { return mlx_vector_array_get_(arrays); };
  return evaluate(roots, true, [](const auto& arrays) { mx::eval(arrays); });
}

extern "C" int ortmlx_async_eval(const mlx_vector_array arrays) {
  auto roots = [=] { return mlx_vector_array_get_(arrays); };
  return evaluate(roots, false, [](const auto& arrays) { mx::async_eval(arrays); });
}
