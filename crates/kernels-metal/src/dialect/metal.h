// What the kernels' common text needs and Metal spells in its own way.
typedef long int64;
#define SHARED threadgroup
#define PRIVATE thread
#define SHARED_FLOATS(name, count)                     \
  threadgroup float4 name##_fours[((count) + 3) / 4]; \
  threadgroup float* name = reinterpret_cast<threadgroup float*>(&name##_fours[0])
#define KERNEL_INLINE inline
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_TWICE _Pragma("clang loop unroll_count(2)")
#define UNROLL_FOURFOLD _Pragma("clang loop unroll_count(4)")
#define KEEP_LOOP _Pragma("clang loop unroll(disable)")
#define BARRIER() threadgroup_barrier(mem_flags::mem_threadgroup)
#define SHUFFLE_XOR(value, mask) simd_shuffle_xor(value, ushort(mask))
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define MINUS_INFINITY (-INFINITY)

inline float natural_log(float x) { return metal::precise::log(x); }

// 2^x.
inline float power_of_two(float x) { return metal::exp2(x); }

struct Four {
  float v[4];
};

inline Four load_four(const threadgroup float* from) {
  const float4 q = *reinterpret_cast<const threadgroup float4*>(from);
  return Four{{q.x, q.y, q.z, q.w}};
}

inline void store_four(threadgroup float* to, float a, float b, float c, float d) {
  *reinterpret_cast<threadgroup float4*>(to) = float4(a, b, c, d);
}
