// MLX moves elements between host and device through managed memory, whose pages both sides take from one another, and which it
// then reuses for what only the device needs. Here they go straight, by calls of CUDA's driver, which is there with MLX's CUDA
// back end; its headers are not.
#include "device_memory.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "mlx/backend/cuda/cuda.h"

namespace {

namespace mx = mlx::core;

using Result = int;
using Address = unsigned long long;
using Handle = void*;

// CUmemPoolProps.
struct PoolProperties {
  int allocation_type;
  int handle_types;
  int location_type;
  int location;
  void* security_attributes;
  size_t most;
  unsigned short usage;
  unsigned char reserved[54];
};
constexpr int PINNED = 1;
constexpr int ON_DEVICE = 1;
constexpr int RELEASE_THRESHOLD = 4;

// How much of what was given back stays ours, for the inputs of the next run.
constexpr uint64_t KEPT = 256 << 20;

// cu::CudaBuffer of mlx/backend/cuda/allocator.h, which needs CUDA's headers. A device of -1 stands for memory that is shared.
struct Buffer {
  void* data;
  size_t size;
  int device;
};

// What is called of CUDA's driver.
struct Driver {
  Result (*retain_context)(Handle*, int);
  Result (*push_context)(Handle);
  Result (*pop_context)(Handle*);
  Result (*create_stream)(Handle*, unsigned);
  Result (*synchronize)(Handle);
  Result (*create_pool)(Handle*, const PoolProperties*);
  Result (*set_pool)(Handle, int, void*);
  Result (*allocate)(Address*, size_t, Handle, Handle);
  Result (*free)(Address, Handle);
  Result (*free_shared)(Address);
  Result (*to_device)(Address, const void*, size_t, Handle);
  Result (*to_host)(void*, Address, size_t, Handle);

  bool load() {
    auto* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    auto find = [library](auto& call, const char* name) {
      call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
      return call != nullptr;
    };
    return library != nullptr && find(retain_context, "cuDevicePrimaryCtxRetain") &&
        find(push_context, "cuCtxPushCurrent_v2") && find(pop_context, "cuCtxPopCurrent_v2") &&
        find(create_stream, "cuStreamCreate") && find(synchronize, "cuStreamSynchronize") &&
        find(create_pool, "cuMemPoolCreate") && find(set_pool, "cuMemPoolSetAttribute") &&
        find(allocate, "cuMemAllocFromPoolAsync") && find(free, "cuMemFreeAsync") &&
        find(free_shared, "cuMemFree_v2") && find(to_device, "cuMemcpyHtoDAsync_v2") &&
        find(to_host, "cuMemcpyDtoHAsync_v2");
  }
};

const Driver* driver() {
  static const Driver* loaded = []() -> const Driver* {
    static Driver all;
    return mx::cu::is_available() && all.load() ? &all : nullptr;
  }();
  return loaded;
}

// What copies for one device need. Never destroyed: arrays may be dropped while the process ends.
struct Copies {
  const Driver& cuda;
  Handle context = nullptr;
  Handle stream = nullptr;
  Handle pool = nullptr;
  bool ready = false;

  Copies(const Driver& driver, int device) : cuda(driver) {
    constexpr unsigned NON_BLOCKING = 1;
    PoolProperties properties{PINNED, 0, ON_DEVICE, device, nullptr, 0, 0, {}};
    uint64_t kept = KEPT;
    ready = cuda.retain_context(&context, device) == 0 && with_context([&] {
      return cuda.create_stream(&stream, NON_BLOCKING) == 0 && cuda.create_pool(&pool, &properties) == 0 &&
          cuda.set_pool(pool, RELEASE_THRESHOLD, &kept) == 0;
    });
  }

  // Whether `work` succeeded with this device's context as the thread's.
  template <typename Work>
  bool with_context(Work&& work) const {
    if (cuda.push_context(context) != 0) {
      return false;
    }
    bool done = work();
    Handle popped;
    cuda.pop_context(&popped);
    return done;
  }

