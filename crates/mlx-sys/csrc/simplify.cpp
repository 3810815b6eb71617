#include "simplify.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "operations.h"
#include "mlx/primitives.h"

namespace {

namespace mx = mlx::core;

using Arrays = std::vector<mx::array>;

bool is(const mx::array& a, std::string_view name) {
  return ortmlx::is_computed(a) && name == a.primitive().name();
}

// What gives an element from those at the same place.
bool is_elementwise(const mx::array& a) {
  static const std::unordered_set<std::string_view> NAMES = {
      "Abs",      "Add",     "ArcCos",     "ArcCosh",      "ArcSin",    "ArcSinh",   "ArcTan",     "ArcTanh",
      "AsType",   "Ceil",    "Cos",        "Cosh",         "Divide",    "Equal",     "Erf",        "Exp",
      "Expm1",    "Floor",   "Greater",    "GreaterEqual", "Less",      "LessEqual", "Log",        "Log1p",
      "Log10",    "Log2",    "LogicalAnd", "LogicalNot",   "LogicalOr", "Maximum",   "Minimum",    "Multiply",
      "Negative", "NotEqual", "Power",     "Remainder",    "Round",     "Rsqrt",     "Select",     "Sigmoid",
      "Sign",     "Sin",     "Sinh",       "Sqrt",         "Square",    "Subtract",  "Tan",        "Tanh"};
  return NAMES.count(a.primitive().name()) != 0;
}

// The axes of the input that a transposition puts at each place.
std::vector<int> axes_of(const mx::array& transposition) {
  return static_cast<const mx::Transpose&>(transposition.primitive()).state();
}

mx::Shape shape_before(const mx::array& transposition) {
  return transposition.inputs()[0].shape();
}

std::vector<int> inverse(const std::vector<int>& axes) {
  std::vector<int> back(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    back[axes[i]] = static_cast<int>(i);
  }
  return back;
}

// What is said of each axis after a transposition, in the order before it.
template <typename Vector>
Vector before(const Vector& after, const std::vector<int>& axes) {
  Vector all = after;
  for (size_t i = 0; i < axes.size(); ++i) {
    all[axes[i]] = after[i];
  }
  return all;
}

class Simplifier {
 public:
  explicit Simplifier(const Arrays& outputs) {
    auto operations = ortmlx::operations_of(outputs);
    for (const auto& out : outputs) {
      ++readers_[out.id()];
    }
    for (const auto& a : operations) {
      for (const auto& in : a.inputs()) {
        ++readers_[in.id()];
      }
    }
    for (const auto& a : operations) {
      remake(a);
    }
  }

  // What has come of an array of the graph.
  const mx::array& made(const mx::array& a) const {
    auto found = made_.find(a.id());
    return found == made_.end() ? a : found->second;
  }

 private:
  void remake(const mx::array& a) {
    Arrays inputs;
    bool same = true;
    for (const auto& in : a.inputs()) {
      inputs.push_back(made(in));
      same &= inputs.back().id() == in.id();
    }
    auto outputs = a.outputs();
    if (outputs.size() == 1) {
      if (auto simple = simpler(a, inputs)) {
        made_.emplace(a.id(), *simple);
      } else if (!same) {
        made_.emplace(a.id(), mx::array(a.shape(), a.dtype(), a.primitive_ptr(), std::move(inputs)));
      }
    } else if (!same) {
      std::vector<mx::Shape> shapes;
      std::vector<mx::Dtype> dtypes;
      for (const auto& out : outputs) {
        shapes.push_back(out.shape());
        dtypes.push_back(out.dtype());
      }
      auto all = mx::array::make_arrays(std::move(shapes), dtypes, a.primitive_ptr(), inputs);
      for (size_t i = 0; i < outputs.size(); ++i) {
        made_.emplace(outputs[i].id(), all[i]);
      }
    }
  }

  std::optional<mx::array> simpler(const mx::array& a, const Arrays& inputs) const {
    if (is(a, "Transpose")) {
      return merged(a, inputs[0]);
    }
    if (is(a, "Slice") && is(inputs[0], "Transpose")) {
      auto axes = axes_of(inputs[0]);
      auto [start, stop, steps] = static_cast<const mx::Slice&>(a.primitive()).state();
      if (std::any_of(steps.begin(), steps.end(), [](int step) { return step < 0; })) {
        return std::nullopt;
      }
      auto part = mx::slice(
          inputs[0].inputs()[0], before(start, axes), before(stop, axes), before(steps, axes), a.primitive().stream());
      return mx::transpose(part, axes, a.primitive().stream());
    }
    if (auto sum = biased_product(a, inputs)) {
      return sum;
    }
    return is_elementwise(a) ? behind_transposition(a, inputs) : std::nullopt;
  }

