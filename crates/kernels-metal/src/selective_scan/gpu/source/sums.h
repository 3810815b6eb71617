// What groups, segments and entries of the batch gave of db, dc and da, added up: a thread for every sum.
//   sizes  sums of db (as many as of dc), parts of each, sums of da, parts of each

// Reads of eight parts are under way before the first is waited for.
template <typename P>
KERNEL_INLINE float sum_of_parts(P parts, int64 at, int64 apart, int count) {
  float sum = 0.0f;
  for (int i = 0; i < count; i += 8) {
    float next[8];
    UNROLL for (int k = 0; k < 8; ++k) next[k] = i + k < count ? parts[at + (i + k) * apart] : 0.0f;
    UNROLL for (int k = 0; k < 8; ++k) sum += next[k];
  }
  return sum;
}

template <typename O, typename PZ, typename PB, typename PC, typename PA, typename OB, typename OC, typename OA>
KERNEL_INLINE void add_up(PZ sizes, PB db_parts, PC dc_parts, PA da_parts, OB db, OC dc, OA da, int64 index) {
  const int64 rows = sizes[0], rates = sizes[2];
  if (index < rows) {
    db[index] = O(sum_of_parts(db_parts, index, rows, sizes[1]));
  } else if (index < 2 * rows) {
    dc[index - rows] = O(sum_of_parts(dc_parts, index - rows, rows, sizes[1]));
  } else if (index < 2 * rows + rates) {
    da[index - 2 * rows] = sum_of_parts(da_parts, index - 2 * rows, rates, sizes[3]);
  }
}
