SHARED_FLOATS(shared, (TILE + 4) * 2 * (W / L + L * NS));
scan_summary<L, NS, W, TILE, false>(sizes, dt, x, b, a, b, x, states, steps, states, shared,
                                    int(threadgroup_position_in_grid.x), int(thread_position_in_threadgroup.x));
