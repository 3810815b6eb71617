// What the kernels' common text needs and CUDA spells in its own way. THREADS and GROUPS are defined before it: a group's size
// and how many groups a multiprocessor should hold at once, for the compiler's choice of registers. MLX writes the signature,
// so they come into it through its first word.
#undef __global__
#define __global__ __attribute__((global)) __launch_bounds__(THREADS, GROUPS)

typedef long long int64;
#define SHARED
#define PRIVATE
// The launch says how many: what a source declares itself is limited to 48 KiB.
#define SHARED_FLOATS(name, count)    \
  extern __shared__ float4 name##_fours[]; \
  float* name = reinterpret_cast<float*>(name##_fours)
#define KERNEL_INLINE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define UNROLL_TWICE _Pragma("unroll 2")
#define UNROLL_FOURFOLD _Pragma("unroll 4")
#define KEEP_LOOP _Pragma("unroll 1")
#define BARRIER() __syncthreads()
#define SHUFFLE_XOR(value, mask) __shfl_xor_sync(0xffffffffu, value, mask)
#define threadgroup_position_in_grid blockIdx
#define thread_position_in_threadgroup threadIdx
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define MINUS_INFINITY __int_as_float(0xff800000)

KERNEL_INLINE float natural_log(float x) { return logf(x); }

// 2^x; 0 where that is below the normal numbers. Relative error 2^-22.5 or less.
KERNEL_INLINE float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

struct Four {
  float v[4];
};

KERNEL_INLINE Four load_four(const float* from) {
  const float4 q = *reinterpret_cast<const float4*>(from);
  return {{q.x, q.y, q.z, q.w}};
}

KERNEL_INLINE void store_four(float* to, float a, float b, float c, float d) {
  *reinterpret_cast<float4*>(to) = make_float4(a, b, c, d);
}
