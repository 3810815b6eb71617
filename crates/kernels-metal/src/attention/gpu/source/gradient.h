// The pullback. Probabilities are made again from scores: P = factor exp (score - shift).
KERNEL_INLINE float probability(float score, float shift, float factor) {
  const float below = score - shift;
  return factor * power_of_two((below > 0.0f ? 0.0f : below) * LOG2_E);
}

// dQ: BM queries of one head for a group, BN keys at a time.
template <typename T, int BM, int BN, int EP, int TX, int W, int MASK, typename PZ, typename PS, typename PT, typename PM,
          typename PF, typename OT>
KERNEL_INLINE void attention_grad_q(PZ sizes, PS scale, PT q, PT k, PT v, PT dy, PM mask, PF rows, OT dq,
                                    SHARED float* shared, int group, int tid) {
  constexpr int TY = W / TX, RM = BM / TY, RN = BN / TX, RE = EP / TX, PITCH = EP + 4;
  const Problem of(sizes);
  const int heads = of.B * of.HQ, head = group % heads;
  const int m0 = ((of.L + BM - 1) / BM - 1 - group / heads) * BM;
  const int64 key_head = int64(head / of.HQ) * of.HK + head % of.HQ / (of.HQ / of.HK), first = int64(head) * of.L + m0;
  const int64 count = int64(heads) * of.L;
  const Sight<MASK, PM> sight(of, mask, head);
  const int tx = Grid<TX>::x(tid), ty = Grid<TX>::y(tid);
  SHARED float* s_q = shared;
  SHARED float* s_dy = s_q + BM * PITCH;
  SHARED float* s_k = s_dy + BM * PITCH;
  SHARED float* s_v = s_k + BN * PITCH;
  SHARED float* s_p = s_v + BN * PITCH;

  load_tile<BM, EP, W>(s_q, q + first * of.E, of.L - m0, of.E, tid);
  load_tile<BM, EP, W>(s_dy, dy + first * of.EV, of.L - m0, of.EV, tid);
  float out[RM][RE], shift[RM], factor[RM], delta[RM];
  UNROLL for (int i = 0; i < RM; ++i) {
    const int m = ty + i * TY;
    const bool real = m0 + m < of.L;
    shift[i] = real ? rows[first + m] : 0.0f;
    factor[i] = real ? rows[count + first + m] : 0.0f;
    delta[i] = real ? rows[2 * count + first + m] : 0.0f;
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
      UNROLL for (int j = 0; j < RN; ++j) {
        s_p[(ty + i * TY) * (BN + 4) + tx + j * TX] = probability(c[i][j], shift[i], factor[i]);
        c[i][j] = 0.0f;
      }
    }
    multiply_rows<RM, RN, TX, TY, EP>(c, s_dy, s_v, tx, ty);
    UNROLL for (int i = 0; i < RM; ++i) {
      UNROLL for (int j = 0; j < RN; ++j) s_p[(ty + i * TY) * (BN + 4) + tx + j * TX] *= c[i][j] - delta[i];
    }
    BARRIER();
    multiply<RM, RE, TX, TY, BN, EP>(out, s_p, s_k, tx, ty);
    BARRIER();
  }
  UNROLL for (int i = 0; i < RM; ++i) {
    const int m = ty + i * TY;
    UNROLL for (int j = 0; j < RE; ++j) {
      const int e = tx * 4 + j / 4 * 4 * TX + j % 4;
      if (m0 + m < of.L && e < of.E) dq[(first + m) * of.E + e] = T(out[i][j] * scale[0]);
    }
  }
}

// dK and dV: BN keys of one key head for a group, BM queries at a time of all heads that share the key head. TX2: threads
// beside each other for dK and dV.
template <typename T, int BM, int BN, int EP, int TX, int TX2, int W, int MASK, typename PZ, typename PS, typename PT,
          typename PM, typename PF, typename OT>