  void release(Buffer* buffer) const {
    auto address = reinterpret_cast<Address>(buffer->data);
    // At the end of a process the driver may be gone, and the memory with it.
    with_context([&] {
      return (buffer->device < 0 ? cuda.free_shared(address) : cuda.free(address, stream)) == 0;
    });
    delete buffer;
  }
};

// MLX uses the first devices only as far as somebody names them.
constexpr int DEVICES = 64;

const Copies* copies(int device) {
  static Copies* all[DEVICES];
  static std::mutex mutex;
  const auto* cuda = driver();
  if (cuda == nullptr || device < 0 || device >= DEVICES) {
    return nullptr;
  }
  std::lock_guard lock(mutex);
  if (all[device] == nullptr) {
    all[device] = new Copies(*cuda, device);
  }
  return all[device]->ready ? all[device] : nullptr;
}

// Where an array's elements begin; null if the host can use them.
const Buffer* device_buffer(const mx::array& a) {
  if (driver() == nullptr || a.data_shared_ptr() == nullptr) {
    return nullptr;
  }
  const auto* buffer = static_cast<const Buffer*>(a.buffer().ptr());
  return buffer == nullptr || buffer->device < 0 ? nullptr : buffer;
}

// The elements in the memory of CUDA's device `device`; null if that fails.
Buffer* upload(const void* data, size_t bytes, int device) {
  const auto* side = copies(device);
  if (side == nullptr) {
    return nullptr;
  }
  const auto& cuda = side->cuda;
  Address address = 0;
  bool there = side->with_context([&] {
    if (cuda.allocate(&address, bytes, side->pool, side->stream) != 0) {
      return false;
    }
    if (cuda.to_device(address, data, bytes, side->stream) == 0 && cuda.synchronize(side->stream) == 0) {
      return true;
    }
    cuda.free(address, side->stream);
    return false;
  });
  return there ? new Buffer{reinterpret_cast<void*>(address), bytes, device} : nullptr;
}

} // namespace

namespace ortmlx {

mx::array copy_of(const void* data, mx::Shape shape, mx::Dtype dtype, mx::Device device) {
  size_t bytes = dtype.size();
  for (auto n : shape) {
    bytes *= n;
  }
  if (device.type == mx::Device::gpu && bytes > 0) {
    if (auto* buffer = upload(data, bytes, device.index)) {
      auto release = [side = copies(device.index)](mx::allocator::Buffer b) {
        side->release(static_cast<Buffer*>(b.ptr()));
      };
      return mx::array(mx::allocator::Buffer(buffer), std::move(shape), dtype, release);
    }
  }
  mx::array copy(mx::allocator::malloc(bytes), std::move(shape), dtype);
  if (bytes > 0) {
    std::memcpy(copy.data<void>(), data, bytes);
  }
  return copy;
}

mx::array brought_to(mx::Device device, const mx::array& a) {
  bool is_there = driver() == nullptr || device.type != mx::Device::gpu || is_on_device(a);
  if (is_there || !a.flags().row_contiguous) {
    return a;
  }
  return copy_of(a.data<void>(), a.shape(), a.dtype(), device);
}

bool is_on_device(const mx::array& a) {
  return device_buffer(a) != nullptr;
}

void copy_to_host(const mx::array& a, void* to) {
  const auto* buffer = device_buffer(a);
  const auto* side = buffer == nullptr ? nullptr : copies(buffer->device);
  if (side == nullptr) {
    throw std::runtime_error("[copy_to_host] The elements are not in the memory of a CUDA device.");
  }
  auto from = reinterpret_cast<Address>(buffer->data) + a.offset();
  bool done = side->with_context([&] {
    return side->cuda.to_host(to, from, a.nbytes(), side->stream) == 0 &&
        side->cuda.synchronize(side->stream) == 0;
  });
  if (!done) {
    throw std::runtime_error("[copy_to_host] CUDA could not copy from the device.");
  }
}

} // namespace ortmlx
