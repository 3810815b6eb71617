//! Ranks of values whose shapes nobody declares: they follow from the nodes that make them.

use onnx_graph::Attribute;
use onnx_graph::pattern::{Maker, Place};

use crate::rewrite::stack::ELEMENTWISE;
use crate::rewrite::view::{Source, Steps, outermost};

impl Steps<'_, '_> {
    /// The rank of a value: what is declared, or what its maker gives.
    pub(crate) fn rank(&self, place: Place) -> Option<usize> {
        if let Some(rank) = self.scopes.rank(place) {
            return Some(rank);
        }
        let place = self.scopes.resolve(place);
        match self.source(place) {
            Some(Source::Scanned { outer, .. }) => return self.rank(outermost(outer))?.checked_sub(1),
            Some(Source::Held(outer)) => return self.rank(outermost(outer)),
            None => {}
        }
        let maker = self.scopes.maker(place)?;
        let input = |i: usize| self.rank(maker.input(i)?);
        match maker.node.op_type.as_str() {
            "Constant" => match maker.node.attributes.first_key_value()?.1 {
                Attribute::Tensor(tensor) => Some(tensor.dims().len()),
                Attribute::Int(_) | Attribute::Float(_) => Some(0),
                Attribute::Ints(_) | Attribute::Floats(_) => Some(1),
                _ => None,
            },
            "CastLike" | "Expand" | "Slice" | "Softmax" | "Split" | "Transpose" | "CumSum" => input(0),
            "MatMul" => Some(input(0)?.max(input(1)?)).filter(|_| input(0) > Some(1) && input(1) > Some(1)),
            "Gather" => (input(0)? + input(1)?).checked_sub(1),
            "Unsqueeze" => Some(input(0)? + self.axis_count(&maker)?),
            "Squeeze" => input(0)?.checked_sub(self.axis_count(&maker)?),
            "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin" => match maker.int_or("keepdims", 1)? {
                0 => input(0)?.checked_sub(self.axis_count(&maker)?),
                _ => input(0),
            },
            "Einsum" => Some(maker.equation()?.1.len()),
            op if ELEMENTWISE.contains(&op) => {
                let ranks = (0..maker.node.inputs().len()).map(input).collect::<Option<Vec<_>>>()?;
                ranks.into_iter().max()
            }
            _ => None,
        }
    }

    /// How many axes a node names.
    pub(crate) fn axis_count(&self, maker: &Maker<'_, '_>) -> Option<usize> {
        match maker.ints("axes") {
            Some(axes) => Some(axes.len()),
            None => Some(self.scopes.ints(maker.input(1)?)?.len()),
        }
    }
}
