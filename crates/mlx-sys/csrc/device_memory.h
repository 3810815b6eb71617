// Elements between the host's memory and that of a CUDA device.
#pragma once

#include "mlx/mlx.h"

namespace ortmlx {

// An array with a copy of the elements at `data`, in the memory of `device` if that is a CUDA device with room for it.
mlx::core::array
copy_of(const void* data, mlx::core::Shape shape, mlx::core::Dtype dtype, mlx::core::Device device);

// The same for an evaluated array, which stays what it is if it is there already.
mlx::core::array brought_to(mlx::core::Device device, const mlx::core::array& a);

// Whether an evaluated array's elements lie in memory that the host cannot use.
bool is_on_device(const mlx::core::array& a);

// Copies the elements of an evaluated, row-contiguous array that is on a device to the host's memory.
void copy_to_host(const mlx::core::array& a, void* to);

} // namespace ortmlx
