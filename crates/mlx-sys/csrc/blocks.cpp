// Memory of MLX's allocator that others hold tensors in: which buffer an address belongs to, and writing there without a way
// through the host.
#include "blocks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "bridge.h"
#include "mlx/allocator.h"
#include "mlx/backend/cuda/cuda.h"
#include "mlx/backend/metal/metal.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"
#include "mlx/ops.h"

namespace {

namespace mx = mlx::core;

// What ONNX Runtime's kernels expect of the memory of tensors.
constexpr size_t ALIGNMENT = 64;

struct Block {
  mx::allocator::Buffer buffer;
  uintptr_t start;
  size_t bytes;
};

struct Blocks {
  std::shared_mutex mutex;
  // By the address handed out.
  std::map<uintptr_t, Block> by_address;
  std::atomic<size_t> count{0};
};

// Never destroyed: blocks may be given back while the process ends.
Blocks& blocks() {
  static auto* all = new Blocks;
  return *all;
}

// GPUs' allocators align by themselves. MLX's loops on a CPU may load a little beyond the end.
size_t padding() {
  bool gpu = mx::metal::is_available() || mx::cu::is_available();
  return gpu ? 0 : 2 * ALIGNMENT;
}

} // namespace

namespace ortmlx {

std::optional<Place> place_of(const void* data, size_t bytes) {
  auto& all = blocks();
  if (all.count.load(std::memory_order_acquire) == 0) {
    return std::nullopt;
  }
  auto address = reinterpret_cast<uintptr_t>(data);
  std::shared_lock lock(all.mutex);
  auto after = all.by_address.upper_bound(address);
  if (after == all.by_address.begin()) {
    return std::nullopt;
  }
  const auto& [first, block] = *std::prev(after);
  if (address - first > block.bytes || bytes > block.bytes - (address - first)) {
    return std::nullopt;
  }
  return Place{block.buffer, static_cast<int64_t>(address - block.start)};
}

mx::array array_at(const Place& place, mx::Shape shape, mx::Dtype dtype) {
  auto nothing = [](mx::allocator::Buffer) {};
  mx::array a(place.buffer, std::move(shape), dtype, nothing);
  auto flags = a.flags();
  a.set_data(place.buffer, a.size(), a.strides(), flags, place.offset, nothing);
  return a;
}

} // namespace ortmlx

extern "C" void* ortmlx_block_new(size_t bytes) {
  try {
    size_t padded = bytes + padding();
    if (padded < bytes || padded > mx::get_memory_limit()) {
      return nullptr;
    }
    auto buffer = mx::allocator::malloc(padded == 0 ? 1 : padded);
    void* data = buffer.raw_ptr();
    if (data == nullptr) {
      return nullptr;
    }
    auto start = reinterpret_cast<uintptr_t>(data);
    auto address = padded == bytes ? start : (start + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    auto& all = blocks();
    std::unique_lock lock(all.mutex);
    all.by_address.emplace(address, Block{buffer, start, bytes});
    all.count.store(all.by_address.size(), std::memory_order_release);
    return reinterpret_cast<void*>(address);
  } catch (std::exception&) {
    return nullptr;
  }
}

extern "C" void ortmlx_block_free(void* data) {
  try {
    auto& all = blocks();
    std::unique_lock lock(all.mutex);
    auto found = all.by_address.find(reinterpret_cast<uintptr_t>(data));
    if (found == all.by_address.end()) {
      return;
    }
    auto buffer = found->second.buffer;
    all.by_address.erase(found);
    all.count.store(all.by_address.size(), std::memory_order_release);
    lock.unlock();
    mx::allocator::free(buffer);
  } catch (std::exception&) {
    // What cannot be given back stays with the process.
  }
}

extern "C" bool ortmlx_in_block(const void* data, size_t bytes) {
  return ortmlx::place_of(data, bytes).has_value();
}

extern "C" int ortmlx_write_to_block(mlx_array arr, void* to, const mlx_stream s, bool* written) {
  *written = false;
  try {
    auto& from = mlx_array_get_(arr);
    auto place = ortmlx::place_of(to, from.nbytes());
    if (!place || from.size() < 2) {
      return 0;
    }
    auto stream = mlx_stream_get_(s);
    // MLX updates in place what nobody else holds. It takes an update of everything for the new value itself, so the last entry
    // of an axis follows by itself.
    auto write = [&](mx::array into, const mx::Shape& start, const mx::Shape& stop) {
      return mx::slice_update(into, mx::slice(from, start, stop, stream), start, stop, stream);
    };
    auto axis = std::find_if(from.shape().begin(), from.shape().end(), [](int n) { return n > 1; }) -
        from.shape().begin();
    mx::Shape start(from.ndim(), 0), stop = from.shape();
    stop[axis] -= 1;
    auto out = write(ortmlx::array_at(*place, from.shape(), from.dtype()), start, stop);
    start[axis] = stop[axis]++;
    out = write(std::move(out), start, stop);
    mx::eval({out});
    *written = out.buffer().ptr() == place->buffer.ptr();
    return 0;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}
