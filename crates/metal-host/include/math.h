// Metal's functions on numbers. All of them are as exact as the host's: neither fast:: nor the fast-math mode is imitated.
#pragma once
#include <algorithm>
#include <atomic>
#include "types.h"

#define M_E_F 2.71828182845904523536028747135266250f
#define M_LOG2E_F 1.44269504088896340735992468100189214f
#define M_LOG10E_F 0.434294481903251827651128918916605082f
#define M_LN2_F 0.693147180559945309417232121458176568f
#define M_LN10_F 2.30258509299404568401799145468436421f
#define M_PI_F 3.14159265358979323846264338327950288f
#define M_PI_2_F 1.57079632679489661923132169163975144f
#define M_1_PI_F 0.318309886183790671537767526745028724f
#define M_2_SQRTPI_F 1.12837916709551257389615890312154517f
#define M_SQRT2_F 1.41421356237309504880168872420969808f
#define M_SQRT1_2_F 0.707106781186547524400844362104849039f
#define HALF_MAX half(65504.0f)

namespace metal {
namespace of_float {
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline float exp10(float x) { return float(std::pow(10.0, double(x))); }
inline float fract(float x) { return std::fmin(x - std::floor(x), 0x1.fffffep-1f); }
inline float sign(float x) { return float(x > 0) - float(x < 0); }
using std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atanh, std::ceil, std::cos, std::cosh, std::exp;
using std::exp2, std::floor, std::log, std::log10, std::log2, std::rint, std::round, std::sin, std::sinh, std::sqrt;
using std::tan, std::tanh, std::trunc;
}  // namespace of_float

#define METAL_HOST_UNARY(f)                                                                        \
  inline float f(float x) { return of_float::f(x); }                                               \
  inline half f(half x) { return half(of_float::f(float(x))); }                                    \
  inline bfloat f(bfloat x) { return bfloat(of_float::f(float(x))); }                              \
  template <class T, int N>                                                                        \
  vec<T, N> f(vec<T, N> x) { for (int i = 0; i < N; ++i) x[i] = f(x[i]); return x; }
#define METAL_HOST_ALL_UNARY                                                                       \
  METAL_HOST_UNARY(acos) METAL_HOST_UNARY(acosh) METAL_HOST_UNARY(asin) METAL_HOST_UNARY(asinh)    \
  METAL_HOST_UNARY(atan) METAL_HOST_UNARY(atanh) METAL_HOST_UNARY(ceil) METAL_HOST_UNARY(cos)      \
  METAL_HOST_UNARY(cosh) METAL_HOST_UNARY(exp) METAL_HOST_UNARY(exp2) METAL_HOST_UNARY(exp10)      \
  METAL_HOST_UNARY(floor) METAL_HOST_UNARY(fract) METAL_HOST_UNARY(log) METAL_HOST_UNARY(log2)     \
  METAL_HOST_UNARY(log10) METAL_HOST_UNARY(rint) METAL_HOST_UNARY(round) METAL_HOST_UNARY(rsqrt)   \
  METAL_HOST_UNARY(sign) METAL_HOST_UNARY(sin) METAL_HOST_UNARY(sinh) METAL_HOST_UNARY(sqrt)       \
  METAL_HOST_UNARY(tan) METAL_HOST_UNARY(tanh) METAL_HOST_UNARY(trunc)
METAL_HOST_ALL_UNARY
namespace precise { METAL_HOST_ALL_UNARY }
namespace fast { METAL_HOST_ALL_UNARY }
#undef METAL_HOST_ALL_UNARY
#undef METAL_HOST_UNARY

inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
inline half fma(half a, half b, half c) { return half(double(a) * double(b) + double(c)); }
template <class T, int N>
vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) { for (int i = 0; i < N; ++i) a[i] = fma(a[i], b[i], c[i]); return a; }
inline float pow(float a, float b) { return std::pow(a, b); }
inline float powr(float a, float b) { return std::pow(a, b); }
inline float atan2(float a, float b) { return std::atan2(a, b); }
inline float fmod(float a, float b) { return std::fmod(a, b); }
inline float ldexp(float a, int b) { return std::ldexp(a, b); }
inline float copysign(float a, float b) { return std::copysign(a, b); }
inline float fmin(float a, float b) { return std::fmin(a, b); }
inline float fmax(float a, float b) { return std::fmax(a, b); }
inline float divide(float a, float b) { return a / b; }
namespace precise {
inline float divide(float a, float b) { return a / b; }
inline float pow(float a, float b) { return std::pow(a, b); }
}  // namespace precise
namespace fast {
inline float divide(float a, float b) { return a / b; }
inline float pow(float a, float b) { return std::pow(a, b); }
}  // namespace fast

