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
