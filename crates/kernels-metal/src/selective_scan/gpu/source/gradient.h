// The gradient of one segment of the steps of W / L channels of one entry of the batch, given the summaries. With g[t] the
// gradient of the loss by h[t], e[t] = exp(dt[t] a) and u[t] = dt[t] x[t]:
//   g[t] = c[t] dy[t] + e[t+1] g[t+1]
//   dc[t] = sum over d of dy[t] h[t]                 db[t] = sum over d of u[t] g[t]
//   dx[t] = dt[t] sum over n of g[t] b[t]            ddt[t] = sum over n of g[t] (x[t] b[t] + a e[t] h[t-1])
//   da    = sum over t of dt[t] g[t] e[t] h[t-1]     dh0 = e[0] g[0]
// Blocks of K steps are taken from the last to the first; a block's states are made again from the one before it, R steps
// at a time, and stay in registers. db, dc are sums over the group's channels and da one over the segment, for the caller to
// add up: db and dc (side, T, B, N), da (segment, B, D, N).
template <typename O, int L, int NS, int W, int K, int R, int FLUSH, int TURNS, typename PZ, typename PD, typename PX, typename PB,
          typename PC, typename PA, typename PH, typename PY, typename PE, typename PS, typename PM, typename PG,
          typename OD, typename OX, typename OB, typename OC, typename OA, typename OH>
