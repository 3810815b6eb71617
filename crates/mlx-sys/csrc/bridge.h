/* What mlx-c lacks and mlx-safe needs. */
#pragma once

#include "mlx/c/mlx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first element of an evaluated array of any type (mlx-c has accessors by type, those for 16-bit floats on aarch64
   only); null for an empty handle or an array that has not been evaluated. */
const void* ortmlx_array_data(mlx_array arr);

/* Whether an evaluated array's elements lie in row-major order without gaps. */
bool ortmlx_array_is_row_contiguous(mlx_array arr);

#ifdef __cplusplus
}
#endif
