// An array's elements to the caller's memory in one pass, however they lie.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "bridge.h"
#include "device_memory.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"
#include "mlx/mlx.h"

namespace {

namespace mx = mlx::core;

// A dimension: how many entries, and how many bytes lie between them.
struct Axis {
  int64_t count;
  int64_t from;
  int64_t to;
};

// Entries of this many rows and columns at once stay in the first cache.
constexpr int64_t TILE = 16;

template <typename T>
void copy_tiles(const char* from, char* to, const Axis& rows, const Axis& columns) {
  for (int64_t r0 = 0; r0 < rows.count; r0 += TILE) {
    int64_t r1 = std::min(r0 + TILE, rows.count);
    for (int64_t c0 = 0; c0 < columns.count; c0 += TILE) {
      int64_t c1 = std::min(c0 + TILE, columns.count);
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) {
          std::memcpy(
              to + r * rows.to + c * columns.to, from + r * rows.from + c * columns.from, sizeof(T));
        }
      }
    }
  }
}

void copy_plane(const char* from, char* to, const Axis& rows, const Axis& columns, size_t itemsize) {
  if (columns.from == static_cast<int64_t>(itemsize)) {
    for (int64_t r = 0; r < rows.count; ++r) {
      std::memcpy(to + r * rows.to, from + r * rows.from, columns.count * itemsize);
    }
    return;
  }
  switch (itemsize) {
    case 1:
      return copy_tiles<uint8_t>(from, to, rows, columns);
    case 2:
      return copy_tiles<uint16_t>(from, to, rows, columns);
    case 4:
      return copy_tiles<uint32_t>(from, to, rows, columns);
    default:
      return copy_tiles<uint64_t>(from, to, rows, columns);
  }
}

// The dimensions of more than one entry, those that lie alike on both sides as one.
std::vector<Axis> axes_of(const mx::array& a) {
  std::vector<Axis> axes;
  int64_t to = a.itemsize();
  for (int i = static_cast<int>(a.ndim()) - 1; i >= 0; --i) {
    int64_t count = a.shape(i);
    int64_t from = a.strides()[i] * static_cast<int64_t>(a.itemsize());
    if (count == 1) {
      continue;
    }
    if (!axes.empty() && axes.back().from * axes.back().count == from) {
      axes.back().count *= count;
    } else {
      axes.push_back({count, from, to});
    }
    to *= count;
  }
  std::reverse(axes.begin(), axes.end());
  return axes;
}

void copy(const char* from, char* to, const Axis* first, const Axis* last, size_t itemsize) {
  if (last - first == 2) {
    return copy_plane(from, to, first[0], first[1], itemsize);
  }
  for (int64_t i = 0; i < first->count; ++i) {
    copy(from + i * first->from, to + i * first->to, first + 1, last, itemsize);
  }
}

// What is larger is copied by two threads: one core does not use all of the memory's bandwidth.
constexpr size_t LARGE = 4 << 20;

void copy_bytes(const char* from, char* to, size_t bytes) {
  if (bytes < LARGE || std::thread::hardware_concurrency() < 2) {
    std::memcpy(to, from, bytes);
    return;
  }
  size_t half = bytes / 2;
  std::thread other;
  try {
    other = std::thread([=] { std::memcpy(to + half, from + half, bytes - half); });
  } catch (const std::system_error&) {
    // No thread is to be had.
    std::memcpy(to + half, from + half, bytes - half);
  }
  std::memcpy(to, from, half);
  if (other.joinable()) {
    other.join();
  }
}

void copy_out(const mx::array& a, char* to) {
  if (a.size() == 0) {
    return;
  }
  if (ortmlx::is_on_device(a)) {
    return ortmlx::copy_to_host(a, to);
  }
  auto* from = a.data<char>();
  if (a.flags().row_contiguous) {
    return copy_bytes(from, to, a.nbytes());
  }
  auto axes = axes_of(a);
  // A plane at least; its rows are the dimension whose entries lie closest, so that a tile reads whole cache lines.
  while (axes.size() < 2) {
    axes.insert(axes.begin(), {1, 0, 0});
  }
  auto columns = axes.end() - 1;
  auto closest = std::min_element(axes.begin(), columns, [](const Axis& x, const Axis& y) {
    return std::abs(x.from) < std::abs(y.from);
  });
  std::rotate(closest, closest + 1, columns);
  copy(from, to, axes.data(), axes.data() + axes.size(), a.itemsize());
}

} // namespace

extern "C" bool ortmlx_array_is_on_device(mlx_array arr) {
  return ortmlx::is_on_device(mlx_array_get_(arr));
}

extern "C" int ortmlx_array_copy_out(mlx_array arr, void* to) {
  try {
    copy_out(mlx_array_get_(arr), static_cast<char*>(to));
    return 0;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}
