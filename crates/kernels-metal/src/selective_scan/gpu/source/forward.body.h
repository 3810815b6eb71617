SHARED_FLOATS(shared, (TILE + 4) * 2 * (W / L + L * NS));
scan_forward<O, L, NS, W, TILE, R>(sizes, dt, x, b, c, a, h0, states, steps, y, h, shared,
                                   int(threadgroup_position_in_grid.x), int(thread_position_in_threadgroup.x));
