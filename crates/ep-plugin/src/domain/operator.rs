//! How an operator of the domain is described: formal parameters whose axes have letters, attributes, and a function for
//! each element type. Types and shapes are checked against this description wherever they become known: at load, and at
//! every run.

use std::ffi::CStr;
use std::fmt;
use std::ops::RangeInclusive;

use onnx_graph::{Dim, ElementType, Shape, TensorType};

use super::call::Call;

/// The element types of T, the type that an operator's inputs and outputs share.
pub const TYPES: [ElementType; 3] = [ElementType::Float, ElementType::Float16, ElementType::Bfloat16];

/// An operator.
pub struct Operator {
    /// Its name in the domain.
    pub name: &'static CStr,
    /// Its inputs; the first is of kind [`Kind::T`].
    pub inputs: &'static [Formal],
    /// Its outputs.
    pub outputs: &'static [Formal],
    /// Its attributes.
    pub attributes: &'static [Attribute],
    /// What inputs must satisfy beyond their descriptions.
    pub check: fn(&Sizes, &[Option<TensorType>]) -> Result<(), String>,
    /// Computes the outputs.
    pub kernels: Kernels,
}

/// A formal input or output.
pub struct Formal {
    /// Its name, for messages: nodes go by position.
    pub name: &'static str,
    /// A letter for each axis; axes with the same letter have the same size.
    pub axes: &'static [&'static str],
    /// Whether a node may leave it out.
    pub optional: bool,
    /// What it holds.
    pub kind: Kind,
}

/// What a parameter holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Elements of the node's type.
    T,
    /// Floats, whatever T is.
    Float,
    /// Bools, or floats of any of [`TYPES`]. It broadcasts to its axes, and its last may be shorter.
    Mask,
}

/// An attribute.
pub enum Attribute {
    /// An integer.
    Int {
        /// Its name.
        name: &'static CStr,
        /// What it is where a node does not say.
        default: i64,
        /// What it may be.
        allowed: RangeInclusive<i64>,
        /// What the allowed values mean, for messages.
        meaning: &'static str,
    },
    /// A finite number that a node may leave out.
    Float {
        /// Its name.
        name: &'static CStr,
        /// What it means, for messages.
        meaning: &'static str,
    },
}

impl Attribute {
    /// Its name.
    pub fn name(&self) -> &'static CStr {
        match self {
            Self::Int { name, .. } | Self::Float { name, .. } => name,
        }
    }

    /// What to give, for messages.
    pub fn meaning(&self) -> &'static str {
        match self {
            Self::Int { meaning, .. } | Self::Float { meaning, .. } => meaning,
        }
    }
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Of an [`Attribute::Int`].
    Int(i64),
    /// Of an [`Attribute::Float`].
    Float(Option<f32>),
}

