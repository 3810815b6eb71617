// What the gradient knows of each of the rows, one array after the other: a score and a factor that make probabilities,
// factor exp (score - shift), and rowsum(dY * Y). A thread for a row, so that terms are added in the order in which those of
// dY V^T are: where a query sees one key alone, the difference of the two is 0 and not a rounding error times the scale.
// SAVED: from the log-sum-exp, else from the forward kernel's exact numbers.
template <int SAVED, typename PZ, typename PT, typename PF, typename OF>
KERNEL_INLINE void attention_rows(PZ sizes, PT y, PT dy, PF from, OF rows, int64 row) {
  const Problem of(sizes);
  const int64 count = int64(of.B) * of.HQ * of.L;
  if (row >= count) return;
  float sum = 0.0f;
  for (int e = 0; e < of.EV; ++e) sum += float(dy[row * of.EV + e]) * float(y[row * of.EV + e]);
  if (SAVED != 0) {
    const float lse = from[row];
    rows[row] = lse == MINUS_INFINITY ? 0.0f : lse;
    rows[count + row] = lse == MINUS_INFINITY ? 0.0f : 1.0f;
  } else {
    rows[row] = from[row * 2];
    rows[count + row] = from[row * 2 + 1];
  }
  rows[2 * count + row] = sum;
}
