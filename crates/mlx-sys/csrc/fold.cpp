#include "fold.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "bridge.h"
#include "mlx/c/private/mlx.h"
#include "mlx/primitives.h"
#include "operations.h"

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
    for (const auto& a : ortmlx::operations_of(outputs)) {
      bool constant = std::all_of(a.inputs().begin(), a.inputs().end(), [this](auto& in) { return is_constant(in); });
      for (const auto& made : a.outputs()) {
        constant_.emplace(made.id(), constant);
      }
      for (size_t i = 0; !constant && i < a.inputs().size(); ++i) {
        take(a.inputs()[i]);
      }
    }
    for (const auto& out : outputs) {
      take(out);
    }
  }

  std::vector<mx::array> found;

 private:
  bool is_constant(const mx::array& a) const {
    return ortmlx::is_computed(a) ? constant_.at(a.id()) : !ortmlx::is_placeholder(a);
  }

  void take(const mx::array& a) {
    if (!ortmlx::is_computed(a) || !is_constant(a)) {
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
