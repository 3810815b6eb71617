// Tiles of matrices in threadgroup memory, and products of two of them in the registers of a group's threads. A tile's rows
// lie PITCH apart, four more than they are long, so that 16-byte reads of neighbouring rows meet no bank twice.

// The threads of a group as TX beside each other, in rows. Bit 0 of the lane counts along a row and bit 1 rows: neighbours
// that read the same address, whichever of the two it depends on, are what lets NVIDIA's threadgroup memory serve 16-byte
// reads at the full rate. A row lies within a SIMD group.
template <int TX>
struct Grid {
  static KERNEL_INLINE int x(int tid) { return (tid & 1) + tid % 32 / 4 % (TX / 2) * 2; }
  static KERNEL_INLINE int y(int tid) {
    return tid / 32 * (32 / TX) + (tid / 2 & 1) + tid % 32 / 4 / (TX / 2) * 2;
  }
  // Over the threads of a row.
  static KERNEL_INLINE float largest(float value) {
    UNROLL for (int m = 1; m < TX; m *= 2) {
      const float other = SHUFFLE_XOR(value, (m == 1 ? 1 : 2 * m));
      value = other > value ? other : value;
    }
    return value;
  }
  static KERNEL_INLINE float sum(float value) {
    UNROLL for (int m = 1; m < TX; m *= 2) value += SHUFFLE_XOR(value, (m == 1 ? 1 : 2 * m));
    return value;
  }
};

// Fills a tile of ROWS x E with rows of `width` elements that follow each other; what lies beyond `rows` and `width` is 0.
template <int ROWS, int E, int W, typename P>
KERNEL_INLINE void load_tile(SHARED float* to, P from, int rows, int width, int tid) {
  constexpr int COUNT = ROWS * E / W, AT_ONCE = COUNT % 16 == 0 ? 16 : 1;
  KEEP_LOOP for (int i = 0; i < COUNT; i += AT_ONCE) {
    float values[AT_ONCE];
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      const int at = (i + k) * W + tid, row = at / E, column = at % E;
      values[k] = row < rows && column < width ? float(from[row * width + column]) : 0.0f;
    }
    UNROLL for (int k = 0; k < AT_ONCE; ++k) {
      const int at = (i + k) * W + tid;
      to[at / E * (E + 4) + at % E] = values[k];
    }
  }
}

// c[i][j] += sum over e of a[y + i TY][e] b[x + j TX][e], for tiles a and b whose rows have E elements.
template <int RM, int RN, int TX, int TY, int E, typename V>
KERNEL_INLINE void multiply_rows(V c, const SHARED float* a, const SHARED float* b, int x, int y) {
  constexpr int PITCH = E + 4;
  UNROLL_TWICE for (int e = 0; e < E; e += 4) {
    Four left[RM];
    UNROLL for (int i = 0; i < RM; ++i) left[i] = load_four(a + (y + i * TY) * PITCH + e);
    UNROLL for (int j = 0; j < RN; ++j) {
      const Four right = load_four(b + (x + j * TX) * PITCH + e);
      UNROLL for (int k = 0; k < 4; ++k) {
        UNROLL for (int i = 0; i < RM; ++i) c[i][j] += left[i].v[k] * right.v[k];
      }
    }
  }
}

// c[i][4 j + k] += sum over n of p[y + i TY][n] b[n][4 (x + j TX) + k], for p of N columns and b of N x E.
template <int RM, int RE, int TX, int TY, int N, int E, typename V>
KERNEL_INLINE void multiply(V c, const SHARED float* p, const SHARED float* b, int x, int y) {
  constexpr int PITCH = E + 4;
  UNROLL_TWICE for (int n = 0; n < N; n += 4) {
    Four left[RM];
    UNROLL for (int i = 0; i < RM; ++i) left[i] = load_four(p + (y + i * TY) * (N + 4) + n);
    UNROLL for (int k = 0; k < 4; ++k) {
      UNROLL for (int j = 0; j < RE; j += 4) {
        const Four right = load_four(b + (n + k) * PITCH + x * 4 + j * TX);
        UNROLL for (int i = 0; i < RM; ++i) {
          UNROLL for (int l = 0; l < 4; ++l) c[i][j + l] += left[i].v[k] * right.v[l];
        }
      }
    }
  }
}

// c[4 i + k][4 j + l] += sum over m of p[m][4 (y + i TY) + k] b[m][4 (x + j TX) + l], for p of M x N and b of M x E.
template <int RN, int RE, int TX, int TY, int M, int N, int E, typename V>
KERNEL_INLINE void multiply_columns(V c, const SHARED float* p, const SHARED float* b, int x, int y) {
  constexpr int PITCH = E + 4;
  UNROLL_FOURFOLD for (int m = 0; m < M; ++m) {
    Four left[RN / 4];
    UNROLL for (int i = 0; i < RN; i += 4) left[i / 4] = load_four(p + m * (N + 4) + y * 4 + i * TY);
    UNROLL for (int j = 0; j < RE; j += 4) {
      const Four right = load_four(b + m * PITCH + x * 4 + j * TX);
      UNROLL for (int i = 0; i < RN; ++i) {
        UNROLL for (int l = 0; l < 4; ++l) c[i][j + l] += left[i / 4].v[i % 4] * right.v[l];
      }
    }
  }
}
