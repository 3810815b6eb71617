// One segment of the steps of W / L channels of one entry of the batch, as if nothing came before or after it:
//   states, steps  at the end of every block: the state that was built from zero, and the sum of dt, since the segment began
//   adjoint        the gradient that the segment's own dy gives to the state before it
// With what comes in, h, the state at the end of a block is exp(steps a) h + states.
template <int L, int NS, int W, int TILE, bool ADJOINT, typename PZ, typename PD, typename PX, typename PB,
          typename PA, typename PC, typename PY, typename OS, typename OM, typename OG>
KERNEL_INLINE void scan_summary(PZ sizes, PD dt, PX x, PB b, PA a, PC c, PY dy, OS states, OM steps, OG adjoint,
                                SHARED float* shared, int group, int tid) {
  constexpr int SIDE = 32 / L, G = W / L, NP = L * NS, ROW = TILE + 4;
  typedef Tile<G, W, TILE> Wide;
  typedef Tile<NP, W, TILE> Narrow;
  const int T = sizes[0], B = sizes[1], D = sizes[2], N = sizes[3], length = sizes[4], block = sizes[5];
  const bool reversed = sizes[6] != 0;
  const int sides = (D + G - 1) / G;
  const int first = group % sides * G, batch = group / sides % B, segment = group / sides / B;
  const int l = Lanes<L>::part(tid % 32), g = tid / 32 * SIDE + Lanes<L>::channel(tid % 32), d = first + g;
  const int begin = segment * length, end = begin + length < T ? begin + length : T;
  SHARED float* s_dt = shared;
  SHARED float* s_u = s_dt + G * ROW;
  SHARED float* s_b = s_u + G * ROW;
  SHARED float* s_c = s_b + NP * ROW;
  SHARED float* s_g = s_c + NP * ROW;

  float h[NS], rate[NS], product[NS], back[NS], total = 0.0f;
  UNROLL for (int j = 0; j < NS; ++j) {
    const int n = l * NS + j;
    rate[j] = d < D && n < N ? LOG2_E * float(a[d * N + n]) : 0.0f;
    h[j] = 0.0f;
    product[j] = 1.0f;
    back[j] = 0.0f;
  }

  const int step = reversed ? -B * D : B * D, narrow_step = reversed ? -B * N : B * N;
  const int64 row = int64(reversed ? T - 1 - begin : begin) * B + batch;
  int64 at = row * D + first, narrow_at = row * N;
  float next_dt[Wide::COUNT], next_x[Wide::COUNT], next_g[Wide::COUNT], next_b[Narrow::COUNT], next_c[Narrow::COUNT];
  for (int tile = begin - TILE; tile < end; tile += TILE) {
    if (tile >= begin) {
      UNROLL for (int i = 0; i < Wide::COUNT; ++i) next_x[i] *= next_dt[i];
      BARRIER();
      Wide::put(s_dt, tid, next_dt);
      Wide::put(s_u, tid, next_x);
      Narrow::put(s_b, tid, next_b);
      if (ADJOINT) {
        Wide::put(s_g, tid, next_g);
        Narrow::put(s_c, tid, next_c);
      }
      BARRIER();
    }
    const int left = end - tile - TILE;
    Wide::fetch(next_dt, dt + at, tid, step, D - first, left);
    Wide::fetch(next_x, x + at, tid, step, D - first, left);
    Narrow::fetch(next_b, b + narrow_at, tid, narrow_step, N, left);
    if (ADJOINT) {
      Wide::fetch(next_g, dy + at, tid, step, D - first, left);
      Narrow::fetch(next_c, c + narrow_at, tid, narrow_step, N, left);
    }
    at += TILE * int64(step);
    narrow_at += TILE * int64(narrow_step);
    if (tile < begin) continue;

    KEEP_LOOP for (int eight = 0; eight < TILE; eight += 8) {
      UNROLL for (int r = eight; r < eight + 8; r += 4) {
        const Four span = load_four(s_dt + g * ROW + r), u = load_four(s_u + g * ROW + r);
        Four dual = span;
        if (ADJOINT) dual = load_four(s_g + g * ROW + r);
        UNROLL for (int k = 0; k < 4; ++k) total += span.v[k];
        UNROLL for (int j = 0; j < NS; ++j) {
          const Four in = load_four(s_b + (l * NS + j) * ROW + r);
          Four out = in;
          if (ADJOINT) out = load_four(s_c + (l * NS + j) * ROW + r);
          UNROLL for (int k = 0; k < 4; ++k) {
            const float kept = power_of_two(span.v[k] * rate[j]);
            h[j] = kept * h[j] + u.v[k] * in.v[k];
            if (ADJOINT) {
              product[j] *= kept;
              back[j] += product[j] * (dual.v[k] * out.v[k]);
            }
          }
        }
      }
    }
    const int done = tile + TILE;
    if ((done % block == 0 || done >= end) && d < D) {
      const int64 to = (int64((done < end ? done : end) - 1) / block * B + batch) * D + d;
      if (l == 0) steps[to] = total;
      // Nothing starts from the state after the last step.
      UNROLL for (int j = 0; j < NS; ++j) {
        const int n = l * NS + j;
        if (n < N && done < T) states[to * N + n] = h[j];
      }
    }
  }
  if (ADJOINT && d < D) {
    UNROLL for (int j = 0; j < NS; ++j) {
      const int n = l * NS + j;
      if (n < N) adjoint[((int64(segment) * B + batch) * D + d) * N + n] = back[j];
    }
  }
}
