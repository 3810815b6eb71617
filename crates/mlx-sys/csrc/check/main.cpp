// A program that uses mlx-c and the bridge: `cargo xtask check-macos` links it.
#include "bridge.h"

int main() {
  ortmlx_start();
  mlx_array x = mlx_array_new_float(1.0f);
  mlx_stream stream = mlx_default_cpu_stream_new();
  mlx_array y = mlx_array_new();
  int status = mlx_add(&y, x, x, stream) + ortmlx_array_eval(y);
  bool found = ortmlx_array_data(y) != nullptr && ortmlx_array_is_row_contiguous(y);
  mlx_array_free(y);
  mlx_stream_free(stream);
  mlx_array_free(x);
  return status == 0 && found ? 0 : 1;
}