KERNEL_INLINE void scan_gradient(PZ sizes, PD dt, PX x, PB b, PC c, PA a, PH h0, PY dy, PE dh, PS states, PM steps,
                                 PG adjoint, OD ddt, OX dx, OB db, OC dc, OA da, OH dh0, SHARED float* shared, int group,
                                 int tid) {
  constexpr int SIDE = 32 / L, G = W / L, NP = L * NS, ROW = K + 4, SIMDS = W / 32;
  constexpr int PART = 8 * NP;
  typedef Tile<G, W, K> Wide;
  typedef Tile<NP, W, K> Narrow;
  const int T = sizes[0], B = sizes[1], D = sizes[2], N = sizes[3], length = sizes[4];
  const bool reversed = sizes[6] != 0;
  const int sides = (D + G - 1) / G, segments = (T + length - 1) / length, blocks = (T + K - 1) / K;
  const int side = group % sides, first = side * G, batch = group / sides % B, segment = group / sides / B;
  const int simd = tid / 32, q = Lanes<L>::channel(tid % 32), l = Lanes<L>::part(tid % 32);
  const int g = simd * SIDE + q, d = first + g;
  SHARED float* s_dt = shared;
  SHARED float* s_u = s_dt + G * ROW;
  SHARED float* s_g = s_u + G * ROW;
  SHARED float* s_b = s_g + G * ROW;
  SHARED float* s_c = s_b + NP * ROW;
  SHARED float* s_sum = s_c + NP * ROW;
  SHARED float* s_start = s_sum + TURNS * SIMDS * FLUSH * PART + tid;

  const int flip = SumOfChannels<L, NS>::flip(q);

  float rate[NS], incoming[NS], carry[NS], sum_a[NS];
  UNROLL for (int j = 0; j < NS; ++j) {
    const int n = l * NS + (j ^ flip);
    const bool real = d < D && n < N;
    const int64 at = (int64(batch) * D + d) * N + n;
    rate[j] = real ? LOG2_E * float(a[d * N + n]) : 0.0f;
    incoming[j] = real && sizes[7] != 0 ? float(h0[at]) : 0.0f;
    carry[j] = real && sizes[8] != 0 ? float(dh[at]) : 0.0f;
    sum_a[j] = 0.0f;
  }
  if (d < D) {
    for (int s = 0; s < segment; ++s) {
      const int64 at = (int64((s + 1) * (length / K) - 1) * B + batch) * D + d;
      const float span = steps[at];
      UNROLL for (int j = 0; j < NS; ++j) {
        const int n = l * NS + (j ^ flip);
        incoming[j] = power_of_two(span * rate[j]) * incoming[j] + (n < N ? states[at * N + n] : 0.0f);
      }
    }
    for (int s = segments - 1; s > segment; --s) {
      const int last = (s + 1) * (length / K) < blocks ? (s + 1) * (length / K) : blocks;
      const float span = steps[(int64(last - 1) * B + batch) * D + d];
      UNROLL for (int j = 0; j < NS; ++j) {
        const int n = l * NS + (j ^ flip);
        carry[j] = power_of_two(span * rate[j]) * carry[j] +
                   (n < N ? adjoint[((int64(s) * B + batch) * D + d) * N + n] : 0.0f);
      }
    }
  }

  const int lowest = segment * (length / K);
  const int highest = lowest + length / K < blocks ? lowest + length / K : blocks;
  const int step = reversed ? -B * D : B * D, narrow_step = reversed ? -B * N : B * N;
  const int64 row = int64(reversed ? T - 1 : 0) * B + batch;
  // A thread's share of the sums, and the place in the part that the group gives of them.
  constexpr int KEPT = SumOfChannels<L, NS>::KEPT, SHARE = L < 8 ? 8 / L : 1, REPEAT = L > 8 ? L / 8 : 1;
  const int state_share = l / REPEAT * SHARE / 4 * G * ROW + l / REPEAT * SHARE % 4;
  const int channel_first = SumOfChannels<L, NS>::share(q);
  const int channel_share =
      simd * FLUSH * PART + channel_first / 4 * 4 * NP + (l * NS + flip) * 4 + channel_first % 4;
  const int sums_n = tid / 4 % NP, sums_step = tid % 4 + tid / PART * 4, sums_end = sums_n < N ? T : 0;
  OB sums_to = (tid % PART < 4 * NP ? db : dc) + ((int64(side) * T + (reversed ? T - 1 : 0)) * B + batch) * N + sums_n;
  for (int block = highest - 1; block >= lowest; --block) {
    const int64 at = row * D + first + int64(block * K) * step, narrow_at = row * N + int64(block * K) * narrow_step;
    const int left = T - block * K;
    // All reads of device memory are under way before the first is waited for.
    float next_dt[Wide::COUNT], next_x[Wide::COUNT], next_g[Wide::COUNT], next_b[Narrow::COUNT], next_c[Narrow::COUNT];
    Wide::fetch(next_dt, dt + at, tid, step, D - first, left);
    Wide::fetch(next_x, x + at, tid, step, D - first, left);
    Wide::fetch(next_g, dy + at, tid, step, D - first, left);
    Narrow::fetch(next_b, b + narrow_at, tid, narrow_step, N, left);
    Narrow::fetch(next_c, c + narrow_at, tid, narrow_step, N, left);
    float start[NS], since = 0.0f;
    UNROLL for (int j = 0; j < NS; ++j) start[j] = 0.0f;
    if (block > lowest && d < D) {
      const int64 before = (int64(block - 1) * B + batch) * D + d;
      since = steps[before];
      UNROLL for (int j = 0; j < NS; ++j) {
        const int n = l * NS + (j ^ flip);
        if (n < N) start[j] = states[before * N + n];
      }
    }
    Wide::put(s_dt, tid, next_dt);
    UNROLL for (int i = 0; i < Wide::COUNT; ++i) next_x[i] *= next_dt[i];
    Wide::put(s_u, tid, next_x);
    Wide::put(s_g, tid, next_g);
    Narrow::put(s_b, tid, next_b);
    Narrow::put(s_c, tid, next_c);
    UNROLL for (int j = 0; j < NS; ++j) start[j] += power_of_two(since * rate[j]) * incoming[j];
    BARRIER();
    if (K > R) {
      float h[NS];
      UNROLL for (int j = 0; j < NS; ++j) h[j] = start[j];
      KEEP_LOOP for (int i = 0; i < K / R - 1; ++i) {
        UNROLL for (int r = 0; r < R; r += 4) {
          const int here = g * ROW + i * R + r;
          const Four span = load_four(s_dt + here), u = load_four(s_u + here);
          UNROLL for (int j = 0; j < NS; ++j) {
            const Four in = load_four(s_b + (l * NS + (j ^ flip)) * ROW + i * R + r);
            UNROLL for (int k = 0; k < 4; ++k) h[j] = power_of_two(span.v[k] * rate[j]) * h[j] + u.v[k] * in.v[k];
          }
        }
        UNROLL for (int j = 0; j < NS; ++j) s_start[(i * NS + j) * W] = h[j];
      }
    }
    KEEP_LOOP for (int i = K / R - 1; i >= 0; --i) {
      float h[R + 1][NS], kept[R][NS];
      UNROLL for (int j = 0; j < NS; ++j) h[0][j] = i > 0 ? s_start[((i - 1) * NS + j) * W] : start[j];
      UNROLL for (int r = 0; r < R; r += 4) {
        const Four span = load_four(s_dt + g * ROW + i * R + r), u = load_four(s_u + g * ROW + i * R + r);
        UNROLL for (int j = 0; j < NS; ++j) {
          const Four in = load_four(s_b + (l * NS + (j ^ flip)) * ROW + i * R + r);
          UNROLL for (int k = 0; k < 4; ++k) {
            kept[r + k][j] = power_of_two(span.v[k] * rate[j]);
            h[r + k + 1][j] = kept[r + k][j] * h[r + k][j] + u.v[k] * in.v[k];
          }
        }
      }
      UNROLL for (int r = R - 4; r >= 0; r -= 4) {
        const int here = g * ROW + i * R + r;
        const Four span = load_four(s_dt + here), u = load_four(s_u + here), dual = load_four(s_g + here);
        // By n: the sums for dx and ddt. By channel: db and dc.
        float by_state[8], by_channel[NS][8];
        UNROLL for (int k = 0; k < 8; ++k) by_state[k] = 0.0f;
        UNROLL for (int turn = 0; turn < NS; ++turn) {
          // States that SumOfChannels takes together come together.
          const int j = NS == 1 ? 0 : turn / 2 + turn % 2 * (NS / 2);
          const Four in = load_four(s_b + (l * NS + (j ^ flip)) * ROW + i * R + r);
          const Four out = load_four(s_c + (l * NS + (j ^ flip)) * ROW + i * R + r);
          UNROLL for (int k = 3; k >= 0; --k) {
            const float grad = carry[j] + dual.v[k] * out.v[k];
            carry[j] = kept[r + k][j] * grad;
            const float past = carry[j] * h[r + k][j];
            by_state[k] += grad * in.v[k];
            by_state[4 + k] += past * rate[j];
            sum_a[j] += past * span.v[k];
            by_channel[j][k] = grad * u.v[k];
            by_channel[j][4 + k] = dual.v[k] * h[r + k + 1][j];
          }
          if (turn % 2 != 0) SumOfChannels<L, NS>::pair(by_channel, j - NS / 2);
        }
        SumOfParts<L, 8>::run(by_state, l);
        SumOfChannels<L, NS>::run(by_channel, q);
        // The lanes that read this stretch of u and dy have all given their part of the sums.
        UNROLL for (int k = 0; k < SHARE; ++k) {
          if (l % REPEAT == 0) s_u[here + state_share + k] = by_state[k];
        }
        // Places take turns: who adds up the one need not wait for who fills the other.
        const int place = (r / 4 / FLUSH + i * (R / 4 / FLUSH)) % TURNS * SIMDS * FLUSH * PART;
        SHARED float* part = s_sum + place + (r / 4 % FLUSH) * PART + channel_share;
        if (KEPT >= 4) {
          UNROLL for (int k = 0; k + 3 < KEPT; k += 4) {
            store_four(part + k * NP, by_channel[0][k], by_channel[0][k + 1], by_channel[0][k + 2], by_channel[0][k + 3]);
          }
        } else {
          UNROLL for (int k = 0; k < KEPT; ++k) part[k] = by_channel[0][k];
        }
        if (r / 4 % FLUSH == 0) {
          BARRIER();
          UNROLL for (int e = 0; e < (FLUSH * PART + W - 1) / W; ++e) {
            if (FLUSH * PART % W != 0 && e * W + tid >= FLUSH * PART) break;
            float sum = 0.0f;
            UNROLL for (int w = 0; w < SIMDS; ++w) sum += s_sum[place + w * FLUSH * PART + e * W + tid];
            const int s = block * K + i * R + r + sums_step + e * (W / PART) * 4;
            if (s < sums_end) sums_to[int64(s) * narrow_step] = sum;
          }
          if (TURNS == 1) BARRIER();
        }
      }
    }
    Wide::fetch(next_x, x + at, tid, step, D - first, left);
    OX dx_here = dx + at;
    OD ddt_here = ddt + at;
    UNROLL for (int i = 0; i < Wide::COUNT; ++i) {
      const int here = Wide::place(tid, i), to = Wide::offset(tid, i, step);
      if (Wide::inside(tid, i, D - first, left)) {
        dx_here[to] = O(s_dt[here] * s_u[here]);
        ddt_here[to] = O(next_x[i] * s_u[here] + LN_2 * s_g[here]);
      }
    }
  }
  if (d < D) {
    UNROLL for (int j = 0; j < NS; ++j) {
      const int n = l * NS + (j ^ flip);
      const int64 at = (int64(batch) * D + d) * N + n;
      if (n < N) da[int64(segment) * B * D * N + at] = sum_a[j];
      if (n < N && segment == 0) dh0[at] = carry[j];
    }
  }
}
