//! What an operator is: claim, shape mode and lowering in one place.

use crate::host::HostTensor;
use crate::lowering::Lowering;
use crate::{Decline, LowerError, NodeRef};

/// Which nodes an operator takes: a domain and a name. Differences between versions are the claim's to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpKey {
    /// Empty for ai.onnx.
    pub domain: &'static str,
    /// The operator's name.
    pub name: &'static str,
}

impl OpKey {
    /// An operator of ai.onnx.
    pub const fn onnx(name: &'static str) -> Self {
        Self { domain: "", name }
    }

    /// An operator of com.microsoft.
    pub const fn microsoft(name: &'static str) -> Self {
        Self { domain: "com.microsoft", name }
    }
}

/// How a program that holds an operator may be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeMode {
    /// The traced graph is right for every shape.
    Shapeless,
    /// The traced graph is right for the shapes, and the host-known values, that it was traced with; the text says why.
    Keyed(&'static str),
    /// An output's shape depends on values on the device, so that every run is traced anew; the text says why.
    Eager(&'static str),
}

/// An operator, parsed: every attribute read and every default applied. Claiming *is* parsing; lowering gets the result.
pub(crate) trait Op: Sized + Send + Sync + 'static {
    /// The nodes that are asked about.
    const KEYS: &'static [OpKey];

    /// Parses a node, or says why it stays with ONNX Runtime. What is claimed must run for every input it admits.
    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline>;

    /// How a program that holds this may be compiled.
    fn shape_mode(&self) -> ShapeMode;

    /// Builds the outputs.
    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError>;

    /// Computes the outputs on the host when every input is known there: shape arithmetic. `None` hands over to `lower`.
    fn fold(&self, _inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        Ok(None)
    }
}

/// An [`Op`] behind a pointer, as programs hold it.
pub(crate) trait AnyOp: Send + Sync {
    fn shape_mode(&self) -> ShapeMode;
    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError>;
    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError>;
}

impl<T: Op> AnyOp for T {
    fn shape_mode(&self) -> ShapeMode {
        Op::shape_mode(self)
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        Op::lower(self, cx)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        Op::fold(self, inputs)
    }
}

/// One row of the registry.
pub struct Entry {
    /// The nodes it takes.
    pub keys: &'static [OpKey],
    pub(crate) claim: fn(&NodeRef<'_>) -> Result<Box<dyn AnyOp>, Decline>,
}

impl Entry {
    pub(crate) const fn of<T: Op>() -> Self {
        Self { keys: T::KEYS, claim: |node| Ok(Box::new(T::claim(node)?)) }
    }
}
