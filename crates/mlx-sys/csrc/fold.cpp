#include "fold.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "bridge.h"
#include "mlx/c/private/mlx.h"
#include "mlx/primitives.h"

namespace {

namespace mx = mlx::core;

// The most bytes that the results of one graph may keep: tables of positions and masks of short sequences, not weights in
// another layout.
constexpr size_t MOST_BYTES = 4 << 20;

bool is_view(const mx::array& a) {
  constexpr std::array<std::string_view, 7> VIEWS = {
      "Broadcast", "BroadcastAxes", "ExpandDims", "Slice", "Split", "Squeeze", "Transpose"};
  for (auto name : VIEWS) {
    if (name == a.primitive().name()) {
      return true;
    }
  }
  return false;
}

// A view that repeats elements costs nothing where MLX fuses it into what reads it, which then needs no strides.
bool is_left_to_kernels(const mx::array& a) {
  return a.primitive().stream().device.type == mx::Device::gpu &&
      std::string_view(a.primitive().name()) == "Broadcast";
}

size_t bytes_kept(const mx::array& a) {
  if (is_view(a)) {
    return ortmlx::is_computed(a.inputs()[0]) ? a.inputs()[0].nbytes() : 0;
  }
  size_t bytes = a.nbytes();
  for (const auto& sibling : a.siblings()) {
    bytes += sibling.nbytes();
  }
  return bytes;
}

// The results that do not depend on placeholders, where something that does, or the caller, takes them up.
class Frontier {
 public:
  explicit Frontier(const std::vector<mx::array>& outputs) {
    for (const auto& out : outputs) {
      visit(out);
      take(out);
    }
  }

  std::vector<mx::array> found;

 private:
  // Not recursive: chains are as long as loops are.
  void visit(const mx::array& root) {
    std::vector<mx::array> stack{root};
    while (!stack.empty()) {
      auto a = stack.back();
      if (constant_.count(a.id()) != 0) {
        stack.pop_back();
        continue;
      }
      size_t waiting = stack.size();
      bool constant = !ortmlx::is_placeholder(a);
      if (ortmlx::is_computed(a)) {
        for (const auto& in : a.inputs()) {
          auto known = constant_.find(in.id());
          if (known == constant_.end()) {
            stack.push_back(in);
          } else {
            constant &= known->second;
          }
        }
      }
      if (stack.size() != waiting) {
        continue;
      }
      stack.pop_back();
      constant_.emplace(a.id(), constant);
      for (size_t i = 0; !constant && i < a.inputs().size(); ++i) {
        take(a.inputs()[i]);
      }
    }
  }

  void take(const mx::array& a) {
    if (!ortmlx::is_computed(a) || !constant_.at(a.id())) {
      return;
    }
    if (is_left_to_kernels(a)) {
      return take(a.inputs()[0]);
    }
    size_t bytes = bytes_kept(a);
    if (bytes <= MOST_BYTES - bytes_) {
      bytes_ += bytes;
      found.push_back(a);
    }
  }

  std::unordered_map<std::uintptr_t, bool> constant_;
  size_t bytes_ = 0;
};

} // namespace

void ortmlx::fold_constants(const std::vector<mx::array>& outputs) {
  Frontier frontier(outputs);
  if (frontier.found.empty()) {
    return;
  }
  auto arrays = mlx_vector_array_new_(std::move(frontier.found));
  // What fails here fails at every replay, and is told then.
  ortmlx_eval(arrays);
  mlx_vector_array_free_(arrays);
}
