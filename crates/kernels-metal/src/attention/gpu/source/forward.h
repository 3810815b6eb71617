// Y, the rows' log-sum-exp and, for a gradient, their largest score and 1 / sum of exp (score - largest): BM queries of one
// head for a group, BN keys at a time.
template <typename T, int BM, int BN, int EP, int TX, int W, int MASK, typename PZ, typename PS, typename PT, typename PM,
          typename OY, typename OF>
KERNEL_INLINE void attention_forward(PZ sizes, PS scale, PT q, PT k, PT v, PM mask, OY y, OF lse, OF stats,
                                     SHARED float* shared, int group, int tid) {
  constexpr int TY = W / TX, RM = BM / TY, RN = BN / TX, RE = EP / TX, PITCH = EP + 4;
  const Problem of(sizes);
  const int heads = of.B * of.HQ, head = group % heads;
  // The last queries see most under a causal mask: they come first.
  const int m0 = ((of.L + BM - 1) / BM - 1 - group / heads) * BM;
  const int64 key_head = int64(head / of.HQ) * of.HK + head % of.HQ / (of.HQ / of.HK), first = int64(head) * of.L + m0;
  const Sight<MASK, PM> sight(of, mask, head);
  const int tx = Grid<TX>::x(tid), ty = Grid<TX>::y(tid);
  SHARED float* s_q = shared;
  SHARED float* s_k = s_q + BM * PITCH;
  SHARED float* s_v = s_k + BN * PITCH;
  SHARED float* s_p = s_v + BN * PITCH;

  load_tile<BM, EP, W>(s_q, q + first * of.E, of.L - m0, of.E, tid);
  float out[RM][RE], top[RM], sum[RM];
  UNROLL for (int i = 0; i < RM; ++i) {
    top[i] = MINUS_INFINITY;
    sum[i] = 0.0f;
    UNROLL for (int j = 0; j < RE; ++j) out[i][j] = 0.0f;
  }
  const int end = sight.end(m0 + BM);
  KEEP_LOOP for (int n0 = 0; n0 < end; n0 += BN) {
    load_tile<BN, EP, W>(s_k, k + (key_head * of.S + n0) * of.E, of.S - n0, of.E, tid);
    load_tile<BN, EP, W>(s_v, v + (key_head * of.S + n0) * of.EV, of.S - n0, of.EV, tid);
    BARRIER();
    float c[RM][RN];
    UNROLL for (int i = 0; i < RM; ++i) {
      UNROLL for (int j = 0; j < RN; ++j) c[i][j] = 0.0f;
    }
    multiply_rows<RM, RN, TX, TY, EP>(c, s_q, s_k, tx, ty);
    sight.template scores<BM, BN, RM, RN, TX, TY>(c, scale[0], m0, n0, tx, ty);
    UNROLL for (int i = 0; i < RM; ++i) {
      float most = c[i][0];
      UNROLL for (int j = 1; j < RN; ++j) most = c[i][j] > most ? c[i][j] : most;
      most = Grid<TX>::largest(most);
      most = top[i] > most ? top[i] : most;
      const float base = most == MINUS_INFINITY ? 0.0f : most;
      const float decay = power_of_two((top[i] - base) * LOG2_E);
      top[i] = most;
      sum[i] *= decay;
      UNROLL for (int j = 0; j < RE; ++j) out[i][j] *= decay;
      UNROLL for (int j = 0; j < RN; ++j) {
        const float p = power_of_two((c[i][j] - base) * LOG2_E);
        sum[i] += p;
        s_p[(ty + i * TY) * (BN + 4) + tx + j * TX] = p;
      }
    }
    BARRIER();
    multiply<RM, RE, TX, TY, BN, EP>(out, s_p, s_v, tx, ty);
    BARRIER();
  }
  UNROLL for (int i = 0; i < RM; ++i) {
    const int m = ty + i * TY;
    const float whole = Grid<TX>::sum(sum[i]), factor = whole == 0.0f ? 0.0f : 1.0f / whole;
    if (m0 + m < of.L) {
      UNROLL for (int j = 0; j < RE; ++j) {
        const int e = tx * 4 + j / 4 * 4 * TX + j % 4;
        if (e < of.EV) y[(first + m) * of.EV + e] = T(out[i][j] * factor);
      }
      if (tx == 0) {
        lse[first + m] = whole == 0.0f ? MINUS_INFINITY : top[i] + natural_log(whole);
        stats[(first + m) * 2] = whole == 0.0f ? 0.0f : top[i];
        stats[(first + m) * 2 + 1] = factor;
      }
    }
  }
}
