//! ONNX's element types and MLX's.

use mlx_safe::Dtype;
use onnx_graph::ElementType;

/// The MLX type that holds an ONNX type; `None` where MLX has none. Doubles are left to ONNX Runtime: MLX has them on
/// its CPU back end only.
pub(crate) fn to_mlx(element: ElementType) -> Option<Dtype> {
    Some(match element {
        ElementType::Float => Dtype::Float32,
        ElementType::Float16 => Dtype::Float16,
        ElementType::Bfloat16 => Dtype::Bfloat16,
        ElementType::Uint8 => Dtype::Uint8,
        ElementType::Uint16 => Dtype::Uint16,
        ElementType::Uint32 => Dtype::Uint32,
        ElementType::Uint64 => Dtype::Uint64,
        ElementType::Int8 => Dtype::Int8,
        ElementType::Int16 => Dtype::Int16,
        ElementType::Int32 => Dtype::Int32,
        ElementType::Int64 => Dtype::Int64,
        ElementType::Bool => Dtype::Bool,
        _ => return None,
    })
}

/// The ONNX type of an MLX type.
pub(crate) fn to_onnx(dtype: Dtype) -> ElementType {
    match dtype {
        Dtype::Bool => ElementType::Bool,
        Dtype::Uint8 => ElementType::Uint8,
        Dtype::Uint16 => ElementType::Uint16,
        Dtype::Uint32 => ElementType::Uint32,
        Dtype::Uint64 => ElementType::Uint64,
        Dtype::Int8 => ElementType::Int8,
        Dtype::Int16 => ElementType::Int16,
        Dtype::Int32 => ElementType::Int32,
        Dtype::Int64 => ElementType::Int64,
        Dtype::Float16 => ElementType::Float16,
        Dtype::Float32 => ElementType::Float,
        Dtype::Float64 => ElementType::Double,
        Dtype::Bfloat16 => ElementType::Bfloat16,
        Dtype::Complex64 => ElementType::Complex64,
    }
}
