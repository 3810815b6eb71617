//! Steps of a program that read constants alone: computed once, when the program is made, instead of at every run.
//!
//! What would take much more room than what it is made from stays: a table that `Range` or `Expand` blows up, a weight in
//! 8 bits that becomes floats. Steps with bodies stay too, for a loop may take long; and steps that fail, for a run to say
//! so.

use std::collections::HashMap;

use mlx_safe::Array;

use crate::Error;
use crate::lowering::Value;
use crate::program::{Program, Slot, Step};
use crate::run::Run;

/// Results of up to this many bytes are kept, whatever they are made from.
const SMALL: usize = 64 << 10;

impl Program {
    /// The program with such steps done.
    ///
    /// # Errors
    /// If MLX cannot say how much memory there is.
    pub(crate) fn precomputed(self) -> Result<Self, Error> {
        let limit = mlx_safe::memory::limit()?;
        self.with_constants(|step, values| outputs(step, values, limit)).stored(limit)
    }

    /// The program with constants laid out as their readers want them.
    fn stored(mut self, limit: usize) -> Result<Self, Error> {
        let held: HashMap<Slot, &Array> =
            self.constants().iter().filter_map(|(slot, value)| Some((*slot, value.on_device()?))).collect();
        let mut stored = HashMap::new();
        for step in self.steps() {
            for (i, slot) in step.inputs.iter().enumerate() {
                let Some((slot, array)) = slot.and_then(|slot| Some((slot, *held.get(&slot)?))) else {
                    continue;
                };
                if let Some(array) = step.op.stored(i, array)? {
                    stored.entry(slot).or_insert(array);
                }
            }
        }
        let arrays: Vec<Array> = stored.values().cloned().collect();
        Run::new(limit).settle(&arrays)?;
        self.replace_constants(
            stored.into_iter().map(|(slot, array)| (slot, Value::device(array))).collect(),
        );
        Ok(self)
    }
}

/// What a step makes of constants, if that may be kept.
fn outputs(step: &Step, values: &[Option<Value>], limit: usize) -> Option<Vec<Option<Value>>> {
    let known = |slot: &usize| values[*slot].as_ref();
    let inputs = step.inputs.iter().flatten().map(known).collect::<Option<Vec<_>>>()?;
    if step.op.has_bodies() {
        return None;
    }
    let mut run = Run::new(limit);
    let outputs = step.execute(values, &mut run).ok()?;
    let bytes = |values: &mut dyn Iterator<Item = &Value>| values.map(Value::device_bytes).sum::<usize>();
    if bytes(&mut outputs.iter().flatten()) > bytes(&mut inputs.into_iter()).max(SMALL) {
        return None;
    }
    let arrays: Vec<_> = outputs.iter().flatten().filter_map(Value::on_device).cloned().collect();
    run.settle(&arrays).ok()?;
    Some(outputs)
}

#[cfg(test)]
mod tests {
    use mlx_safe::{Array, DeviceType, Dtype};
    use onnx_graph::Graph;

    use crate::compile::Compiler;
    use crate::lowering::Value;
    use crate::run::Run;
    use crate::testing::graphs::agrees;
    use crate::testing::{E, f32s, text};

    /// A graph from x (B, 8) to y, with w (8).
    fn graph(nodes: &str) -> Graph<'static> {
        text::graph(18, &[("x", E::Float, &[0, 8])], &[("w", f32s([8]))], nodes, &["y"])
    }

    /// The operators that are left, and that the numbers are right.
    fn left(nodes: &str) -> Vec<String> {
        let graph = graph(nodes);
        agrees(&graph, 18, &[("x", f32s([3, 8]))]);
        let program = Compiler::new(DeviceType::Cpu).program(&graph).expect("a program");
        program.steps().iter().map(|step| step.label.op_type.clone()).collect()
    }

    #[test]
    fn what_constants_decide_is_done() {
        assert_eq!(left("a = Exp(w); b = Add(a, 1.0); c = Mul(b, b); y = Mul(x, c)"), ["Mul"]);
        // On the host too, and nothing of what is read by an output alone.
        assert_eq!(left("s:2 = Concat<axis=0>([-1], [4]); y = Reshape(x, s)"), ["Reshape"]);
        assert_eq!(left("a = Mul(x, w); y = Add(a, w)"), ["Mul", "Add"]);
    }

    #[test]
    fn an_output_may_be_a_constant() {
        let graph = text::graph(
            18,
            &[("x", E::Float, &[0, 8])],
            &[("w", f32s([8]))],
            "y = Neg(w); z = Neg(x)",
            &["y", "z"],
        );
        agrees(&graph, 18, &[("x", f32s([3, 8]))]);
        let program = Compiler::new(DeviceType::Cpu).program(&graph).expect("a program");
        assert_eq!((program.steps().len(), program.constants().len()), (1, 1));
    }

    #[test]
    fn what_blows_up_stays() {
        assert_eq!(
            left("t = Expand(w, [4000, 8]); s = ReduceSum<keepdims=0>(t, [0]); y = Mul(x, s)"),
            ["Expand", "ReduceSum", "Mul"]
        );
        assert_eq!(left("t = Expand(w, [4, 8]); s = ReduceSum<keepdims=0>(t, [0]); y = Mul(x, s)"), ["Mul"]);
    }

    #[test]
    fn what_fails_fails_at_the_run() {
        let graph = graph("a = Gather(w, [9]); y = Mul(x, a)");
        let program = Compiler::new(DeviceType::Cpu).program(&graph).expect("a program");
        assert_eq!(program.steps().len(), 2);
        let error = crate::testing::run_ours(&graph, &[&f32s([3, 8])]).expect_err("an index out of range");
        assert!(error.contains("out of range"), "{error}");
    }

    #[test]
    fn weights_stored_as_a_gpu_wants_them_are_the_same_weights() {
        let (x, w) = (f32s([2, 3, 6, 5]), f32s([4, 3, 2, 3]));
        let graph = text::graph(18, &[("x", E::Float, &[2, 3, 6, 5])], &[("w", w)], "y = Conv(x, w)", &["y"]);
        let x = Array::from_bytes(Dtype::Float32, &[2, 3, 6, 5], x.data()).expect("an array");
        let convolved = |device| {
            let program = Compiler::new(device).program(&graph).expect("a program");
            let y = program.call([Value::device(x.clone())], &mut Run::new(usize::MAX)).expect("it runs");
            y[0].array().and_then(|y| Ok(y.to_vec::<f32>()?)).expect("values")
        };
        let (first, last) = (convolved(DeviceType::Cpu), convolved(DeviceType::Gpu));
        assert_eq!(first.len(), last.len());
        assert!(first.iter().zip(&last).all(|(a, b)| (a - b).abs() < 1e-4));
    }
}
