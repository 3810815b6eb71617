//! Tensor contents: raw bytes, one of the typed fields, or a file of their own.

use std::path::Path;

use super::external;
use crate::{
    ElementType, Error, Tensor,
    proto::{EXTERNAL, TensorProto},
};

/// The tensor that `proto` holds; `None` for strings and element types newer than this crate.
///
/// # Errors
/// [`Error::Tensor`] naming the tensor, if type, sizes and contents do not fit; those of external data.
pub fn tensor(proto: TensorProto, folder: Option<&Path>) -> Result<Option<Tensor<'static>>, Error> {
    let name = proto.name.clone();
    contents(proto, folder).map_err(|error| match error {
        Error::Tensor(reason) => Error::Tensor(format!("'{name}': {reason}")),
        other => other,
    })
}

/// Sizes as a tensor has them.
pub fn sizes(dims: &[i64]) -> Result<Vec<usize>, Error> {
    let size = |&d| usize::try_from(d).map_err(|_| Error::Tensor(format!("a size of {d}")));
    dims.iter().map(size).collect()
}

fn contents(proto: TensorProto, folder: Option<&Path>) -> Result<Option<Tensor<'static>>, Error> {
    if proto.data_type == 0 {
        return Err(Error::Tensor("it has no element type".to_owned()));
    }
    let dims = sizes(&proto.dims)?;
    let known = ElementType::from_onnx(proto.data_type).filter(|&e| e != ElementType::String);
    let Some(element) = known else { return Ok(None) };
    if proto.segment.is_some() {
        return Err(Error::Tensor("segments are not supported".to_owned()));
    }
    let bytes = if proto.data_location == EXTERNAL {
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let size = count.and_then(|n| element.bytes(n));
        let size = size.ok_or_else(|| Error::Tensor(format!("no size for {element}{dims:?}")))?;
        external::load(&proto.external_data, size, folder)?
    } else {
        match proto.raw_data {
            Some(raw) if !raw.is_empty() => raw,
            _ => typed(element, &proto),
        }
    };
    Tensor::new(element, dims, bytes).map(Some)
}

/// The bytes of the typed field that the specification assigns to `element`. Elements of 16 bits or less lie in
/// `int32_data` by their bit pattern; those of less than 8 are packed, a byte to an entry.
fn typed(element: ElementType, proto: &TensorProto) -> Vec<u8> {
    use ElementType as E;
    match element {
        E::Float | E::Complex64 => proto.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        E::Double | E::Complex128 => proto.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        E::Int64 => proto.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        E::Uint64 => proto.uint64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        E::Uint32 => proto.uint64_data.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect(),
        E::Int32 => proto.int32_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
        _ if element.bits() == 16 => {
            proto.int32_data.iter().flat_map(|v| (*v as u16).to_le_bytes()).collect()
        }
        _ => proto.int32_data.iter().map(|v| *v as u8).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::SegmentProto;

    fn proto(data_type: i32, dims: &[i64]) -> TensorProto {
        TensorProto { name: "w".to_owned(), data_type, dims: dims.to_vec(), ..Default::default() }
    }

    fn error(proto: TensorProto) -> String {
        tensor(proto, None).unwrap_err().to_string()
    }

    #[test]
    fn names_the_tensor_and_what_is_wrong() {
        let float = ElementType::Float.onnx();
        assert!(error(proto(0, &[])).contains("'w': it has no element type"));
        assert!(error(proto(float, &[-1])).contains("a size of -1"));
        assert!(error(proto(float, &[3])).contains("takes 12 bytes, 0 were given"));
        assert!(error(proto(float, &[i64::MAX, i64::MAX])).contains("no size"));
        assert!(
            error(TensorProto { raw_data: Some(vec![0; 5]), ..proto(float, &[]) }).contains("4 bytes, 5")
        );
        assert!(
            error(TensorProto { segment: Some(SegmentProto::default()), ..proto(float, &[0]) })
                .contains("segment")
        );
        assert!(error(TensorProto { data_location: EXTERNAL, ..proto(float, &[2]) }).contains("no location"));
        // A field that is not the type's own does not count.
        assert!(error(TensorProto { int32_data: vec![1], ..proto(float, &[1]) }).contains("0 were given"));
    }

    #[test]
    fn strings_and_unknown_types_have_no_contents() {
        assert!(tensor(proto(ElementType::String.onnx(), &[2]), None).unwrap().is_none());
        assert!(tensor(proto(27, &[2]), None).unwrap().is_none());
    }

    #[test]
    fn no_elements_need_no_data() {
        let empty = tensor(proto(ElementType::Int4.onnx(), &[0, 3]), None).unwrap().unwrap();
        assert!(empty.is_empty());
        let raw = TensorProto { raw_data: Some(Vec::new()), float_data: vec![2.0], ..proto(1, &[]) };
        assert_eq!(tensor(raw, None).unwrap().unwrap().floats().unwrap(), [2.0]);
    }
}
