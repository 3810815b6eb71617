SHARED_FLOATS(shared, (BM + 2 * BN) * (EP + 4) + BM * (BN + 4));
attention_forward<T, BM, BN, EP, TX, W, MASK>(sizes, scale, q, k, v, mask, y, lse, stats, shared,
                                              int(threadgroup_position_in_grid.x), int(thread_position_in_threadgroup.x));
