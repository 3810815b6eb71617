// Arrays over memory that is not MLX's, for as long as a call lasts.
#include <cstdint>
#include <cstring>
#include <exception>

#include "blocks.h"
#include "bridge.h"
#include "device_memory.h"
#include "into.h"
#include "mlx/allocator.h"
#include "mlx/backend/cuda/cuda.h"
#include "mlx/backend/metal/metal.h"
#include "mlx/mlx.h"

namespace {

namespace mx = mlx::core;

// No system's pages are smaller, and larger ones begin where some of these do.
constexpr uintptr_t SMALLEST_PAGE = 4096;
// Apple silicon's.
constexpr uintptr_t METAL_PAGE = 16384;
// MLX's CPU allocator keeps the size of a buffer before its elements.
constexpr uintptr_t BEFORE = sizeof(size_t);
// Vectorised loops may load this many bytes beyond the last element.
constexpr uintptr_t BEYOND = 64;

// MLX's CPU back end reads the size in front of a buffer (what it reads there does not matter), and its loops may load a little
// beyond the end: both must be there to be read, which they are within the pages that the elements lie in.
bool can_be_read_around(uintptr_t first, size_t bytes) {
  uintptr_t last = first + bytes - 1;
  return first % SMALLEST_PAGE >= BEFORE && last % SMALLEST_PAGE + BEYOND < SMALLEST_PAGE;
}

// Where each back end can work on foreign memory.
mx::allocator::Buffer wrap(void* data, size_t bytes, size_t itemsize, mx::Deleter& deleter) {
  auto first = reinterpret_cast<uintptr_t>(data);
  if (first % itemsize != 0) {
    return mx::allocator::Buffer(nullptr);
  }
  if (mx::metal::is_available()) {
    deleter = mx::allocator::release;
    bool whole_pages = first % METAL_PAGE == 0;
    auto length = (bytes + METAL_PAGE - 1) / METAL_PAGE * METAL_PAGE;
    return whole_pages ? mx::allocator::make_buffer(data, length) : mx::allocator::Buffer(nullptr);
  }
  // A GPU that is reached over a bus wants a copy.
  if (mx::cu::is_available() || !can_be_read_around(first, bytes)) {
    return mx::allocator::Buffer(nullptr);
  }
  deleter = [](mx::allocator::Buffer) {};
  return mx::allocator::Buffer(static_cast<char*>(data) - BEFORE);
}

void wait_for_streams() {
  for (auto stream : mx::get_streams()) {
    try {
      mx::synchronize(stream);
    } catch (std::exception&) {
      // Another thread's stream, or an error that belongs to an evaluation.
    }
  }
}

} // namespace

extern "C" int ortmlx_lend(
    mlx_array* res,
    void* data,
    const int* shape,
    size_t ndim,
    mlx_dtype dtype,
    const mlx_stream s,
    bool* lent) {
  return ortmlx::into(res, [&] {
    mx::Shape sizes(shape, shape + ndim);
    auto type = mlx_dtype_to_cpp(dtype);
    size_t bytes = type.size();
    for (auto n : sizes) {
      bytes *= n;
    }
    auto place = ortmlx::place_of(data, bytes);
    if (bytes > 0 && place) {
      *lent = true;
      return ortmlx::array_at(*place, std::move(sizes), type);
    }
    mx::Deleter deleter;
    mx::allocator::Buffer buffer(nullptr);
    if (bytes > 0) {
      buffer = wrap(data, bytes, type.size(), deleter);
    }
    *lent = buffer.ptr() != nullptr;
    if (*lent) {
      return mx::array(buffer, std::move(sizes), type, deleter);
    }
    return ortmlx::copy_of(data, std::move(sizes), type, mlx_stream_get_(s).device);
  });
}

extern "C" int ortmlx_array_new(
    mlx_array* res,
    const void* data,
    const int* shape,
    size_t ndim,
    mlx_dtype dtype,
    const mlx_stream s) {
  return ortmlx::into(res, [&] {
    mx::Shape sizes(shape, shape + ndim);
    return ortmlx::copy_of(data, std::move(sizes), mlx_dtype_to_cpp(dtype), mlx_stream_get_(s).device);
  });
}

extern "C" int ortmlx_take_back(mlx_array arr) {
  try {
    auto& a = mlx_array_get_(arr);
    if (a.is_donatable()) {
      return 0;
    }
    // Somebody else has the array, or a view of it; work on it may be under way.
    wait_for_streams();
    if (a.is_donatable()) {
      return 0;
    }
    // Views count from the start of the buffer.
    auto& shared = *a.data_shared_ptr();
    auto own = mx::allocator::malloc(a.offset() + a.nbytes());
    std::memcpy(static_cast<char*>(own.raw_ptr()) + a.offset(), a.data<char>(), a.nbytes());
    mx::array::Data returned(shared.buffer, shared.d);
    shared.buffer = own;
    shared.d = mx::allocator::free;
    return 0;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}