/// One function for each element type of T.
pub struct Kernels {
    /// For `f32`.
    pub float: fn(Call<'_>) -> Result<(), String>,
    /// For `f16`.
    pub float16: fn(Call<'_>) -> Result<(), String>,
    /// For `bf16`.
    pub bfloat16: fn(Call<'_>) -> Result<(), String>,
}

/// The [`Kernels`] of a function that is generic over its element type.
macro_rules! kernels {
    ($function:ident) => {
        $crate::domain::operator::Kernels {
            float: $function::<f32>,
            float16: $function::<half::f16>,
            bfloat16: $function::<half::bf16>,
        }
    };
}
pub(super) use kernels;

/// A parameter that every node has.
pub const fn required(name: &'static str, axes: &'static [&'static str]) -> Formal {
    Formal { name, axes, optional: false, kind: Kind::T }
}

/// A parameter that a node may leave out.
pub const fn optional(name: &'static str, axes: &'static [&'static str]) -> Formal {
    Formal { name, axes, optional: true, kind: Kind::T }
}

impl Formal {
    /// Its shape under the given sizes.
    pub fn shape(&self, sizes: &Sizes) -> Shape {
        Shape(self.axes.iter().map(|letter| sizes.dim(letter)).collect())
    }

    /// Its element type in a node with T = `element`; `None` if there are several.
    pub fn element(&self, element: ElementType) -> Option<ElementType> {
        match self.kind {
            Kind::T => Some(element),
            Kind::Float => Some(ElementType::Float),
            Kind::Mask => None,
        }
    }
}

/// The parameter with its letters: `b (T, B, N)`.
impl fmt::Display for Formal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' ({})", self.name, self.axes.join(", "))
    }
}

impl Operator {
    /// Its name, for messages.
    pub fn title(&self) -> &'static str {
        self.name.to_str().unwrap_or_default()
    }

    /// The function for T = `element`, one of [`TYPES`].
    pub fn kernel(&self, element: ElementType) -> fn(Call<'_>) -> Result<(), String> {
        match element {
            ElementType::Float16 => self.kernels.float16,
            ElementType::Bfloat16 => self.kernels.bfloat16,
            _ => self.kernels.float,
        }
    }

    /// The sizes behind the letters, as far as the inputs of a node tell; `None` stands for an input left out.
    ///
    /// # Errors
    /// What does not fit, and what would.
    pub fn sizes(&self, element: ElementType, inputs: &[Option<TensorType>]) -> Result<Sizes, String> {
        let mut sizes = Sizes::default();
        for (index, formal) in self.inputs.iter().enumerate() {
            let Some(given) = inputs.get(index).and_then(Option::as_ref) else {
                if formal.optional {
                    continue;
                }
                return Err(format!("input {formal} is missing"));
            };
            match formal.element(element) {
                Some(wanted) if given.element != wanted => return Err(self.type_error(formal, given, wanted)),
                Some(_) => sizes.bind(formal, given)?,
                None if given.element != ElementType::Bool && !TYPES.contains(&given.element) => {
                    return Err(format!(
                        "input '{}' is {}: give bool, float, float16 or bfloat16",
                        formal.name, given.element
                    ));
                }
                None => {}
            }
        }
        for (formal, given) in self.inputs.iter().zip(inputs) {
            if let (Kind::Mask, Some(given)) = (formal.kind, given) {
                sizes.broadcast(formal, given)?;
            }
        }
        (self.check)(&sizes, inputs)?;
        Ok(sizes)
    }

    fn type_error(&self, formal: &Formal, given: &TensorType, wanted: ElementType) -> String {
        let (name, found) = (formal.name, given.element);
        match formal.kind {
            Kind::T => format!(
                "input '{name}' is {found}, but '{}' is {wanted}: give both the same type, float, float16 or bfloat16 \
                 (Cast converts)",
                self.inputs[0].name
            ),
            _ => format!("input '{name}' is {found}: give {wanted} (Cast converts)"),
        }
    }
}

/// Sizes by letter.
#[derive(Default)]
pub struct Sizes(Vec<Size>);

struct Size {
    letter: &'static str,
    dim: Dim,
    /// The parameter that told it.
    from: &'static str,
}

impl Sizes {
    /// The size of a letter; unknown where no input told it.
    pub fn dim(&self, letter: &str) -> Dim {
        self.0.iter().find(|size| size.letter == letter).map_or(Dim::Unknown, |size| size.dim.clone())
    }

    fn bind(&mut self, formal: &Formal, given: &TensorType) -> Result<(), String> {
        let Some(shape) = &given.shape else { return Ok(()) };
        if shape.rank() != formal.axes.len() {
            return Err(format!(
                "input {formal} has {} axes, but its shape is {shape} with {}: Reshape or Transpose it first",
                formal.axes.len(),
                shape.rank()
            ));
        }
        for (&letter, dim) in formal.axes.iter().zip(&shape.0) {
            let Some(size) = self.0.iter_mut().find(|size| size.letter == letter) else {
                self.0.push(Size { letter, dim: dim.clone(), from: formal.name });
                continue;
            };
            match (&size.dim, dim) {
                (Dim::Known(known), Dim::Known(other)) if known != other => {
                    return Err(format!(
                        "input {formal} has the shape {shape}, so {letter} is {other}, but input '{}' says {known}: \
                         axes with the same letter must have the same size",
                        size.from
                    ));
                }
                // A number tells more than a name, and a name more than nothing.
                (Dim::Symbol(_) | Dim::Unknown, Dim::Known(_)) | (Dim::Unknown, Dim::Symbol(_)) => {
                    (size.dim, size.from) = (dim.clone(), formal.name);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Sizes {
    /// Whether `given` broadcasts to the axes of `formal`, but for a last size that may be smaller.
    fn broadcast(&self, formal: &Formal, given: &TensorType) -> Result<(), String> {
        let Some(shape) = &given.shape else { return Ok(()) };
        let pairs = formal.axes.iter().rev().zip(shape.0.iter().rev()).enumerate();
        let fits = |(i, (letter, dim)): (usize, (&&str, &Dim))| match (dim.known(), self.dim(letter).known())
        {
            (Some(size), Some(whole)) => size == 1 || size == whole || (i == 0 && size < whole),
            _ => true,
        };
        if shape.rank() <= formal.axes.len() && pairs.into_iter().all(fits) {
            return Ok(());
        }
        Err(format!(
            "input {formal} has the shape {shape}, which does not broadcast to {}; only its last size may be smaller",
            formal.shape(self)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATOR: Operator = Operator {
        name: c"Pair",
        inputs: &[
            required("x", &["T", "D"]),
            required("w", &["D", "N"]),
            optional("h", &["N"]),
            Formal { kind: Kind::Mask, ..optional("mask", &["T", "N"]) },
        ],
        outputs: &[required("y", &["T", "N"])],
        attributes: &[],
        check: |sizes, _| match sizes.dim("N") {
            Dim::Known(13) => Err("N is unlucky".into()),
            _ => Ok(()),
        },
        kernels: Kernels { float: |_| Ok(()), float16: |_| Ok(()), bfloat16: |_| Ok(()) },
    };

    fn tensor(element: ElementType, dims: &[Dim]) -> Option<TensorType> {
        Some(TensorType { element, shape: Some(Shape(dims.to_vec())) })
    }

    fn float(dims: &[Dim]) -> Option<TensorType> {
        tensor(ElementType::Float, dims)
    }

    fn refusal(inputs: &[Option<TensorType>]) -> String {
        OPERATOR.sizes(ElementType::Float, inputs).err().unwrap()
    }

    #[test]
    fn outputs_take_the_sizes_of_their_letters() {
        let inputs = [float(&["T".into(), Dim::Unknown]), float(&[4.into(), "N".into()]), None];
        let sizes = OPERATOR.sizes(ElementType::Float, &inputs).unwrap();
        assert_eq!(OPERATOR.outputs[0].shape(&sizes), Shape(vec!["T".into(), "N".into()]));
        assert_eq!(sizes.dim("D"), Dim::Known(4));
    }

    #[test]
    fn an_input_of_unknown_rank_leaves_its_letters_open() {
        let x = Some(TensorType { element: ElementType::Float, shape: None });
        let sizes = OPERATOR.sizes(ElementType::Float, &[x, float(&[0.into(), 3.into()])]).unwrap();
        assert_eq!(OPERATOR.outputs[0].shape(&sizes), Shape(vec![Dim::Unknown, 3.into()]));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let x = float(&[2.into(), 3.into()]);
        assert_eq!(refusal(&[x.clone(), None]), "input 'w' (D, N) is missing");
        let message = refusal(&[x.clone(), float(&[5.into(), 1.into()])]);
        assert!(
            message.contains("'w' (D, N) has the shape [5, 1], so D is 5, but input 'x' says 3"),
            "{message}"
        );
        let message = refusal(&[x.clone(), float(&[3.into()])]);
        assert!(message.contains("'w' (D, N) has 2 axes, but its shape is [3] with 1"), "{message}");
        let message = refusal(&[x, tensor(ElementType::Float16, &[3.into(), 1.into()])]);
        assert!(message.contains("'w' is float16, but 'x' is float: give both the same type"), "{message}");
    }
}
