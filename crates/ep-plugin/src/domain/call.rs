//! What an operator's function gets: the tensors of one run as slices, and the attributes.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use onnx_graph::ElementType;

use super::operator::{Sizes, Value};

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
    pub(super) attributes: &'a [Value],
    pub(super) inputs: Vec<Option<Buffer<'a>>>,
    pub(super) outputs: Vec<Option<BufferMut<'a>>>,
}

impl<'a> Call<'a> {
    /// The size of a letter.
    pub fn size(&self, letter: &str) -> Result<usize, String> {
        self.sizes.dim(letter).known().ok_or_else(|| format!("no input tells the size {letter}"))
    }

    /// The value of the attribute with this index.
    pub fn attribute(&self, index: usize) -> Result<Value, String> {
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

    /// The sizes of an input; none for one left out.
    pub fn shape(&self, index: usize) -> &[usize] {
        self.inputs.get(index).and_then(Option::as_ref).map_or(&[], |buffer| &buffer.dims)
    }

    /// The type of an input; `None` if the node leaves it out.
    pub fn element(&self, index: usize) -> Option<ElementType> {
        self.inputs.get(index).and_then(Option::as_ref).map(|buffer| buffer.element)
    }

    /// An input of bools; any byte but 0 is true.
    pub fn bools(&self, index: usize) -> Result<Cow<'a, [bool]>, String> {
        match self.inputs.get(index).and_then(Option::as_ref) {
            Some(buffer) if buffer.element == ElementType::Bool => Ok(bools(buffer.data)),
            _ => Err(format!("input {index} does not hold bools")),
        }
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
    pub(super) dims: Vec<usize>,
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

fn bools(data: &[u8]) -> Cow<'_, [bool]> {
    if data.iter().all(|&byte| byte <= 1) {
        // SAFETY: every byte is a bool's.
        Cow::Borrowed(unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), data.len()) })
    } else {
        data.iter().map(|&byte| byte != 0).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(element: ElementType, data: &[u8]) -> Buffer<'_> {
        Buffer { element, dims: Vec::new(), data }
    }

    #[test]
    fn elements_are_those_of_the_type_asked_for() {
        let bytes = [0u8; 16];
        // Eight bytes from the first address that is a multiple of four, and from the one after it.
        let start = bytes.as_ptr().align_offset(4);
        let at = |start: usize| buffer(ElementType::Float, &bytes[start..start + 8]).elements::<f32>();
        assert_eq!(at(start).unwrap(), [0.0, 0.0]);
        assert_eq!(at(start + 1).unwrap_err(), "a tensor of float lies at an odd address");
        assert!(buffer(ElementType::Float, &[]).elements::<f32>().unwrap().is_empty());
        let error = buffer(ElementType::Float16, &[]).elements::<f32>().unwrap_err();
        assert_eq!(error, "a tensor of float16 is read as float");
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        assert_eq!(&*bools(&[0, 1, 1]), [false, true, true]);
        assert_eq!(&*bools(&[0, 1, 255]), [false, true, true]);
        assert!(bools(&[]).is_empty());
    }
}
