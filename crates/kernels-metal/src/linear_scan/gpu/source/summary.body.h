linear_summary<8>(sizes, a, u, products, states,
                  int64(threadgroup_position_in_grid.x) * W + int(thread_position_in_threadgroup.x));
