// Which keys a query sees, and what is added to their scores, or takes their place if it is as low as REPLACES.
#define REPLACES (-1e28f)

// The sizes that all kernels are given: B, Hq, Hk, L, S, E, Ev, whether causal, and the mask's four.
struct Problem {
  int B, HQ, HK, L, S, E, EV, causal, mask_batch, mask_heads, mask_rows, mask_columns;

  template <typename P>
  KERNEL_INLINE Problem(P sizes)
      : B(sizes[0]), HQ(sizes[1]), HK(sizes[2]), L(sizes[3]), S(sizes[4]), E(sizes[5]), EV(sizes[6]), causal(sizes[7]),
        mask_batch(sizes[8]), mask_heads(sizes[9]), mask_rows(sizes[10]), mask_columns(sizes[11]) {}
};

// MASK: 0 none, 1 true where a key is seen, 2 added.
template <int MASK, typename PM>
struct Sight {
  PM mask;
  int L, keys, causal, row_step, column_step;

  // For query head `head` of all.
  KERNEL_INLINE Sight(Problem of, PM all, int head) : mask(all), L(of.L), keys(of.S), causal(of.causal) {
    const int b = of.mask_batch == 1 ? 0 : head / of.HQ, h = of.mask_heads == 1 ? 0 : head % of.HQ;
    mask += (int64(b) * of.mask_heads + h) * of.mask_rows * of.mask_columns;
    column_step = of.mask_columns == 1 ? 0 : 1;
    row_step = of.mask_rows == 1 ? 0 : of.mask_columns;
    if (MASK != 0 && of.mask_columns != 1 && of.mask_columns < keys) keys = of.mask_columns;
  }

  // Keys from here on are hidden from queries below `queries`.
  KERNEL_INLINE int end(int queries) const { return causal && queries < keys ? queries : keys; }

  // Turns products of queries m0 + y + i TY and keys n0 + x + j TX into scores.
  template <int BM, int BN, int RM, int RN, int TX, int TY, typename V>
  KERNEL_INLINE void scores(V c, float scale, int m0, int n0, int x, int y) const {
    const bool all = n0 + BN <= keys && !(causal && n0 + BN - 1 > m0) && (MASK == 0 || m0 + BM <= L);
    UNROLL for (int i = 0; i < RM; ++i) {
      const int m = m0 + y + i * TY;
      UNROLL for (int j = 0; j < RN; ++j) {
        const int n = n0 + x + j * TX;
        float score = c[i][j] * scale;
        if (all || (n < keys && m < L && !(causal && n > m))) {
          if (MASK == 1 && !mask[int64(m) * row_step + n * column_step]) score = MINUS_INFINITY;
          if (MASK == 2) {
            const float bias = float(mask[int64(m) * row_step + n * column_step]);
            score = bias <= REPLACES ? bias : score + bias;
          }
        } else {
          score = MINUS_INFINITY;
        }
        c[i][j] = score;
      }
    }
  }
};
