//! What an operator's function gets: the tensors of one run as slices, and the attributes.

use std::ops::{Deref, DerefMut};

use onnx_graph::ElementType;

use super::operator::Sizes;

/// A Rust type that tensors hold.
pub trait Element: Copy + Default + 'static {
    /// Its ONNX type.
    const TYPE: ElementType;
}

impl Element for f32 {
    const TYPE: ElementType = ElementType::Float;
}

impl Element for half::f16 {
    const TYPE: ElementType = ElementType::Float16;
}

impl Element for half::bf16 {
    const TYPE: ElementType = ElementType::Bfloat16;
}

/// One run of a node: inputs that fit the operator's description, and outputs to fill.
pub struct Call<'a> {
    pub(super) sizes: &'a Sizes,
    pub(super) attributes: &'a [i64],
    pub(super) inputs: Vec<Option<Buffer<'a>>>,
    pub(super) outputs: Vec<Option<BufferMut<'a>>>,
}

impl<'a> Call<'a> {
    /// The size of a letter.
    pub fn size(&self, letter: &str) -> Result<usize, String> {
        self.sizes.dim(letter).known().ok_or_else(|| format!("no input tells the size {letter}"))
    }

    /// The value of the attribute with this index.
    pub fn attribute(&self, index: usize) -> Result<i64, String> {
        self.attributes.get(index).copied().ok_or_else(|| format!("there is no attribute {index}"))
    }

    /// An input that every node has.
    pub fn input<T: Element>(&self, index: usize) -> Result<&'a [T], String> {
        self.optional_input(index)?.ok_or_else(|| format!("input {index} is missing"))
    }

    /// An input; `None` if the node leaves it out.
    pub fn optional_input<T: Element>(&self, index: usize) -> Result<Option<&'a [T]>, String> {
        self.inputs.get(index).and_then(Option::as_ref).map(Buffer::elements).transpose()
    }

    /// Takes an output, or `len` elements to throw away where the node does not ask for it.
    pub fn output<T: Element>(&mut self, index: usize, len: usize) -> Result<Output<'a, T>, String> {
        match self.outputs.get_mut(index).and_then(Option::take) {
            Some(buffer) => Ok(Output::Asked(buffer.into_elements()?)),
            None => Ok(Output::Unasked(vec![T::default(); len])),
        }
    }
}

/// Where an output goes.
pub enum Output<'a, T> {
    /// To ONNX Runtime.
    Asked(&'a mut [T]),
    /// Nowhere.
    Unasked(Vec<T>),
}

impl<T> Deref for Output<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Asked(elements) => elements,
            Self::Unasked(elements) => elements,
        }
    }
}

impl<T> DerefMut for Output<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Asked(elements) => elements,
            Self::Unasked(elements) => elements,
        }
    }
}

/// The elements of a tensor.
pub struct Buffer<'a> {
    pub(super) element: ElementType,
    pub(super) data: &'a [u8],
}

/// The elements of a tensor that is to be filled.
pub struct BufferMut<'a> {
    pub(super) element: ElementType,
    pub(super) data: &'a mut [u8],
}

impl<'a> Buffer<'a> {
    fn elements<T: Element>(&self) -> Result<&'a [T], String> {
        fits::<T>(self.element, self.data)?;
        if self.data.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: every bit pattern is a value of the element types; type, length and address fit.
        Ok(unsafe { std::slice::from_raw_parts(self.data.as_ptr().cast(), self.data.len() / size_of::<T>()) })
    }
}

impl<'a> BufferMut<'a> {
    fn into_elements<T: Element>(self) -> Result<&'a mut [T], String> {
        fits::<T>(self.element, self.data)?;
        if self.data.is_empty() {
            return Ok(&mut []);
        }
        let len = self.data.len() / size_of::<T>();
        // SAFETY: as above; this was the only reference.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data.as_mut_ptr().cast(), len) })
    }
}

fn fits<T: Element>(element: ElementType, data: &[u8]) -> Result<(), String> {
    if element != T::TYPE {
        return Err(format!("a tensor of {element} is read as {}", T::TYPE));
    }
    if !data.is_empty() && !data.as_ptr().cast::<T>().is_aligned() {
        return Err(format!("a tensor of {element} lies at an odd address"));
    }
    Ok(())
}
