//! `If`: the branch that a condition chooses. Known on the host it costs nothing; else it is read from the device.

use super::body::{Body, expect_arity};
use super::scalar;
use crate::claim::body_type;
use crate::compile::Compiler;
use crate::lowering::Lowering;
use crate::op::{AnyOp, BodyOp, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

pub(crate) struct If;

/// Both branches, ready to run.
pub(crate) struct Branches {
    then: Body,
    otherwise: Body,
}

const BRANCHES: [&str; 2] = ["then_branch", "else_branch"];

impl BodyOp for If {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("If")];
    type Compiled = Branches;

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        node.expect_type(0, |e| e == onnx_graph::ElementType::Bool)?;
        for name in BRANCHES {
            let body = node.body(name)?;
            expect_arity(body, 0, node.output_count())?;
            for (i, &output) in body.outputs().iter().enumerate().filter(|(i, _)| node.has_output(*i)) {
                if body_type(body, output)? != node.output_type(i)? {
                    return Err(Decline::invalid(format!("output {i} of {name} is of another type")));
                }
            }
        }
        Ok(Self)
    }

    fn compile(self, node: &NodeRef<'_>, compiler: &Compiler) -> Result<Branches, LowerError> {
        let [then, otherwise] = BRANCHES.map(|name| Body::compile(node, name, compiler));
        Ok(Branches { then: then?, otherwise: otherwise? })
    }
}

impl AnyOp for Branches {
    fn has_bodies(&self) -> bool {
        true
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the condition chooses a branch")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let holds = scalar::read(cx.input(0)?, "the condition")? != 0;
        let branch = if holds { &self.then } else { &self.otherwise };
        let outer = branch.outer(cx)?;
        let outputs = branch.program.call(outer, cx.run())?;
        outputs.into_iter().enumerate().try_for_each(|(i, output)| cx.emit_value(i, output))
    }
}
