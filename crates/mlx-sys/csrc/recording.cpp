// A graph without its arrays: what a function of arrays did, to be done again with others.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bridge.h"
#include "device_memory.h"
#include "fold.h"
#include "into.h"
#include "operations.h"
#include "simplify.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace {

namespace mx = mlx::core;

using ortmlx::is_computed;
using ortmlx::is_placeholder;

class Recording {
 public:
  Recording(const std::vector<mx::array>& inputs, std::vector<mx::array> outputs, bool shapeless)
      : shapeless_(shapeless) {
    // First, because what is folded no longer tells how it came about.
    if (!shapeless) {
      outputs = ortmlx::simplified(outputs);
    }
    ortmlx::fold_constants(outputs);
    for (const auto& in : inputs) {
      place(in);
      specs_.push_back({in.shape(), in.dtype()});
    }
    for (const auto& a : ortmlx::operations_of(outputs)) {
      add_operation(a);
    }
    for (const auto& out : outputs) {
      outputs_.push_back(slot_of(out));
    }
    slots_.clear();
    depths_.clear();
  }

  std::vector<mx::array> replay(const std::vector<mx::array>& inputs) {
    check(inputs);
    bring_leaves(inputs);
    std::vector<mx::array> values;
    values.reserve(count_);
    values.insert(values.end(), inputs.begin(), inputs.end());
    auto leaf = leaves_.begin();
    for (const auto& node : nodes_) {
      if (node.primitive == nullptr) {
        values.push_back(*leaf++);
        continue;
      }
      std::vector<mx::array> of;
      of.reserve(node.inputs.size());
      for (auto slot : node.inputs) {
        of.push_back(values[slot]);
      }
      auto shapes = shapes_of(node, of);
      if (node.outputs.size() == 1) {
        values.emplace_back(
            std::move(shapes.front()), node.outputs.front().second, node.primitive, std::move(of));
        continue;
      }
      std::vector<mx::Dtype> dtypes;
      for (const auto& [shape, dtype] : node.outputs) {
        dtypes.push_back(dtype);
      }
      for (auto& made : mx::array::make_arrays(std::move(shapes), dtypes, node.primitive, of)) {
        values.push_back(std::move(made));
      }
    }
    std::vector<mx::array> outputs;
    outputs.reserve(outputs_.size());
    for (auto slot : outputs_) {
      outputs.push_back(values[slot]);
    }
    return outputs;
  }

  std::set<int> sizes() const {
    std::set<int> all;
    for (const auto& leaf : leaves_) {
      all.insert(leaf.shape().begin(), leaf.shape().end());
    }
    return all;
  }

  size_t size() const {
    return nodes_.size() - leaves_.size();
  }

  size_t depth() const {
    return depth_;
  }

 private:
  using Spec = std::pair<mx::Shape, mx::Dtype>;

  // One operation; without a primitive, the next of the leaves.
  struct Node {
    std::shared_ptr<mx::Primitive> primitive;
    std::vector<uint32_t> inputs;
    std::vector<Spec> outputs;
  };

  std::vector<mx::Shape> shapes_of(const Node& node, const std::vector<mx::array>& inputs) const {
    if (shapeless_) {
      auto shapes = node.primitive->output_shapes(inputs);
      if (shapes.size() != node.outputs.size()) {
        throw std::runtime_error("[replay] an operation does not tell the shapes of its outputs");
      }
      return shapes;
    }
    std::vector<mx::Shape> shapes;
    for (const auto& [shape, dtype] : node.outputs) {
      shapes.push_back(shape);
    }
    return shapes;
  }

  // Constants of MLX's own, such as the scalars of its operations, lie with the host, and every kernel would read them over the
  // bus. Not before there is something to compute: MLX looks at them while it compiles.
  void bring_leaves(const std::vector<mx::array>& inputs) {
    bool traced = std::any_of(inputs.begin(), inputs.end(), [](auto& in) { return in.is_tracer(); });
    if (brought_ || traced || !device_) {
      return;
    }
    for (auto& leaf : leaves_) {
      leaf = ortmlx::brought_to(*device_, leaf);
    }
    brought_ = true;
  }

  void place(const mx::array& a) {
    slots_.emplace(a.id(), count_++);
  }

  // Where a value of a replay is; what nothing computes is a leaf.
  uint32_t slot_of(const mx::array& a) {
    auto found = slots_.find(a.id());
    if (found != slots_.end()) {
      return found->second;
    }
    if (is_placeholder(a)) {
      throw std::invalid_argument("[record] the function uses an input of another recording");
    }
    place(a);
    leaves_.push_back(a);
    nodes_.emplace_back();
    return slots_.at(a.id());
  }

  void add_operation(mx::array a) {
    device_ = a.primitive().stream().device;
    Node node{a.primitive_ptr(), {}, {}};
    size_t depth = 0;
    for (const auto& in : a.inputs()) {
      node.inputs.push_back(slot_of(in));
      auto found = depths_.find(in.id());
      depth = std::max(depth, found == depths_.end() ? 0 : found->second);
    }
    for (const auto& out : a.outputs()) {
      place(out);
      depths_.emplace(out.id(), depth + 1);
      node.outputs.emplace_back(out.shape(), out.dtype());
    }
    depth_ = std::max(depth_, depth + 1);
    nodes_.push_back(std::move(node));
  }

