// How the threads of a group share the work: a channel's N states lie on L lanes of one SIMD group, NS to a lane, and the
// group walks the steps in tiles that it keeps in threadgroup memory with the steps innermost.

// The 32 lanes of a SIMD group as L parts of 32 / L sides by side channels. Bit 0 of the lane counts channels and bit 1
// parts: neighbours that read the same address, for what depends on the part as for what depends on the channel, are what
// lets NVIDIA's threadgroup memory serve 16-byte reads at the full rate.
template <int L>
struct Lanes {
  enum : int { SIDE = 32 / L, PLAIN = L == 1 || L == 32 };

  static KERNEL_INLINE int channel(int lane) {
    return PLAIN ? lane % SIDE : (lane & 1) + (lane / 4 % (SIDE / 2 + PLAIN)) * 2;
  }
  static KERNEL_INLINE int part(int lane) {
    return PLAIN ? lane / SIDE : (lane / 2 & 1) + lane / 4 / (SIDE / 2 + PLAIN) * 2;
  }
  // The bits of the lane that bit m of the channel, or of the part, is.
  static KERNEL_INLINE int channel_mask(int m) { return PLAIN || m == 1 ? m : 2 * m; }
  static KERNEL_INLINE int part_mask(int m) { return PLAIN ? m * SIDE : m == 1 ? 2 : m * SIDE; }
};

// How W threads share a tile of STEPS steps of COLUMNS columns: thread i has element (step, column) and those a fixed way
// from it. The threads of a SIMD group lie on neighbouring columns, eight at least where there are as many, so that whole
// sectors of device memory are used, and then on neighbouring steps, for the sake of threadgroup memory's banks.
template <int COLUMNS, int W, int STEPS>
struct Tile {
  enum : int {
    NARROW = COLUMNS < 8 ? COLUMNS : 8,
    WIDE = 32 * COLUMNS / W > NARROW ? (32 * COLUMNS / W < 32 ? 32 * COLUMNS / W : 32) : NARROW,
    ACROSS = COLUMNS / WIDE,                       // SIMD groups beside each other
    AROUND = ACROSS * 32 > W ? ACROSS * 32 / W : 1,  // elements of a thread beside each other
    BELOW = W * AROUND / COLUMNS,                  // steps to the next of its elements
    COUNT = (STEPS * COLUMNS + W - 1) / W,
    ROW = STEPS + 4
  };

  static KERNEL_INLINE int column(int tid) { return tid / 32 % ACROSS * WIDE + tid % WIDE; }
  static KERNEL_INLINE int step(int tid) { return tid / 32 / ACROSS * (32 / WIDE) + tid % 32 / WIDE; }
  // From a thread's first element to its element i.
  static KERNEL_INLINE int right(int i) { return i % AROUND * (W / 32) * WIDE; }
  static KERNEL_INLINE int down(int i) { return i / AROUND * BELOW; }

  // How far the thread's element i is from the tile's first in device memory, where the next step is `stride` on. Unsigned:
  // 32 bits that wrap around keep compilers from computing every address in 64.
  static KERNEL_INLINE int offset(int tid, int i, int stride) {
    return int(unsigned(step(tid)) * unsigned(stride) + unsigned(column(tid)) + unsigned(down(i)) * unsigned(stride) +
               unsigned(right(i)));
  }

  // Whether element i of the thread is among the first `columns` and `steps`.
  static KERNEL_INLINE bool inside(int tid, int i, int columns, int steps) {
    return right(i) < columns - column(tid) && down(i) < steps - step(tid);
  }

  // Reads the thread's elements of the tile that begins at `from`; those outside are 0.
  template <typename P>
  static KERNEL_INLINE void fetch(PRIVATE float* values, P from, int tid, int stride, int columns, int steps) {
    UNROLL for (int i = 0; i < COUNT; ++i) {
      values[i] = inside(tid, i, columns, steps) ? float(from[offset(tid, i, stride)]) : 0.0f;
    }
  }

  // Where in threadgroup memory the thread's element i lies, the steps of a column together.
  static KERNEL_INLINE int place(int tid, int i) {
    return (column(tid) + right(i)) * ROW + step(tid) + down(i);
  }

  static KERNEL_INLINE void put(SHARED float* to, int tid, const PRIVATE float* values) {
    UNROLL for (int i = 0; i < COUNT; ++i) {
      if (STEPS * COLUMNS % W == 0 || step(tid) + down(i) < STEPS) to[place(tid, i)] = values[i];
    }
  }
};

// Sums each of COUNT values over the parts of a channel. Part l keeps its share of the sums, in front: COUNT / L of them, from
// l * COUNT / L on. With fewer values than parts, L / COUNT of these have the same one.
template <int L, int COUNT, int M = L / 2>
struct SumOfParts {
  template <typename V>
  static KERNEL_INLINE void run(V values, int l) {
    const int mask = Lanes<L>::part_mask(M);
    if (COUNT > 1) {
      const bool upper = (l & M) != 0;
      UNROLL for (int i = 0; i < COUNT / 2; ++i) {
        const float mine = upper ? values[i + COUNT / 2] : values[i];
        const float other = upper ? values[i] : values[i + COUNT / 2];
        values[i] = mine + SHUFFLE_XOR(other, mask);
      }
    } else {
      values[0] += SHUFFLE_XOR(values[0], mask);
    }
    SumOfParts<L, (COUNT > 1 ? COUNT / 2 : 1), M / 2>::run(values, l);
  }
};

template <int L, int COUNT>
struct SumOfParts<L, COUNT, 0> {
  template <typename V>
  static KERNEL_INLINE void run(V, int) {}
};

// Sums each of NS times 8 values over the channels of a SIMD group, NS <= 32 / L. Before, lane q has values[j] for state
// j ^ flip(q); after, values[0] holds its share of those for state flip(q): eight for every 32 / L / NS channels, from
// share(q) on. A lane counts its states from another end than its neighbours do: what one keeps is what the other gives.
template <int L, int NS>
struct SumOfChannels {
  enum : int { SHARERS = 32 / L / NS, KEPT = 8 / SHARERS };

  static KERNEL_INLINE int flip(int q) { return q / SHARERS; }
  static KERNEL_INLINE int share(int q) { return q % SHARERS * KEPT; }

  // The first step, for states j and j + NS / 2: can be taken as soon as these are there.
  template <typename V>
  static KERNEL_INLINE void pair(V values, int j) {
    UNROLL for (int k = 0; k < 8; ++k) {
      values[j][k] += SHUFFLE_XOR(values[j + NS / 2][k], Lanes<L>::channel_mask(NS / 2 * SHARERS));
    }
  }

  // The steps after it.
  template <typename V>
  static KERNEL_INLINE void run(V values, int q) {
    UNROLL for (int m = NS / 4; m > 0; m /= 2) {
      UNROLL for (int j = 0; j < m; ++j) {
        UNROLL for (int k = 0; k < 8; ++k) {
          values[j][k] += SHUFFLE_XOR(values[j + m][k], Lanes<L>::channel_mask(m * SHARERS));
        }
      }
    }
    UNROLL for (int m = SHARERS / 2; m > 0; m /= 2) {
      const bool upper = (q & m) != 0;
      const int half = 4 * m * 2 / SHARERS;
      UNROLL for (int i = 0; i < half; ++i) {
        const float mine = upper ? values[0][i + half] : values[0][i];
        const float other = upper ? values[0][i] : values[0][i + half];
        values[0][i] = mine + SHUFFLE_XOR(other, Lanes<L>::channel_mask(m));
      }
    }
  }
};
