linear_forward<O, 8>(sizes, a, u, h0, products, states, all, last,
                     int64(threadgroup_position_in_grid.x) * W + int(thread_position_in_threadgroup.x));
