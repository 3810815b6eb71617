SHARED_FLOATS(shared, (2 * BM + 2 * BN) * (EP + 4) + BM * (BN + 4));
attention_grad_q<T, BM, BN, EP, TX, W, MASK>(sizes, scale, q, k, v, dy, mask, rows, dq, shared,
                                             int(threadgroup_position_in_grid.x), int(thread_position_in_threadgroup.x));
