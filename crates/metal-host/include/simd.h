// Barriers and the functions by which the lanes of a SIMD group exchange values.
#pragma once
#include "math.h"
#include "threads.h"

namespace metal_host {

template <class T>
struct Values {
  const Slots& slots;
  bool has(uint from) const { return from < width && (slots.active >> from & 1); }
  // What another lane gave. One that is not there gives what nobody should use: all bits set.
  T operator[](uint from) const {
    T value;
    if (has(from)) std::memcpy(&value, slots.value[from], sizeof(T));
    else std::memset(static_cast<void*>(&value), 0xff, sizeof(T));
    return value;
  }
  template <class F>
  T fold(F f, uint end = width) const {
    uint i = 0;
    while (i < end && !has(i)) ++i;
    T all = (*this)[i];
    while (++i < end) if (has(i)) all = f(all, (*this)[i]);
    return all;
  }
};

template <class T>
Values<T> exchange(const T& mine, const char* function) {
  static_assert(sizeof(T) <= 64);
  Lane& me = *lane;
  uint round = me.round++;
  std::memcpy(me.simd->slots[round & 1].value[me.index], &mine, sizeof(T));
  return {me.simd->meet(round, function)};
}

}  // namespace metal_host

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

inline void threadgroup_barrier(mem_flags) {
  metal_host::Lane& me = *metal_host::lane;
  me.simd->park();
  me.barrier->wait([&] { for (auto& simd : *me.simds) simd.unpark(); });
}
inline void simdgroup_barrier(mem_flags) { metal_host::exchange(0, "simdgroup_barrier"); }

#define METAL_HOST_REDUCE(name, expression)                                                        \
  template <class T>                                                                               \
  T simd_##name(T mine) {                                                                          \
    return metal_host::exchange(mine, "simd_" #name).fold([](T a, T b) { return T(expression); }); \
  }
METAL_HOST_REDUCE(sum, a + b)
METAL_HOST_REDUCE(product, a * b)
METAL_HOST_REDUCE(min, metal::min(a, b))
METAL_HOST_REDUCE(max, metal::max(a, b))
METAL_HOST_REDUCE(and, a & b)
METAL_HOST_REDUCE(or, a | b)
METAL_HOST_REDUCE(xor, a ^ b)
#undef METAL_HOST_REDUCE

#define METAL_HOST_PREFIX(name, op, none)                                                          \
  template <class T>                                                                               \
  T simd_prefix_inclusive_##name(T mine) {                                                         \
    auto all = metal_host::exchange(mine, "simd_prefix_inclusive_" #name);                         \
    return all.fold([](T a, T b) { return T(a op b); }, metal_host::lane->index + 1);              \
  }                                                                                                \
  template <class T>                                                                               \
  T simd_prefix_exclusive_##name(T mine) {                                                         \
    auto all = metal_host::exchange(mine, "simd_prefix_exclusive_" #name);                         \
    uint me = metal_host::lane->index;                                                             \
    bool first = (all.slots.active & ((1u << me) - 1)) == 0;                                       \
    return first ? T(none) : all.fold([](T a, T b) { return T(a op b); }, me);                     \
  }
METAL_HOST_PREFIX(sum, +, 0)
METAL_HOST_PREFIX(product, *, 1)
#undef METAL_HOST_PREFIX

template <class T>
T simd_broadcast(T mine, ushort from) { return metal_host::exchange(mine, "simd_broadcast")[from]; }
template <class T>
T simd_broadcast_first(T mine) {
  auto all = metal_host::exchange(mine, "simd_broadcast_first");
  return all[__builtin_ctz(all.slots.active)];
}
template <class T>
T simd_shuffle(T mine, ushort from) { return metal_host::exchange(mine, "simd_shuffle")[from]; }
template <class T>
T simd_shuffle_xor(T mine, ushort mask) {
  return metal_host::exchange(mine, "simd_shuffle_xor")[metal_host::lane->index ^ mask];
}
// Lanes that would read past an end keep their own value.
template <class T>
T simd_shuffle_up(T mine, ushort by) {
  auto all = metal_host::exchange(mine, "simd_shuffle_up");
  return metal_host::lane->index < by ? mine : all[metal_host::lane->index - by];
}
template <class T>
T simd_shuffle_down(T mine, ushort by) {
  auto all = metal_host::exchange(mine, "simd_shuffle_down");
  return metal_host::lane->index + by >= metal_host::width ? mine : all[metal_host::lane->index + by];
}
template <class T>
T simd_shuffle_and_fill_up(T mine, T fill, ushort by) {
  auto all = metal_host::exchange(mine, "simd_shuffle_and_fill_up");
  uint me = metal_host::lane->index;
  auto other = metal_host::exchange(fill, "simd_shuffle_and_fill_up");
  return me < by ? other[metal_host::width - by + me] : all[me - by];
}
template <class T>
T simd_shuffle_and_fill_down(T mine, T fill, ushort by) {
  auto all = metal_host::exchange(mine, "simd_shuffle_and_fill_down");
  uint from = metal_host::lane->index + by;
  auto other = metal_host::exchange(fill, "simd_shuffle_and_fill_down");
  return from >= metal_host::width ? other[from - metal_host::width] : all[from];
}
template <class T>
T simd_shuffle_rotate_up(T mine, ushort by) {
  return metal_host::exchange(mine, "simd_shuffle_rotate_up")[(metal_host::lane->index - by) % metal_host::width];
}
template <class T>
T simd_shuffle_rotate_down(T mine, ushort by) {
  return metal_host::exchange(mine, "simd_shuffle_rotate_down")[(metal_host::lane->index + by) % metal_host::width];
}

inline bool simd_any(bool mine) { return metal_host::exchange(mine, "simd_any").fold([](bool a, bool b) { return a || b; }); }
inline bool simd_all(bool mine) { return metal_host::exchange(mine, "simd_all").fold([](bool a, bool b) { return a && b; }); }
inline bool simd_is_first() {
  return (metal_host::exchange(0, "simd_is_first").slots.active & ((1u << metal_host::lane->index) - 1)) == 0;
}
struct simd_vote {
  ulong mask;
  explicit operator ulong() const { return mask; }
  bool any() const { return mask != 0; }
};
inline simd_vote simd_ballot(bool mine) {
  auto all = metal_host::exchange(mine, "simd_ballot");
  simd_vote votes{0};
  for (uint i = 0; i < metal_host::width; ++i) if (all.has(i) && all[i]) votes.mask |= 1ul << i;
  return votes;
}

template <class T>
T quad_shuffle_xor(T mine, ushort mask) {
  return metal_host::exchange(mine, "quad_shuffle_xor")[metal_host::lane->index ^ (mask & 3)];
}
template <class T>
T quad_broadcast(T mine, ushort from) {
  return metal_host::exchange(mine, "quad_broadcast")[(metal_host::lane->index & ~3u) | from];
}
template <class T>
T quad_sum(T mine) {
  auto all = metal_host::exchange(mine, "quad_sum");
  uint first = metal_host::lane->index & ~3u;
  T sum = all[first];
  for (uint i = 1; i < 4; ++i) if (all.has(first + i)) sum = T(sum + all[first + i]);
  return sum;
}

}  // namespace metal
