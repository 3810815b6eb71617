//! kernels-metal
