SHARED_FLOATS(shared, (2 * BM + 2 * BN) * (EP + 4) + BM * (BN + 4) + 3 * BM);
attention_grad_kv<T, BM, BN, EP, TX, TX2, W, MASK>(sizes, scale, q, k, v, dy, mask, rows, dk, dv, shared,
                                                   int(threadgroup_position_in_grid.x),
                                                   int(thread_position_in_threadgroup.x));
