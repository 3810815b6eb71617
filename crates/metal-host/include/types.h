// Metal's scalar and vector types in C++. Vectors have components and arithmetic, but no swizzles.
#pragma once
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

using uint = unsigned int;
using ushort = unsigned short;
using uchar = unsigned char;
using ulong = unsigned long;

using half = _Float16;

// Computes in float and rounds after every operation, to nearest even. A float becomes one by a cast only.
struct bfloat {
  uint16_t bits;
  bfloat() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T> || std::is_same_v<T, half>>>
  explicit bfloat(T value) {
    float f = float(value);
    uint32_t u;
    std::memcpy(&u, &f, 4);
    bits = f != f ? 0x7fc0 : uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  }
  operator float() const {
    uint32_t u = uint32_t(bits) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  }
};
#define METAL_HOST_OP(op)                                                                        \
  inline bfloat operator op(bfloat a, bfloat b) { return bfloat(float(a) op float(b)); }         \
  inline bfloat& operator op##=(bfloat& a, bfloat b) { return a = a op b; }
METAL_HOST_OP(+)
METAL_HOST_OP(-)
METAL_HOST_OP(*)
METAL_HOST_OP(/)
#undef METAL_HOST_OP
inline bfloat operator-(bfloat a) { return bfloat(-float(a)); }

// MLX's names.
using float16_t = half;
using bfloat16_t = bfloat;

namespace metal {

template <class T, int N>
struct components;
template <class T>
struct alignas(2 * sizeof(T)) components<T, 2> { T x, y; };
template <class T>
struct alignas(4 * sizeof(T)) components<T, 3> { T x, y, z; };
template <class T>
struct alignas(4 * sizeof(T)) components<T, 4> { T x, y, z, w; };

template <class T, int N>
struct vec : components<T, N> {
  vec() = default;
  explicit(N > 1) vec(T all) { for (int i = 0; i < N; ++i) (*this)[i] = all; }
  template <class... U, class = std::enable_if_t<sizeof...(U) == N && (N > 1)>>
  vec(U... each) { T list[] = {T(each)...}; std::memcpy(this, list, N * sizeof(T)); }
  template <class U>
  explicit vec(const vec<U, N>& other) { for (int i = 0; i < N; ++i) (*this)[i] = T(other[i]); }
  T& operator[](int i) { return reinterpret_cast<T*>(this)[i]; }
  const T& operator[](int i) const { return reinterpret_cast<const T*>(this)[i]; }
};

// Without padding and with the alignment of one component.
template <class T, int N>
struct packed_vec {
  T list[N];
  packed_vec() = default;
  packed_vec(const vec<T, N>& v) { for (int i = 0; i < N; ++i) list[i] = v[i]; }
  operator vec<T, N>() const { vec<T, N> v; for (int i = 0; i < N; ++i) v[i] = list[i]; return v; }
  T& operator[](int i) { return list[i]; }
  const T& operator[](int i) const { return list[i]; }
};

#define METAL_HOST_OP(op)                                                                                  \
  template <class T, int N>                                                                                \
  vec<T, N> operator op(vec<T, N> a, vec<T, N> b) { for (int i = 0; i < N; ++i) a[i] = a[i] op b[i]; return a; }   \
  template <class T, int N>                                                                                \
  vec<T, N> operator op(vec<T, N> a, std::type_identity_t<T> b) { return a op vec<T, N>(b); }              \
  template <class T, int N>                                                                                \
  vec<T, N> operator op(std::type_identity_t<T> a, vec<T, N> b) { return vec<T, N>(a) op b; }              \
  template <class T, int N, class U>                                                                       \
  vec<T, N>& operator op##=(vec<T, N>& a, U b) { return a = a op b; }
METAL_HOST_OP(+)
METAL_HOST_OP(-)
METAL_HOST_OP(*)
METAL_HOST_OP(/)
#undef METAL_HOST_OP
template <class T, int N>
vec<T, N> operator-(vec<T, N> a) { for (int i = 0; i < N; ++i) a[i] = -a[i]; return a; }
template <class T, int N>
T dot(vec<T, N> a, vec<T, N> b) { T sum = a[0] * b[0]; for (int i = 1; i < N; ++i) sum += a[i] * b[i]; return sum; }

}  // namespace metal

#define METAL_HOST_VECTORS(T)                                                        \
  using T##2 = metal::vec<T, 2>;                                                     \
  using T##3 = metal::vec<T, 3>;                                                     \
  using T##4 = metal::vec<T, 4>;                                                     \
  using packed_##T##2 = metal::packed_vec<T, 2>;                                     \
  using packed_##T##3 = metal::packed_vec<T, 3>;                                     \
  using packed_##T##4 = metal::packed_vec<T, 4>;
METAL_HOST_VECTORS(float)
METAL_HOST_VECTORS(half)
METAL_HOST_VECTORS(bfloat)
METAL_HOST_VECTORS(int)
METAL_HOST_VECTORS(uint)
METAL_HOST_VECTORS(short)
METAL_HOST_VECTORS(ushort)
METAL_HOST_VECTORS(char)
METAL_HOST_VECTORS(uchar)
#undef METAL_HOST_VECTORS

template <class To, class From>
To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}
