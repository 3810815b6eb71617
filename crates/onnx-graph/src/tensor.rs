//! Constant tensors: weights and tensor attributes.

use std::borrow::Cow;

use half::{bf16, f16};

use crate::{ElementType, Error};

/// A constant tensor. Its bytes are little-endian, row-major, and borrow from their source where they can.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<'a> {
    element: ElementType,
    dims: Vec<usize>,
    data: Cow<'a, [u8]>,
}

impl<'a> Tensor<'a> {
    /// A tensor over `data`, whose length must be what `element` and `dims` ask for.
    pub fn new(
        element: ElementType,
        dims: impl Into<Vec<usize>>,
        data: impl Into<Cow<'a, [u8]>>,
    ) -> Result<Self, Error> {
        let (dims, data) = (dims.into(), data.into());
        let bytes = dims
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(d))
            .and_then(|count| element.bytes(count))
            .ok_or_else(|| Error::Tensor(format!("no size for {element}{dims:?}")))?;
        if bytes != data.len() {
            return Err(Error::Tensor(format!(
                "{element}{dims:?} takes {bytes} bytes, {} were given",
                data.len()
            )));
        }
        Ok(Self { element, dims, data })
    }

    /// An int64 tensor of rank 1.
    pub fn from_ints(values: &[i64]) -> Tensor<'static> {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor { element: ElementType::Int64, dims: vec![values.len()], data: data.into() }
    }

    /// A float tensor of rank 0.
    pub fn scalar(value: f32) -> Tensor<'static> {
        Tensor { element: ElementType::Float, dims: Vec::new(), data: value.to_le_bytes().to_vec().into() }
    }

    /// Element type.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Sizes; empty for a scalar.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The same tensor owning its bytes.
    pub fn into_owned(self) -> Tensor<'static> {
        Tensor { element: self.element, dims: self.dims, data: Cow::Owned(self.data.into_owned()) }
    }

    /// The values of an integer or boolean tensor; `None` for other types and for uint64 beyond `i64::MAX`.
    pub fn ints(&self) -> Option<Vec<i64>> {
        use ElementType as E;
        Some(match self.element {
            E::Int64 => self.elements(i64::from_le_bytes).collect(),
            E::Int32 => self.elements(i32::from_le_bytes).map(i64::from).collect(),
            E::Int16 => self.elements(i16::from_le_bytes).map(i64::from).collect(),
            E::Int8 => self.elements(i8::from_le_bytes).map(i64::from).collect(),
            E::Uint64 => {
                self.elements(u64::from_le_bytes).map(|v| v.try_into().ok()).collect::<Option<_>>()?
            }
            E::Uint32 => self.elements(u32::from_le_bytes).map(i64::from).collect(),
            E::Uint16 => self.elements(u16::from_le_bytes).map(i64::from).collect(),
            E::Uint8 => self.elements(u8::from_le_bytes).map(i64::from).collect(),
            E::Bool => self.data.iter().map(|&b| i64::from(b != 0)).collect(),
            _ => return None,
        })
    }

    /// The values of a floating-point tensor, widened; `None` for other types.
    pub fn floats(&self) -> Option<Vec<f64>> {
        use ElementType as E;
        Some(match self.element {
            E::Float => self.elements(f32::from_le_bytes).map(f64::from).collect(),
            E::Double => self.elements(f64::from_le_bytes).collect(),
            E::Float16 => self.elements(f16::from_le_bytes).map(f64::from).collect(),
            E::Bfloat16 => self.elements(bf16::from_le_bytes).map(f64::from).collect(),
            _ => return None,
        })
    }

    fn elements<const N: usize, T>(&self, from: impl Fn([u8; N]) -> T) -> impl Iterator<Item = T> {
        self.data.as_chunks::<N>().0.iter().map(move |&bytes| from(bytes))
    }
}