  // A transposition of `x`, which may be one itself.
  std::optional<mx::array> merged(const mx::array& a, const mx::array& x) const {
    if (!is(x, "Transpose")) {
      return std::nullopt;
    }
    auto first = axes_of(x);
    auto axes = axes_of(a);
    for (auto& axis : axes) {
      axis = first[axis];
    }
    const auto& base = x.inputs()[0];
    return std::is_sorted(axes.begin(), axes.end()) ? base : mx::transpose(base, axes, a.primitive().stream());
  }

  // An operation on elements of transposed arrays as the transposition of the operation on these arrays.
  std::optional<mx::array> behind_transposition(const mx::array& a, const Arrays& inputs) const {
    auto transposed = std::find_if(inputs.begin(), inputs.end(), [](auto& in) { return is(in, "Transpose"); });
    if (transposed == inputs.end()) {
      return std::nullopt;
    }
    auto axes = axes_of(*transposed);
    auto shape = shape_before(*transposed);
    auto stream = a.primitive().stream();
    Arrays bases;
    for (const auto& in : inputs) {
      if (is(in, "Transpose") && axes_of(in) == axes) {
        bases.push_back(in.inputs()[0]);
      } else if (is(in, "Broadcast") && in.shape() == a.shape() && in.inputs()[0].size() == 1) {
        auto one = mx::reshape(in.inputs()[0], {}, stream);
        bases.push_back(mx::broadcast_to(one, shape, stream));
      } else if (is(in, "Broadcast") && in.shape() == a.shape() && in.inputs()[0].ndim() == a.ndim()) {
        auto few = mx::transpose(in.inputs()[0], inverse(axes), stream);
        bases.push_back(mx::broadcast_to(few, shape, stream));
      } else if (in.size() == 1 && in.ndim() == 0) {
        bases.push_back(in);
      } else {
        return std::nullopt;
      }
    }
    return mx::transpose(mx::array(shape, a.dtype(), a.primitive_ptr(), std::move(bases)), axes, stream);
  }

  // A product of matrices and a row that is added to each of its rows, in one step. A row alone is better off with the product
  // of a vector.
  std::optional<mx::array> biased_product(const mx::array& a, const Arrays& inputs) const {
    if (!is(a, "Add") || a.ndim() < 2) {
      return std::nullopt;
    }
    auto columns = static_cast<size_t>(a.shape(-1));
    auto stream = a.primitive().stream();
    for (int i : {0, 1}) {
      const auto& other = inputs[1 - i];
      auto product = product_behind(inputs[i], a.inputs()[i]);
      if (!product || !is(other, "Broadcast") || columns < 2 || a.size() / columns < 2) {
        continue;
      }
      const auto& bias = other.inputs()[0];
      bool row = bias.size() == columns && bias.ndim() > 0 && bias.shape(-1) == a.shape(-1) && begins_a_buffer(bias);
      if (row && product->shape(-1) == a.shape(-1) && inputs[i].shape() == a.shape()) {
        auto sum = mx::addmm(
            mx::reshape(bias, {a.shape(-1)}, stream), product->inputs()[0], product->inputs()[1], 1.0f, 1.0f, stream);
        return mx::reshape(sum, a.shape(), stream);
      }
    }
    return std::nullopt;
  }

  // Whether the elements will lie where a library for products takes them: views may begin anywhere.
  static bool begins_a_buffer(const mx::array& a) {
    static const std::unordered_set<std::string_view> MADE = {"Add", "AsType", "Multiply", "Subtract"};
    if (ortmlx::is_computed(a)) {
      return MADE.count(a.primitive().name()) != 0;
    }
    return !ortmlx::is_placeholder(a) && a.flags().row_contiguous && a.offset() == 0;
  }

  // The product of matrices that `a` is, or that it has the rows of in another shape, if nobody else reads it. `was` has become
  // `a`.
  std::optional<mx::array> product_behind(const mx::array& a, const mx::array& was) const {
    if (readers_.at(was.id()) != 1) {
      return std::nullopt;
    }
    if (is(a, "Matmul")) {
      return a;
    }
    bool reshaped = is(a, "Reshape") || is(a, "Unflatten");
    bool of_product = reshaped && is(was, a.primitive().name()) && is(a.inputs()[0], "Matmul");
    bool alone = of_product && readers_.at(was.inputs()[0].id()) == 1;
    return alone ? std::optional(a.inputs()[0]) : std::nullopt;
  }

  // How often each array of the graph is read.
  std::unordered_map<std::uintptr_t, size_t> readers_;
  std::unordered_map<std::uintptr_t, mx::array> made_;
};

} // namespace

std::vector<mx::array> ortmlx::simplified(const std::vector<mx::array>& outputs) {
  Simplifier simplifier(outputs);
  std::vector<mx::array> results;
  for (const auto& out : outputs) {
    results.push_back(simplifier.made(out));
  }
  return results;
}
