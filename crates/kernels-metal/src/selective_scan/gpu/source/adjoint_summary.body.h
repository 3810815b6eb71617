SHARED_FLOATS(shared, (TILE + 4) * (3 * (W / L) + 2 * L * NS));
scan_summary<L, NS, W, TILE, true>(sizes, dt, x, b, a, c, dy, states, steps, adjoint, shared,
                                   int(threadgroup_position_in_grid.x), int(thread_position_in_threadgroup.x));
