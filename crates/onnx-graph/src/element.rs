//! Element types of tensors, numbered as `TensorProto.DataType` in the ONNX specification.

use std::fmt;

macro_rules! element_types {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $bits:literal;)*) => {
        /// The element type of a tensor (`TensorProto.DataType`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum ElementType { $($(#[$doc])* $variant = $number,)* }

        impl ElementType {
            /// Every element type that this crate knows.
            pub const ALL: &'static [ElementType] = &[$(ElementType::$variant,)*];

            /// The type with ONNX's number `number`; `None` for 0 (undefined) and for numbers newer than this crate.
            pub fn from_onnx(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }

            /// Width of one element in bits; 0 for strings.
            pub fn bits(self) -> usize {
                match self { $(Self::$variant => $bits,)* }
            }

            /// The name used in ONNX type strings, such as `float` in `tensor(float)`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

element_types! {
    /// IEEE binary32.
    Float = 1, "float", 32;
    /// Unsigned 8-bit integer.
    Uint8 = 2, "uint8", 8;
    /// Signed 8-bit integer.
    Int8 = 3, "int8", 8;
    /// Unsigned 16-bit integer.
    Uint16 = 4, "uint16", 16;
    /// Signed 16-bit integer.
    Int16 = 5, "int16", 16;
    /// Signed 32-bit integer.
    Int32 = 6, "int32", 32;
    /// Signed 64-bit integer.
    Int64 = 7, "int64", 64;
    /// UTF-8 string.
    String = 8, "string", 0;
    /// Boolean, one byte each.
    Bool = 9, "bool", 8;
    /// IEEE binary16.
    Float16 = 10, "float16", 16;
    /// IEEE binary64.
    Double = 11, "double", 64;
    /// Unsigned 32-bit integer.
    Uint32 = 12, "uint32", 32;
    /// Unsigned 64-bit integer.
    Uint64 = 13, "uint64", 64;
    /// Two binary32.
    Complex64 = 14, "complex64", 64;
    /// Two binary64.
    Complex128 = 15, "complex128", 128;
    /// bfloat16: binary32 cut to 16 bits.
    Bfloat16 = 16, "bfloat16", 16;
    /// 8-bit float E4M3, finite, one NaN.
    Float8E4M3FN = 17, "float8e4m3fn", 8;
    /// 8-bit float E4M3, no negative zero.
    Float8E4M3FNUZ = 18, "float8e4m3fnuz", 8;
    /// 8-bit float E5M2.
    Float8E5M2 = 19, "float8e5m2", 8;
    /// 8-bit float E5M2, no negative zero.
    Float8E5M2FNUZ = 20, "float8e5m2fnuz", 8;
    /// Unsigned 4-bit integer, two to a byte.
    Uint4 = 21, "uint4", 4;
    /// Signed 4-bit integer, two to a byte.
    Int4 = 22, "int4", 4;
    /// 4-bit float E2M1, two to a byte.
    Float4E2M1 = 23, "float4e2m1", 4;
    /// 8-bit float E8M0: powers of two.
    Float8E8M0 = 24, "float8e8m0", 8;
    /// Unsigned 2-bit integer, four to a byte.
    Uint2 = 25, "uint2", 2;
    /// Signed 2-bit integer, four to a byte.
    Int2 = 26, "int2", 2;
}

impl ElementType {
    /// ONNX's number of this type.
    pub fn onnx(self) -> i32 {
        self as i32
    }

    /// Bytes that `count` elements take; `None` for strings or on overflow.
    pub fn bytes(self, count: usize) -> Option<usize> {
        match self.bits() {
            0 => None,
            bits => Some(count.checked_mul(bits)?.div_ceil(8)),
        }
    }

    /// Binary32, binary16, bfloat16 or binary64.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float | Self::Float16 | Self::Bfloat16 | Self::Double)
    }

    /// An integer of 8 to 64 bits, signed or not.
    pub fn is_integer(self) -> bool {
        self.is_signed_integer() || matches!(self, Self::Uint8 | Self::Uint16 | Self::Uint32 | Self::Uint64)
    }

    /// A signed integer of 8 to 64 bits.
    pub fn is_signed_integer(self) -> bool {
        matches!(self, Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
