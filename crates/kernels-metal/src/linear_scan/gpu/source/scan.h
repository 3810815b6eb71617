// h[t] = a[t] h[t-1] + u[t] for one column of M and one segment of the steps, which are counted in walking order.
//   sizes  T, M, steps in a segment, segments, reversed, whether a is the same for all steps
// The reads of UNROLLED steps are under way before the first of them is waited for.

// The segment as if nothing came before it: the product of the factors, and the state built from zero.
template <int UNROLLED, typename PZ, typename PA, typename PU, typename OP, typename OS>
KERNEL_INLINE void linear_summary(PZ sizes, PA a, PU u, OP products, OS states, int64 index) {
  const int T = sizes[0], M = sizes[1], length = sizes[2];
  const bool reversed = sizes[4] != 0, fixed = sizes[5] != 0;
  if (index >= int64(sizes[3] - 1) * M) return;
  const int m = int(index % M), begin = int(index / M) * length;
  const int64 first = reversed ? T - 1 - begin : begin, step = reversed ? -M : M, factor_step = fixed ? 0 : step;
  int64 at = first * M + m, factor_at = fixed ? m : at;
  float product = 1.0f, h = 0.0f;
  for (int s = 0; s < length; s += UNROLLED) {
    float factors[UNROLLED], summands[UNROLLED];
    UNROLL for (int k = 0; k < UNROLLED; ++k) {
      const bool real = s + k < length && begin + s + k < T;
      factors[k] = real ? float(a[factor_at + k * factor_step]) : 1.0f;
      summands[k] = real ? float(u[at + k * step]) : 0.0f;
    }
    UNROLL for (int k = 0; k < UNROLLED; ++k) {
      product *= factors[k];
      h = factors[k] * h + summands[k];
    }
    at += UNROLLED * step;
    factor_at += UNROLLED * factor_step;
  }
  products[index] = product;
  states[index] = h;
}

template <typename O, int UNROLLED, typename PZ, typename PA, typename PU, typename PH, typename PP, typename PS,
          typename OH, typename OL>
KERNEL_INLINE void linear_forward(PZ sizes, PA a, PU u, PH h0, PP products, PS states, OH all, OL last, int64 index) {
  const int T = sizes[0], M = sizes[1], length = sizes[2], segments = sizes[3];
  const bool reversed = sizes[4] != 0, fixed = sizes[5] != 0;
  if (index >= int64(segments) * M) return;
  const int m = int(index % M), segment = int(index / M), begin = segment * length;
  const int64 first = reversed ? T - 1 - begin : begin, step = reversed ? -M : M, factor_step = fixed ? 0 : step;
  int64 at = first * M + m, factor_at = fixed ? m : at;
  float h = h0[m];
  for (int s = 0; s < segment; ++s) h = products[int64(s) * M + m] * h + states[int64(s) * M + m];
  for (int s = 0; s < length; s += UNROLLED) {
    float factors[UNROLLED], summands[UNROLLED];
    UNROLL for (int k = 0; k < UNROLLED; ++k) {
      const bool real = s + k < length && begin + s + k < T;
      factors[k] = real ? float(a[factor_at + k * factor_step]) : 1.0f;
      summands[k] = real ? float(u[at + k * step]) : 0.0f;
    }
    UNROLL for (int k = 0; k < UNROLLED; ++k) {
      h = factors[k] * h + summands[k];
      if (s + k < length && begin + s + k < T) all[at + k * step] = O(h);
    }
    at += UNROLLED * step;
    factor_at += UNROLLED * factor_step;
  }
  if (segment == segments - 1) last[m] = h;
}
