//! A body: a program and where its outer-scope values come from.

use onnx_graph::Graph;

use crate::claim::body_type;
use crate::compile::Compiler;
use crate::lowering::{Lowering, Value};
use crate::program::Program;
use crate::{Decline, LowerError, NodeRef};

/// A compiled body. Its program takes the body's inputs and then the outer-scope values.
pub(super) struct Body {
    pub(super) program: Program,
    /// For each outer-scope value, which input of the lowering it is.
    pub(super) captured: Vec<usize>,
}

impl Body {
    pub(super) fn compile(node: &NodeRef<'_>, name: &str, compiler: &Compiler) -> Result<Self, LowerError> {
        let declined = |decline: Decline| LowerError::Bug(format!("claimed before, now declined: {decline}"));
        let graph = node.body(name).map_err(declined)?;
        let captured = graph.outer_values().map(|outer| node.captured(&graph.value(outer).name));
        let captured = captured.collect::<Result<_, _>>().map_err(declined)?;
        Ok(Self { program: compiler.program(graph)?, captured })
    }

    /// The outer-scope values of this run.
    pub(super) fn outer(&self, cx: &Lowering<'_>) -> Result<Vec<Value>, LowerError> {
        self.captured.iter().map(|&i| cx.input(i).cloned()).collect()
    }
}

/// Declines unless the body has `inputs` inputs and `outputs` outputs.
pub(super) fn expect_arity(body: &Graph<'_>, inputs: usize, outputs: usize) -> Result<(), Decline> {
    let found = (body.inputs().len(), body.outputs().len());
    if found == (inputs, outputs) {
        return Ok(());
    }
    Err(Decline::invalid(format!(
        "the body takes {} inputs and gives {} outputs, the node asks for {inputs} and {outputs}",
        found.0, found.1
    )))
}

/// Declines unless input `i` of the node, and input and output of the body, are of one type: a state goes round.
pub(super) fn expect_state(
    node: &NodeRef<'_>,
    i: usize,
    body: &Graph<'_>,
    input: usize,
    output: usize,
) -> Result<(), Decline> {
    let given = node.input_type(i)?;
    for id in [body.inputs()[input], body.outputs()[output]] {
        let element = body_type(body, id)?;
        if element != given {
            return Err(Decline::invalid(format!("a state is {given}, and {element} in the body")));
        }
    }
    Ok(())
}

/// The shape of a body's output as declared, 0 where no size is: what an iteration that never ran would have made.
pub(super) fn declared_shape(body: &Graph<'_>, output: usize) -> Vec<i32> {
    let value = body.value(body.outputs()[output]);
    let shape = value.tensor_type().and_then(|t| t.shape.as_ref());
    let size = |d: &onnx_graph::Dim| d.known().and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
    shape.map_or(Vec::new(), |shape| shape.0.iter().map(size).collect())
}
