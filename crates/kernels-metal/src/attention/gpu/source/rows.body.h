attention_rows<SAVED>(sizes, y, dy, saved, rows,
                      int64(threadgroup_position_in_grid.x) * W + int(thread_position_in_threadgroup.x));
