//! Attributes as ONNX Runtime hands them out.

use std::marker::PhantomData;

use onnx_graph::Attribute;
use ort_sys::{OrtOpAttr, OrtOpAttrType};

use crate::api::{Api, ort, text};
use crate::error::{Error, Status};
use crate::tensor_ref::OwnedValue;

/// A view of an attribute, alive for the call that received its node.
#[derive(Clone, Copy)]
pub struct AttributeRef<'a> {
    api: Api,
    raw: *const OrtOpAttr,
    call: PhantomData<&'a OrtOpAttr>,
}

impl<'a> AttributeRef<'a> {
    /// # Safety
    /// `raw` must be live and unchanged during `'a`.
    pub unsafe fn new(api: Api, raw: *const OrtOpAttr) -> Self {
        Self { api, raw, call: PhantomData }
    }

    /// Its name.
    pub fn name(self) -> Result<&'a str, Error> {
        let (api, raw) = (self.api, self.raw);
        // SAFETY: the attribute is live during `'a`, and so is its name.
        unsafe { text(api.get(|out| ort!(api, OpAttr_GetName(raw, out)))?) }
    }

    /// Its value; `None` for a body, which its node lists. Contents that ONNX Runtime does not give out are
    /// [`Attribute::Other`].
    pub fn value(self) -> Result<Option<Attribute<'static>>, Error> {
        use OrtOpAttrType as Kind;
        let (api, raw) = (self.api, self.raw);
        // SAFETY: the attribute is live; the kind is read as the integer it is.
        let kind = unsafe { api.get(|out: *mut i32| ort!(api, OpAttr_GetType(raw, out.cast()))) };
        // ONNX Runtime refuses to name the kinds that it does not read: lists of tensors, sparse tensors, types.
        let Ok(kind) = kind else { return Ok(Some(Attribute::Other("unnamed kind"))) };
        let is = |known: Kind| known as i32 == kind;
        let value = if is(Kind::ORT_OP_ATTR_GRAPH) {
            return Ok(None);
        } else if is(Kind::ORT_OP_ATTR_INT) {
            self.read::<i64>(Kind::ORT_OP_ATTR_INT, 1).first().copied().map(Attribute::Int)
        } else if is(Kind::ORT_OP_ATTR_FLOAT) {
            self.read::<f32>(Kind::ORT_OP_ATTR_FLOAT, 1).first().copied().map(Attribute::Float)
        } else if is(Kind::ORT_OP_ATTR_INTS) {
            Some(Attribute::Ints(self.read(Kind::ORT_OP_ATTR_INTS, 0)))
        } else if is(Kind::ORT_OP_ATTR_FLOATS) {
            Some(Attribute::Floats(self.read(Kind::ORT_OP_ATTR_FLOATS, 0)))
        } else if is(Kind::ORT_OP_ATTR_STRING) {
            Some(Attribute::String(string(self.read(Kind::ORT_OP_ATTR_STRING, 0))))
        } else if is(Kind::ORT_OP_ATTR_STRINGS) {
            Some(Attribute::Strings(strings(&self.read::<u8>(Kind::ORT_OP_ATTR_STRINGS, 0))))
        } else if is(Kind::ORT_OP_ATTR_TENSOR) {
            self.tensor()?
        } else {
            None
        };
        Ok(Some(value.unwrap_or(Attribute::Other("unreadable"))))
    }

    /// The elements of an attribute of the kind `kind`, of which there are at least `expected`; none if ONNX Runtime
    /// finds none.
    fn read<T: Copy + Default>(self, kind: OrtOpAttrType, expected: usize) -> Vec<T> {
        let (api, raw) = (self.api, self.raw);
        let mut buffer = vec![T::default(); expected];
        loop {
            let room = buffer.len() * size_of::<T>();
            let mut needed = 0;
            // SAFETY: the attribute is live; ONNX Runtime writes no more than `room` bytes, and bytes of these kinds
            // are valid elements; the status is ours.
            let failed = unsafe {
                let data = buffer.as_mut_ptr().cast();
                Status::take(api.statuses(), ort!(api, ReadOpAttr(raw, kind, data, room, &raw mut needed)))
            };
            // With too little room, ONNX Runtime fails and says how much it takes.
            let needed = needed / size_of::<T>();
            match failed {
                None if needed <= buffer.len() => {
                    buffer.truncate(needed);
                    return buffer;
                }
                Some(_) if needed <= buffer.len() => return Vec::new(),
                _ => buffer.resize(needed, T::default()),
            }
        }
    }

    fn tensor(self) -> Result<Option<Attribute<'static>>, Error> {
        let (api, raw) = (self.api, self.raw);
        // SAFETY: the attribute is live; the value made of it is ours.
        let value = unsafe {
            match api.get(|out| ort!(api, OpAttr_GetTensorAttributeAsOrtValue(raw, out))) {
                Ok(value) if !value.is_null() => OwnedValue::new(api, value),
                _ => return Ok(None),
            }
        };
        let Some(tensor) = value.tensor()? else { return Ok(None) };
        Ok(Some(Attribute::Tensor(tensor.to_tensor()?.into_owned())))
    }
}

/// Drops the zero byte that ends a C string.
fn string(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}

/// Splits strings that each end with a zero byte.
fn strings(bytes: &[u8]) -> Vec<Vec<u8>> {
    match bytes.strip_suffix(&[0]).unwrap_or(bytes) {
        [] if bytes.is_empty() => Vec::new(),
        bytes => bytes.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_split_at_their_ends() {
        assert_eq!(strings(b""), Vec::<Vec<u8>>::new());
        assert_eq!(strings(b"\0"), [b""]);
        assert_eq!(strings(b"a\0\0bc\0"), [b"a".to_vec(), b"".to_vec(), b"bc".to_vec()]);
        assert_eq!(string(b"ab\0".to_vec()), b"ab");
        assert_eq!(string(b"ab".to_vec()), b"ab");
    }
}
