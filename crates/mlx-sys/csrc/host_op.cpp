// A Primitive whose evaluation is a callback: the host ops of mlx-safe.
#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bridge.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace {

namespace mx = mlx::core;

// What a callback leaves behind.
struct Results {
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  std::string message;

  ortmlx_sink sink() {
    return {this};
  }
};

Results& results(ortmlx_sink sink) {
  return *static_cast<Results*>(sink.ctx);
}

// The callbacks with a payload that is released with the last copy.
struct Callbacks {
  explicit Callbacks(const ortmlx_host_op& op)
      : payload(op.payload, op.release), name(std::string("host op ") + op.name), op(op) {}

  std::shared_ptr<void> payload;
  // Begins as evaluate.cpp knows it.
  std::string name;
  ortmlx_host_op op;

  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error(name + ": " + why);
  }

  // How many of the first inputs become outputs.
  size_t placed() const {
    return op.in_place ? 1 : 0;
  }

  Results infer(const std::vector<mx::array>& inputs) const;
  // `inputs` without those that become outputs.
  void run(std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const;
};

ortmlx_view view(const mx::array& a, void* data) {
  return {data, a.shape().data(), a.ndim(), a.size(), mlx_dtype_to_c(a.dtype())};
}

// Views of evaluated arrays.
std::vector<ortmlx_view> views(std::vector<mx::array>& arrays) {
  std::vector<ortmlx_view> all;
  for (auto& a : arrays) {
    all.push_back(view(a, a.data<void>()));
  }
  return all;
}

Results Callbacks::infer(const std::vector<mx::array>& inputs) const {
  std::vector<ortmlx_view> specs;
  for (const auto& a : inputs) {
    specs.push_back(view(a, nullptr));
  }
  Results found;
  if (op.infer(payload.get(), specs.data(), specs.size(), found.sink()) != 0) {
    fail(found.message);
  }
  if (op.in_place &&
      (inputs.empty() || found.shapes.front() != inputs[0].shape() || found.dtypes.front() != inputs[0].dtype())) {
    fail("works in place, so its first output has the shape and the type of its first input");
  }
  return found;
}

void Callbacks::run(std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) const {
  for (size_t i = placed(); i < outputs.size(); ++i) {
    // The callback gets references to these bytes, so they must have values before it has written any.
    std::memset(outputs[i].data<void>(), 0, outputs[i].nbytes());
  }
  auto in = views(inputs);
  auto out = views(outputs);
  Results failure;
  if (op.run(payload.get(), in.data(), in.size(), out.data(), out.size(), failure.sink()) != 0) {
    fail(failure.message);
  }
}

// A vector that a callback borrows.
class Lent {
 public:
  explicit Lent(const std::vector<mx::array>& arrays) : handle_(mlx_vector_array_new_(arrays)) {}
  ~Lent() {
    mlx_vector_array_free_(handle_);
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  mlx_vector_array& handle() {
    return handle_;
  }

 private:
  mlx_vector_array handle_;
};

std::vector<mx::array> weak_copies(const std::vector<mx::array>& arrays) {
  std::vector<mx::array> copies;
  for (const auto& a : arrays) {
    copies.push_back(mx::array::unsafe_weak_copy(a));
  }
  return copies;
}

class HostOp : public mx::Primitive {
 public:
  HostOp(mx::Stream stream, std::shared_ptr<const Callbacks> callbacks)
      : Primitive(stream), callbacks_(std::move(callbacks)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (const auto& in : inputs) {
      if (!in.flags().row_contiguous) {
        callbacks_->fail("an input is not row-major");
      }
    }
    auto& encoder = mx::cpu::get_command_encoder(stream());
    for (const auto& in : inputs) {
      encoder.set_input_array(in);
    }
    auto placed = callbacks_->placed();
    bool donated = placed > 0 && inputs[0].is_donatable();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (i < placed && donated) {
        outputs[i].copy_shared_buffer(inputs[i]);
      } else {
        outputs[i].set_data(mx::allocator::malloc(outputs[i].nbytes()));
      }
      encoder.set_output_array(outputs[i]);
    }
    // MLX keeps the buffers alive until the tasks before its next one are done.
    encoder.dispatch([callbacks = callbacks_,
                      donated,
                      in = weak_copies(inputs),
                      out = weak_copies(outputs)]() mutable {
      auto placed = callbacks->placed();
      for (size_t i = 0; i < placed && !donated; ++i) {
        std::memcpy(out[i].data<void>(), in[i].data<void>(), out[i].nbytes());
      }
      in.erase(in.begin(), in.begin() + placed);
      callbacks->run(in, out);
    });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    callbacks_->fail("runs on streams of the CPU only");
  }

