// One segment of the steps of W / L channels of one entry of the batch:
//   h[t] = exp(dt[t] a) h[t-1] + (dt[t] x[t]) b[t]        y[t] = sum over n of h[t] c[t]
// Steps are counted in walking order. A segment starts from what the summaries of those before it leave of h0.
template <typename O, int L, int NS, int W, int TILE, int R, typename PZ, typename PD, typename PX, typename PB, typename PC,
          typename PA, typename PH, typename PS, typename PM, typename OY, typename OH>
KERNEL_INLINE void scan_forward(PZ sizes, PD dt, PX x, PB b, PC c, PA a, PH h0, PS states, PM steps, OY y, OH h_end,
                                SHARED float* shared, int group, int tid) {
  constexpr int SIDE = 32 / L, G = W / L, NP = L * NS, ROW = TILE + 4;
  typedef Tile<G, W, TILE> Wide;
  typedef Tile<NP, W, TILE> Narrow;
  const int T = sizes[0], B = sizes[1], D = sizes[2], N = sizes[3], length = sizes[4];
  const bool reversed = sizes[6] != 0;
  const int sides = (D + G - 1) / G;
  const int first = group % sides * G, batch = group / sides % B, segment = group / sides / B;
  const int l = Lanes<L>::part(tid % 32), g = tid / 32 * SIDE + Lanes<L>::channel(tid % 32), d = first + g;
  const int begin = segment * length, end = begin + length < T ? begin + length : T;
  SHARED float* s_dt = shared;
  SHARED float* s_u = s_dt + G * ROW;
  SHARED float* s_b = s_u + G * ROW;
  SHARED float* s_c = s_b + NP * ROW;

  float h[NS], rate[NS];
  UNROLL for (int j = 0; j < NS; ++j) {
    const int n = l * NS + j;
    const bool real = d < D && n < N;
    rate[j] = real ? LOG2_E * float(a[d * N + n]) : 0.0f;
    h[j] = real && sizes[7] != 0 ? float(h0[(int64(batch) * D + d) * N + n]) : 0.0f;
  }
  for (int s = 0; s < segment; ++s) {
    const int64 at = (int64(s) * B + batch) * D + d;
    const float span = d < D ? steps[at] : 0.0f;
    UNROLL for (int j = 0; j < NS; ++j) {
      const int n = l * NS + j;
      h[j] = power_of_two(span * rate[j]) * h[j] + (d < D && n < N ? states[at * N + n] : 0.0f);
    }
  }

  // Where the next tile begins, and how far it is to the step after.
  const int step = reversed ? -B * D : B * D, narrow_step = reversed ? -B * N : B * N;
  const int64 row = int64(reversed ? T - 1 - begin : begin) * B + batch;
  int64 at = row * D + first, narrow_at = row * N;
  float next_dt[Wide::COUNT], next_x[Wide::COUNT], next_b[Narrow::COUNT], next_c[Narrow::COUNT];
  for (int tile = begin - TILE; tile < end; tile += TILE) {
    if (tile >= begin) {
      UNROLL for (int i = 0; i < Wide::COUNT; ++i) next_x[i] *= next_dt[i];
      Wide::put(s_dt, tid, next_dt);
      Wide::put(s_u, tid, next_x);
      Narrow::put(s_b, tid, next_b);
      Narrow::put(s_c, tid, next_c);
      BARRIER();
    }
    // The next tile is on its way while this one is worked on.
    const int left = end - tile - TILE;
    Wide::fetch(next_dt, dt + at, tid, step, D - first, left);
    Wide::fetch(next_x, x + at, tid, step, D - first, left);
    Narrow::fetch(next_b, b + narrow_at, tid, narrow_step, N, left);
    Narrow::fetch(next_c, c + narrow_at, tid, narrow_step, N, left);
    at += TILE * int64(step);
    narrow_at += TILE * int64(narrow_step);
    if (tile < begin) continue;

    KEEP_LOOP for (int r = 0; r < TILE; r += R) {
      float sum[R];
      UNROLL for (int q = 0; q < R; q += 4) {
        const Four span = load_four(s_dt + g * ROW + r + q), u = load_four(s_u + g * ROW + r + q);
        UNROLL for (int k = 0; k < 4; ++k) sum[q + k] = 0.0f;
        UNROLL for (int j = 0; j < NS; ++j) {
          const Four in = load_four(s_b + (l * NS + j) * ROW + r + q);
          const Four out = load_four(s_c + (l * NS + j) * ROW + r + q);
          UNROLL for (int k = 0; k < 4; ++k) {
            h[j] = power_of_two(span.v[k] * rate[j]) * h[j] + u.v[k] * in.v[k];
            sum[q + k] += h[j] * out.v[k];
          }
        }
      }
      SumOfParts<L, R>::run(sum, l);
      // The lanes that read this stretch of u have all given their part of the sum.
      constexpr int SHARE = R > L ? R / L : 1, REPEAT = L > R ? L / R : 1;
      UNROLL for (int i = 0; i < SHARE; ++i) {
        if (l % REPEAT == 0) s_u[g * ROW + r + l / REPEAT * SHARE + i] = sum[i];
      }
    }
    BARRIER();
    OY out = y + (at - 2 * TILE * int64(step));
    const int steps_here = left + TILE < TILE ? left + TILE : TILE;
    UNROLL for (int i = 0; i < Wide::COUNT; ++i) {
      if (Wide::inside(tid, i, D - first, steps_here)) out[Wide::offset(tid, i, step)] = O(s_u[Wide::place(tid, i)]);
    }
  }
  if (end == T && d < D) {
    UNROLL for (int j = 0; j < NS; ++j) {
      const int n = l * NS + j;
      if (n < N) h_end[(int64(batch) * D + d) * N + n] = h[j];
    }
  }
}