  void check(const std::vector<mx::array>& inputs) const {
    bool fits = inputs.size() == specs_.size();
    for (size_t i = 0; fits && i < inputs.size(); ++i) {
      const auto& [shape, dtype] = specs_[i];
      fits = inputs[i].dtype() == dtype &&
          (shapeless_ ? inputs[i].ndim() == shape.size() : inputs[i].shape() == shape);
    }
    if (!fits) {
      std::ostringstream text;
      text << "[replay] the inputs are not of the shapes and types that were recorded:";
      for (const auto& [shape, dtype] : specs_) {
        text << " " << dtype << shape;
      }
      throw std::invalid_argument(text.str());
    }
  }

  bool shapeless_;
  std::vector<Spec> specs_;
  std::vector<mx::array> leaves_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> outputs_;
  uint32_t count_ = 0;
  size_t depth_ = 0;
  std::optional<mx::Device> device_;
  bool brought_ = false;
  // Only while it is made.
  std::unordered_map<std::uintptr_t, uint32_t> slots_;
  std::unordered_map<std::uintptr_t, size_t> depths_;
};

// Keeps MLX from fusing while it is about: a setting of the process, so that what other threads trace meanwhile is not
// fused either.
class Unfused {
 public:
  explicit Unfused(bool needed) : needed_(needed) {
    if (needed_) {
      mx::set_compile_mode(mx::CompileMode::no_fuse);
    }
  }
  ~Unfused() {
    if (needed_) {
      mx::set_compile_mode(mx::CompileMode::enabled);
    }
  }
  Unfused(const Unfused&) = delete;
  Unfused& operator=(const Unfused&) = delete;

 private:
  bool needed_;
};

// What `function` makes of placeholders, with operations that can infer shapes: MLX makes those only while it compiles.
std::vector<mx::array> traced_without_shapes(
    const std::function<std::vector<mx::array>(const std::vector<mx::array>&)>& function,
    const std::vector<mx::array>& placeholders,
    bool fuse) {
  bool traced = std::getenv("MLX_DISABLE_COMPILE") == nullptr;
  if (traced) {
    Unfused unfused(!fuse);
    auto watched = [&](const std::vector<mx::array>& inputs) {
      traced = !inputs.empty() && inputs.front().is_tracer();
      return traced ? function(inputs) : std::vector<mx::array>{};
    };
    auto outputs = mx::compile(watched, true)(placeholders);
    if (traced) {
      return outputs;
    }
  }
  throw std::runtime_error("[record] MLX's compiler is not available here");
}

Recording& recorded(ortmlx_recording recording) {
  return *static_cast<Recording*>(recording.ctx);
}

} // namespace

extern "C" int ortmlx_placeholder(mlx_array* res, const int* shape, size_t ndim, mlx_dtype dtype) {
  return ortmlx::into(res, [&] {
    return mx::array(mx::Shape(shape, shape + ndim), mlx_dtype_to_cpp(dtype), nullptr, {});
  });
}

extern "C" bool ortmlx_array_has_values(mlx_array arr) {
  std::vector<mx::array> stack{mlx_array_get_(arr)};
  std::unordered_set<std::uintptr_t> seen;
  while (!stack.empty()) {
    auto a = std::move(stack.back());
    stack.pop_back();
    if (is_placeholder(a)) {
      return false;
    }
    if (is_computed(a) && seen.insert(a.id()).second) {
      stack.insert(stack.end(), a.inputs().begin(), a.inputs().end());
    }
  }
  return true;
}

extern "C" int ortmlx_record(
    ortmlx_recording* res,
    const mlx_vector_array inputs,
    const mlx_vector_array outputs) {
  try {
    res->ctx = new Recording(mlx_vector_array_get_(inputs), mlx_vector_array_get_(outputs), false);
    return 0;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}

extern "C" int ortmlx_record_shapeless(
    ortmlx_recording* res,
    const mlx_closure function,
    const mlx_vector_array inputs,
    bool fuse) {
  try {
    const auto& placeholders = mlx_vector_array_get_(inputs);
    auto outputs = traced_without_shapes(mlx_closure_get_(function), placeholders, fuse);
    res->ctx = new Recording(placeholders, outputs, true);
    return 0;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}

extern "C" int ortmlx_recording_replay(
    mlx_vector_array* res,
    const ortmlx_recording recording,
    const mlx_vector_array inputs) {
  try {
    mlx_vector_array_set_(*res, recorded(recording).replay(mlx_vector_array_get_(inputs)));
    return 0;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}

extern "C" size_t ortmlx_recording_sizes(const ortmlx_recording recording, int* sizes, size_t room) {
  auto all = recorded(recording).sizes();
  std::copy_n(all.begin(), std::min(room, all.size()), sizes);
  return all.size();
}

extern "C" size_t ortmlx_recording_size(const ortmlx_recording recording) {
  return recorded(recording).size();
}

extern "C" size_t ortmlx_recording_depth(const ortmlx_recording recording) {
  return recorded(recording).depth();
}

extern "C" void ortmlx_recording_free(ortmlx_recording recording) {
  delete static_cast<Recording*>(recording.ctx);
}
