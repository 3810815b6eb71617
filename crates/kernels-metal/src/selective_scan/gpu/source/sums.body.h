add_up<O>(sizes, db_parts, dc_parts, da_parts, db, dc, da,
          int64(threadgroup_position_in_grid.x) * W + int(thread_position_in_threadgroup.x));