  std::vector<mx::array> vjp(
      const std::vector<mx::array>& primals,
      const std::vector<mx::array>& cotangents,
      const std::vector<int>& argnums,
      const std::vector<mx::array>& outputs) override {
    if (callbacks_->op.vjp == nullptr) {
      callbacks_->fail("has no vjp, so it cannot be differentiated");
    }
    Lent lent_primals(primals), lent_cotangents(cotangents), lent_outputs(outputs), result({});
    int status = callbacks_->op.vjp(
        callbacks_->payload.get(),
        &result.handle(),
        lent_primals.handle(),
        lent_cotangents.handle(),
        lent_outputs.handle());
    if (status != 0) {
      callbacks_->fail("its vjp failed");
    }
    const auto& all = mlx_vector_array_get_(result.handle());
    if (all.size() != primals.size()) {
      callbacks_->fail("its vjp must return one array for every input");
    }
    std::vector<mx::array> wanted;
    for (int i : argnums) {
      if (all[i].shape() != primals[i].shape()) {
        std::ostringstream why;
        why << "its vjp returned shape " << all[i].shape() << " for an input of shape " << primals[i].shape();
        callbacks_->fail(why.str());
      }
      wanted.push_back(all[i]);
    }
    return wanted;
  }

  std::vector<mx::array> jvp(
      const std::vector<mx::array>&,
      const std::vector<mx::array>&,
      const std::vector<int>&) override {
    callbacks_->fail("has no jvp");
  }

  std::pair<std::vector<mx::array>, std::vector<int>> vmap(
      const std::vector<mx::array>& inputs,
      const std::vector<int>& axes) override {
    bool first_only = std::all_of(axes.begin() + 1, axes.end(), [](int axis) { return axis < 0; });
    if (!callbacks_->op.stacks || !first_only) {
      callbacks_->fail("cannot be vectorised by vmap");
    }
    auto stacked = inputs;
    stacked[0] = mx::contiguous(mx::moveaxis(inputs[0], axes[0], 0, stream()), false, stream());
    auto outputs = apply(callbacks_, stacked, stream());
    return {outputs, std::vector<int>(outputs.size(), 0)};
  }

  // Adds the operation on row-major `inputs` to the lazy graph.
  static std::vector<mx::array> apply(
      const std::shared_ptr<const Callbacks>& callbacks,
      const std::vector<mx::array>& inputs,
      mx::Stream stream) {
    auto outputs = callbacks->infer(inputs);
    return mx::array::make_arrays(
        std::move(outputs.shapes), outputs.dtypes, std::make_shared<HostOp>(stream, callbacks), inputs);
  }

  const char* name() const override {
    return callbacks_->name.c_str();
  }

  // MLX compares primitives of one type only.
  bool is_equivalent(const Primitive& other) const override {
    return static_cast<const HostOp&>(other).callbacks_->payload == callbacks_->payload;
  }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override {
    return callbacks_->infer(inputs).shapes;
  }

 private:
  std::shared_ptr<const Callbacks> callbacks_;
};

} // namespace

extern "C" int ortmlx_sink_add_output(ortmlx_sink sink, const int* shape, size_t ndim, mlx_dtype dtype) {
  try {
    results(sink).shapes.emplace_back(shape, shape + ndim);
    results(sink).dtypes.push_back(mlx_dtype_to_cpp(dtype));
    return 0;
  } catch (std::exception&) {
    return 1;
  }
}

extern "C" void ortmlx_sink_set_message(ortmlx_sink sink, const char* text, size_t length) {
  try {
    results(sink).message.assign(text, length);
  } catch (std::exception&) {
    // Memory is short: the failure is reported without its reason.
  }
}

extern "C" int ortmlx_host_op_apply(
    mlx_vector_array* res,
    const ortmlx_host_op op,
    const mlx_vector_array inputs,
    const mlx_stream s) {
  try {
    auto callbacks = std::make_shared<const Callbacks>(op);
    auto stream = mlx_stream_get_(s);
    std::vector<mx::array> dense;
    for (const auto& a : mlx_vector_array_get_(inputs)) {
      dense.push_back(mx::contiguous(a, false, stream));
    }
    mlx_vector_array_set_(*res, HostOp::apply(callbacks, dense, stream));
    return 0;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}
