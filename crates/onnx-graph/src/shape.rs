//! Shapes as models declare them: sizes, symbols, or nothing.

use std::fmt;

use crate::ElementType;

/// One dimension of a declared shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A size.
    Known(usize),
    /// A named size, equal wherever the name is.
    Symbol(String),
    /// Nothing is declared.
    Unknown,
}

impl Dim {
    /// The size, if it is declared as a number.
    pub fn known(&self) -> Option<usize> {
        match self {
            Dim::Known(n) => Some(*n),
            _ => None,
        }
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Self {
        Self::Known(size)
    }
}

impl From<&str> for Dim {
    fn from(name: &str) -> Self {
        Self::Symbol(name.to_owned())
    }
}

/// A declared shape of known rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Shape(pub Vec<Dim>);

impl Shape {
    /// A shape of sizes only.
    pub fn fixed(dims: &[usize]) -> Self {
        Self(dims.iter().map(|&d| Dim::Known(d)).collect())
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// All sizes, if every one is declared as a number.
    pub fn known(&self) -> Option<Vec<usize>> {
        self.0.iter().map(Dim::known).collect()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match dim {
                Dim::Known(n) => write!(f, "{comma}{n}")?,
                Dim::Symbol(s) => write!(f, "{comma}{s}")?,
                Dim::Unknown => write!(f, "{comma}?")?,
            }
        }
        f.write_str("]")
    }
}

/// The declared type of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub element: ElementType,
    /// Declared shape; `None` when not even the rank is known.
    pub shape: Option<Shape>,
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Some(shape) => write!(f, "{}{shape}", self.element),
            None => write!(f, "{}[..]", self.element),
        }
    }
}
