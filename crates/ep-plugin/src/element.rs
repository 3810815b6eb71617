//! ONNX Runtime's numbers for element types, which part from ONNX's after 23.

use onnx_graph::ElementType;

/// The element type that ONNX Runtime calls `number`; `None` for undefined and for types newer than this crate.
pub fn from_ort(number: i32) -> Option<ElementType> {
    match number {
        24 => Some(ElementType::Uint2),
        25 => Some(ElementType::Int2),
        26 => Some(ElementType::Float8E8M0),
        same => ElementType::from_onnx(same),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ort_sys::ONNXTensorElementDataType as Ort;

    #[test]
    fn numbers_agree_with_onnx_runtime() {
        for (number, element) in [
            (Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, ElementType::Float),
            (Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, ElementType::Bfloat16),
            (Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4, ElementType::Int4),
            (Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT4E2M1, ElementType::Float4E2M1),
            (Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT2, ElementType::Uint2),
            (Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT2, ElementType::Int2),
            (Ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E8M0, ElementType::Float8E8M0),
        ] {
            assert_eq!(from_ort(number as i32), Some(element));
        }
        assert_eq!(from_ort(0), None);
        assert_eq!(from_ort(27), None);
    }
}
