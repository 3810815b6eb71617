//! What an operator is: claim, shape mode and lowering in one place.

use mlx_safe::Array;

use crate::compile::Compiler;
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

    /// An operator of this project's own domain.
    pub const fn own(name: &'static str) -> Self {
        Self { domain: "ai.ortmlx", name }
    }

    /// An operator of com.microsoft.
    pub const fn microsoft(name: &'static str) -> Self {
        Self { domain: "com.microsoft", name }
    }
}

/// For which shapes the recorded lowering of an operator is right. Which values it reads on the host is found out when it is
/// recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeMode {
    /// For every shape.
    Shapeless,
    /// For those that it was recorded with; the text says why.
    Keyed(&'static str),
}

/// An operator, parsed: every attribute read and every default applied. Claiming *is* parsing; lowering gets the result.
pub(crate) trait Op: Sized + Send + Sync + 'static {
    /// The nodes that are asked about.
    const KEYS: &'static [OpKey];

    /// Parses a node, or says why it stays with ONNX Runtime. What is claimed must run for every input it admits.
    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline>;

    /// For which shapes a recorded lowering is right.
    fn shape_mode(&self) -> ShapeMode;

    /// Builds the outputs.
    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError>;

    /// Computes the outputs on the host when every input is known there: shape arithmetic. `None` hands over to `lower`.
    fn fold(&self, _inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        Ok(None)
    }

    /// How many inputs, from the first on, [`Op::fold`] asks for.
    fn fold_inputs(&self) -> usize {
        usize::MAX
    }

    /// The same array as constant input `i` laid out in memory as `lower` wants it, if that is worth it. Asked once, when
    /// the program is made.
    fn stored(&self, _i: usize, _constant: &Array) -> mlx_safe::Result<Option<Array>> {
        Ok(None)
    }
}

/// An operator with bodies: claimed like any other, then compiled with programs for them.
pub(crate) trait BodyOp: Sized + 'static {
    /// The nodes that are asked about.
    const KEYS: &'static [OpKey];

    /// What a program holds; it stays on the worker's thread.
    type Compiled: AnyOp + 'static;

    /// Parses a node and claims everything in its bodies, or says why it stays with ONNX Runtime.
    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline>;

    /// Compiles the bodies. Called on the worker's thread.
    fn compile(self, node: &NodeRef<'_>, compiler: &Compiler) -> Result<Self::Compiled, LowerError>;
}

/// An operator behind a pointer, as programs hold it.
pub(crate) trait AnyOp {
    fn shape_mode(&self) -> ShapeMode;
    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError>;
    fn fold(&self, _inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        Ok(None)
    }
    fn fold_inputs(&self) -> usize {
        usize::MAX
    }
    /// Whether it runs bodies, for as long as they say.
    fn has_bodies(&self) -> bool {
        false
    }
    fn stored(&self, _i: usize, _constant: &Array) -> mlx_safe::Result<Option<Array>> {
        Ok(None)
    }
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

    fn fold_inputs(&self) -> usize {
        Op::fold_inputs(self)
    }

    fn stored(&self, i: usize, constant: &Array) -> mlx_safe::Result<Option<Array>> {
        Op::stored(self, i, constant)
    }
}

/// What compiling an entry gives: the operator, or why its node is declined after all.
pub(crate) type Compilation = Result<Result<Box<dyn AnyOp>, LowerError>, Decline>;

/// One row of the registry.
pub struct Entry {
    /// The nodes it takes.
    pub keys: &'static [OpKey],
    pub(crate) claim: fn(&NodeRef<'_>) -> Result<(), Decline>,
    pub(crate) compile: fn(&NodeRef<'_>, &Compiler) -> Compilation,
}

impl Entry {
    pub(crate) const fn of<T: Op>() -> Self {
        Self {
            keys: T::KEYS,
            claim: |node| T::claim(node).map(drop),
            compile: |node, _| T::claim(node).map(|op| Ok(Box::new(op) as _)),
        }
    }

    pub(crate) const fn with_bodies<T: BodyOp>() -> Self {
        Self {
            keys: T::KEYS,
            claim: |node| T::claim(node).map(drop),
            compile: |node, compiler| T::claim(node).map(|op| Ok(Box::new(op.compile(node, compiler)?) as _)),
        }
    }
}
