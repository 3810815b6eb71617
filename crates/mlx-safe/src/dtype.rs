//! Element types, MLX's and Rust's.

use half::{bf16, f16};
use mlx_sys as sys;
use num_complex::Complex32;

/// The element type of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Dtype {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Float16,
    Float32,
    /// CPU only. MLX computes `exp`, `sin`, `cos`, `erf` and what is made of them to the precision of float32.
    Float64,
    Bfloat16,
    /// Two float32: real and imaginary.
    Complex64,
}

const RAW: [(Dtype, sys::mlx_dtype); 14] = [
    (Dtype::Bool, sys::mlx_dtype__MLX_BOOL),
    (Dtype::Uint8, sys::mlx_dtype__MLX_UINT8),
    (Dtype::Uint16, sys::mlx_dtype__MLX_UINT16),
    (Dtype::Uint32, sys::mlx_dtype__MLX_UINT32),
    (Dtype::Uint64, sys::mlx_dtype__MLX_UINT64),
    (Dtype::Int8, sys::mlx_dtype__MLX_INT8),
    (Dtype::Int16, sys::mlx_dtype__MLX_INT16),
    (Dtype::Int32, sys::mlx_dtype__MLX_INT32),
    (Dtype::Int64, sys::mlx_dtype__MLX_INT64),
    (Dtype::Float16, sys::mlx_dtype__MLX_FLOAT16),
    (Dtype::Float32, sys::mlx_dtype__MLX_FLOAT32),
    (Dtype::Float64, sys::mlx_dtype__MLX_FLOAT64),
    (Dtype::Bfloat16, sys::mlx_dtype__MLX_BFLOAT16),
    (Dtype::Complex64, sys::mlx_dtype__MLX_COMPLEX64),
];

impl Dtype {
    pub(crate) fn raw(self) -> sys::mlx_dtype {
        RAW[self as usize].1
    }

    pub(crate) fn from_raw(raw: sys::mlx_dtype) -> Option<Self> {
        RAW.iter().find(|(_, r)| *r == raw).map(|(d, _)| *d)
    }

    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => 1,
            Self::Uint16 | Self::Int16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Uint32 | Self::Int32 | Self::Float32 => 4,
            Self::Uint64 | Self::Int64 | Self::Float64 | Self::Complex64 => 8,
        }
    }

    /// Any floating-point type, complex not included.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float16 | Self::Bfloat16 | Self::Float32 | Self::Float64)
    }

    /// Any integer type, bool not included.
    pub fn is_integer(self) -> bool {
        self.is_signed_integer() || self.is_unsigned_integer()
    }

    /// int8 to int64.
    pub fn is_signed_integer(self) -> bool {
        matches!(self, Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64)
    }

    /// uint8 to uint64.
    pub fn is_unsigned_integer(self) -> bool {
        matches!(self, Self::Uint8 | Self::Uint16 | Self::Uint32 | Self::Uint64)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is an array's element: plain data with MLX's layout.
pub trait Element: Copy + Send + Sync + sealed::Sealed + 'static {
    /// The element type it stands for.
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}

elements! {
    bool => Bool, u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    f16 => Float16, bf16 => Bfloat16, f32 => Float32, f64 => Float64, Complex32 => Complex64
}
