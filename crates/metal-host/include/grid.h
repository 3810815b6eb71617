// Reads a launch from the standard input, runs the whole grid, threadgroup after threadgroup, and writes the outputs.
#pragma once
#include <functional>
#include <thread>
#include <vector>
#include "simd.h"

#ifdef __linux__
// Where the compiler put all threadgroup variables; absent if there are none.
extern "C" char __start_metal_threadgroup[] __attribute__((weak));
extern "C" char __stop_metal_threadgroup[] __attribute__((weak));
#define METAL_HOST_THREADGROUP static __attribute__((section("metal_threadgroup")))
#else
#define METAL_HOST_THREADGROUP static
#endif

namespace metal_host {

// Every attribute that MLX passes to a kernel.
struct Place {
  uint dispatch_quadgroups_per_threadgroup, dispatch_simdgroups_per_threadgroup;
  uint3 dispatch_threads_per_threadgroup, grid_origin, grid_size;
  uint quadgroup_index_in_threadgroup, quadgroups_per_threadgroup;
  uint simdgroup_index_in_threadgroup, simdgroups_per_threadgroup;
  uint thread_execution_width, thread_index_in_quadgroup, thread_index_in_simdgroup, thread_index_in_threadgroup;
  uint3 thread_position_in_grid, thread_position_in_threadgroup, threadgroup_position_in_grid;
  uint3 threadgroups_per_grid, threads_per_grid;
  uint threads_per_simdgroup;
  uint3 threads_per_threadgroup;
};

struct Buffer {
  void* data;
  std::vector<int> shape;
  std::vector<int64_t> strides;
  int ndim;
  size_t bytes;
};

inline void read_all(void* to, size_t bytes) {
  if (bytes > 0 && std::fread(to, 1, bytes, stdin) != bytes) fail("the launch ends too early");
}
inline int64_t read_int() {
  int64_t value;
  read_all(&value, sizeof value);
  return value;
}
// Of exactly the size: an access outside is one outside of the allocation.
inline Buffer read_buffer(bool with_data) {
  Buffer buffer{};
  buffer.ndim = int(read_int());
  buffer.shape.resize(buffer.ndim);
  buffer.strides.resize(buffer.ndim);
  for (int& size : buffer.shape) size = int(read_int());
  int64_t stride = 1;
  for (int i = buffer.ndim; i-- > 0; stride *= buffer.shape[i]) buffer.strides[i] = stride;
  buffer.bytes = size_t(read_int());
  buffer.data = std::malloc(buffer.bytes);
  if (with_data) read_all(buffer.data, buffer.bytes);
  else std::memset(buffer.data, 0xff, buffer.bytes);
  return buffer;
}

struct Launch {
  uint3 grid, group;
  std::vector<Buffer> inputs, outputs;
};

inline Launch read_launch(int inputs, int outputs) {
  Launch launch;
  for (int i = 0; i < 3; ++i) launch.grid[i] = uint(read_int());
  for (int i = 0; i < 3; ++i) launch.group[i] = uint(read_int());
  for (int i = 0; i < inputs; ++i) launch.inputs.push_back(read_buffer(true));
  for (int i = 0; i < outputs; ++i) {
    bool initialised = read_int() != 0;
    launch.outputs.push_back(read_buffer(initialised));
  }
  return launch;
}

inline uint volume(uint3 v) { return v.x * v.y * v.z; }
inline uint3 position(uint index, uint3 size) { return {index % size.x, index / size.x % size.y, index / size.x / size.y}; }

// What reads threadgroup memory before it is written shall not find zeros.
inline size_t spoil_threadgroup_memory() {
#ifdef __linux__
  if (__start_metal_threadgroup == nullptr) return 0;
  size_t bytes = size_t(__stop_metal_threadgroup - __start_metal_threadgroup);
  std::memset(__start_metal_threadgroup, 0xff, bytes);
  return bytes;
#else
  return 0;
#endif
}

inline void run(const Launch& launch, const std::function<void(const Place&)>& kernel) {
  uint3 grid = launch.grid, nominal, groups;
  for (int i = 0; i < 3; ++i) {
    nominal[i] = std::min(launch.group[i], grid[i]);
    groups[i] = (grid[i] + nominal[i] - 1) / nominal[i];
  }
  if (spoil_threadgroup_memory() > 32768) fail("more than 32768 bytes of threadgroup memory");
  uint size = volume(nominal);
  std::vector<SimdGroup> simds((size + width - 1) / width);
  Barrier barrier, between;
  between.begin(size);
  auto body = [&](uint index) {
    for (uint g = 0; g < volume(groups); ++g) {
      uint3 group = position(g, groups), actual;
      for (int i = 0; i < 3; ++i) actual[i] = std::min(nominal[i], grid[i] - group[i] * nominal[i]);
      uint count = volume(actual);
      if (index == 0) {
        spoil_threadgroup_memory();
        barrier.begin(count);
        for (uint s = 0; s < simds.size(); ++s) simds[s].begin(count > s * width ? count - s * width : 0);
      }
      between.wait([] {});
      if (index < count) {
        Lane here{&simds, &barrier, &simds[index / width], index % width};
        lane = &here;
        uint3 inside = position(index, actual);
        Place place{};
        place.dispatch_quadgroups_per_threadgroup = (size + 3) / 4;
        place.dispatch_simdgroups_per_threadgroup = (size + width - 1) / width;
        place.dispatch_threads_per_threadgroup = nominal;
        place.grid_origin = uint3(0u, 0u, 0u);
        place.grid_size = place.threads_per_grid = grid;
        place.quadgroup_index_in_threadgroup = index / 4;
        place.quadgroups_per_threadgroup = (count + 3) / 4;
        place.simdgroup_index_in_threadgroup = index / width;
        place.simdgroups_per_threadgroup = (count + width - 1) / width;
        place.thread_execution_width = place.threads_per_simdgroup = width;
        place.thread_index_in_quadgroup = index % 4;
        place.thread_index_in_simdgroup = index % width;
        place.thread_index_in_threadgroup = index;
        place.thread_position_in_threadgroup = inside;
        place.threadgroup_position_in_grid = group;
        place.threadgroups_per_grid = groups;
        place.threads_per_threadgroup = actual;
        place.thread_position_in_grid = group * nominal + inside;
        kernel(place);
        here.simd->leave(here.index);
        barrier.leave();
      }
      between.wait([] {});
    }
  };
  std::vector<std::thread> threads;
  for (uint i = 1; i < size; ++i) threads.emplace_back(body, i);
  body(0);
  for (auto& thread : threads) thread.join();
}

inline void write_outputs(const Launch& launch) {
  for (const Buffer& out : launch.outputs)
    if (out.bytes > 0 && std::fwrite(out.data, 1, out.bytes, stdout) != out.bytes) fail("the outputs cannot be written");
  if (std::fflush(stdout) != 0) fail("the outputs cannot be written");
}

}  // namespace metal_host

// What MLX puts before every kernel, as far as kernels rely on it.
inline int64_t elem_to_loc(uint elem, const int* shape, const int64_t* strides, int ndim) {
  int64_t at = 0;
  for (int i = ndim - 1; i >= 0 && elem > 0; --i, elem /= shape[i + 1]) at += elem % shape[i] * strides[i];
  return at;
}
inline int ceildiv(int n, int m) { return (n + m - 1) / m; }