template <class T>
bool isnan(T x) { return std::isnan(float(x)); }
template <class T>
bool isinf(T x) { return std::isinf(float(x)); }
template <class T>
bool isfinite(T x) { return std::isfinite(float(x)); }

template <class T>
T abs(T x) { return x < T(0) ? T(-x) : x; }
inline float abs(float x) { return std::fabs(x); }
inline float fabs(float x) { return std::fabs(x); }
inline half fabs(half x) { return half(std::fabs(float(x))); }
template <class T>
T min(T a, T b) { return b < a || a != a ? b : a; }
template <class T>
T max(T a, T b) { return a < b || a != a ? b : a; }
template <class T, int N>
vec<T, N> min(vec<T, N> a, vec<T, N> b) { for (int i = 0; i < N; ++i) a[i] = min(a[i], b[i]); return a; }
template <class T, int N>
vec<T, N> max(vec<T, N> a, vec<T, N> b) { for (int i = 0; i < N; ++i) a[i] = max(a[i], b[i]); return a; }
template <class T>
T clamp(T x, std::type_identity_t<T> low, std::type_identity_t<T> high) { return min(max(x, low), high); }
template <class T>
T select(T no, T yes, bool condition) { return condition ? yes : no; }
template <class T>
T mix(T a, T b, T t) { return a + (b - a) * t; }

inline uint popcount(uint x) { return __builtin_popcount(x); }
inline uint clz(uint x) { return x ? __builtin_clz(x) : 32; }
inline uint ctz(uint x) { return x ? __builtin_ctz(x) : 32; }
inline uint mulhi(uint a, uint b) { return uint((uint64_t(a) * b) >> 32); }

template <class T>
using atomic = std::atomic<T>;
using atomic_int = std::atomic<int>;
using atomic_uint = std::atomic<uint>;
using atomic_float = std::atomic<float>;
using std::memory_order;
constexpr memory_order memory_order_relaxed = std::memory_order_relaxed;
#define METAL_HOST_ATOMIC(name, update)                                                            \
  template <class T>                                                                               \
  T atomic_fetch_##name##_explicit(volatile std::atomic<T>* at, std::type_identity_t<T> by, memory_order) { \
    T old = at->load();                                                                            \
    while (!at->compare_exchange_weak(old, update)) {}                                             \
    return old;                                                                                    \
  }
METAL_HOST_ATOMIC(add, T(old + by))
METAL_HOST_ATOMIC(sub, T(old - by))
METAL_HOST_ATOMIC(min, metal::min(old, by))
METAL_HOST_ATOMIC(max, metal::max(old, by))
METAL_HOST_ATOMIC(and, T(old & by))
METAL_HOST_ATOMIC(or, T(old | by))
METAL_HOST_ATOMIC(xor, T(old ^ by))
#undef METAL_HOST_ATOMIC
template <class T>
T atomic_load_explicit(const volatile std::atomic<T>* at, memory_order) { return at->load(); }
template <class T>
void atomic_store_explicit(volatile std::atomic<T>* at, std::type_identity_t<T> value, memory_order) { at->store(value); }
template <class T>
T atomic_exchange_explicit(volatile std::atomic<T>* at, std::type_identity_t<T> value, memory_order) { return at->exchange(value); }
template <class T>
bool atomic_compare_exchange_weak_explicit(volatile std::atomic<T>* at, T* old, std::type_identity_t<T> value, memory_order, memory_order) {
  return at->compare_exchange_weak(*old, value);
}

}  // namespace metal
