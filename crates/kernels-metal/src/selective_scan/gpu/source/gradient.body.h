SHARED_FLOATS(shared, (K + 4) * (3 * (W / L) + 2 * L * NS) + TURNS * (W / 32) * FLUSH * 8 * L * NS + (K / R - 1) * NS * W);
scan_gradient<O, L, NS, W, K, R, FLUSH, TURNS>(sizes, dt, x, b, c, a, h0, dy, dh, states, steps, adjoint, ddt, dx, db, dc, da, dh0,
                                        shared, int(threadgroup_position_in_grid.x),
                                        int(thread_position_in_threadgroup.x));