KERNEL_INLINE void attention_grad_kv(PZ sizes, PS scale, PT q, PT k, PT v, PT dy, PM mask, PF rows, OT dk, OT dv,
                                     SHARED float* shared, int group, int tid) {
  constexpr int TY = W / TX, RM = BM / TY, RN = BN / TX, TY2 = W / TX2, KN = BN / TY2, RE = EP / TX2, PITCH = EP + 4;
  const Problem of(sizes);
  const int heads = of.B * of.HK, key_head = group % heads, n0 = group / heads * BN, sharing = of.HQ / of.HK;
  const int64 key_first = int64(key_head) * of.S + n0, count = int64(of.B) * of.HQ * of.L;
  const int tx = Grid<TX>::x(tid), ty = Grid<TX>::y(tid), tx2 = Grid<TX2>::x(tid), ty2 = Grid<TX2>::y(tid);
  SHARED float* s_k = shared;
  SHARED float* s_v = s_k + BN * PITCH;
  SHARED float* s_q = s_v + BN * PITCH;
  SHARED float* s_dy = s_q + BM * PITCH;
  SHARED float* s_p = s_dy + BM * PITCH;
  SHARED float* s_rows = s_p + BM * (BN + 4);

  load_tile<BN, EP, W>(s_k, k + key_first * of.E, of.S - n0, of.E, tid);
  load_tile<BN, EP, W>(s_v, v + key_first * of.EV, of.S - n0, of.EV, tid);
  float to_k[KN][RE], to_v[KN][RE];
  UNROLL for (int i = 0; i < KN; ++i) {
    UNROLL for (int j = 0; j < RE; ++j) to_k[i][j] = to_v[i][j] = 0.0f;
  }
  KEEP_LOOP for (int h = 0; h < sharing; ++h) {
    const int head = key_head / of.HK * of.HQ + key_head % of.HK * sharing + h;
    const Sight<MASK, PM> sight(of, mask, head);
    const int last = n0 < sight.keys ? of.L : 0;
    KEEP_LOOP for (int m0 = of.causal ? n0 / BM * BM : 0; m0 < last; m0 += BM) {
      const int64 first = int64(head) * of.L + m0;
      load_tile<BM, EP, W>(s_q, q + first * of.E, of.L - m0, of.E, tid);
      load_tile<BM, EP, W>(s_dy, dy + first * of.EV, of.L - m0, of.EV, tid);
      for (int i = tid; i < 3 * BM; i += W) {
        s_rows[i] = m0 + i % BM < of.L ? rows[i / BM * count + first + i % BM] : 0.0f;
      }
      BARRIER();
      float c[RM][RN];
      UNROLL for (int i = 0; i < RM; ++i) {
        UNROLL for (int j = 0; j < RN; ++j) c[i][j] = 0.0f;
      }
      multiply_rows<RM, RN, TX, TY, EP>(c, s_q, s_k, tx, ty);
      sight.template scores<BM, BN, RM, RN, TX, TY>(c, scale[0], m0, n0, tx, ty);
      UNROLL for (int i = 0; i < RM; ++i) {
        const float shift = s_rows[ty + i * TY], factor = s_rows[BM + ty + i * TY];
        UNROLL for (int j = 0; j < RN; ++j) {
          s_p[(ty + i * TY) * (BN + 4) + tx + j * TX] = probability(c[i][j], shift, factor);
          c[i][j] = 0.0f;
        }
      }
      BARRIER();
      multiply_columns<KN, RE, TX2, TY2, BM, BN, EP>(to_v, s_p, s_dy, tx2, ty2);
      multiply_rows<RM, RN, TX, TY, EP>(c, s_dy, s_v, tx, ty);
      BARRIER();
      UNROLL for (int i = 0; i < RM; ++i) {
        const float delta = s_rows[2 * BM + ty + i * TY];
        UNROLL for (int j = 0; j < RN; ++j) s_p[(ty + i * TY) * (BN + 4) + tx + j * TX] *= c[i][j] - delta;
      }
      BARRIER();
      multiply_columns<KN, RE, TX2, TY2, BM, BN, EP>(to_k, s_p, s_q, tx2, ty2);
      BARRIER();
    }
  }
  UNROLL for (int i = 0; i < KN; ++i) {
    const int n = ty2 * 4 + i / 4 * 4 * TY2 + i % 4;
    UNROLL for (int j = 0; j < RE; ++j) {
      const int e = tx2 * 4 + j / 4 * 4 * TX2 + j % 4;
      if (n0 + n < of.S && e < of.E) dk[(key_first + n) * of.E + e] = T(to_k[i][j] * scale[0]);
      if (n0 + n < of.S && e < of.EV) dv[(key_first + n) * of.EV + e] = T(to_v[i][j]);
    }
  }
}
