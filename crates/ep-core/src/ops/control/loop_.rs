//! `Loop`: a body run until a count or its own condition ends it. A condition that is known on the host costs nothing; one
//! that the device computes is read once an iteration. What waits for evaluation is bounded: see [`Pending::is_enough`].
//!
//! [`Pending::is_enough`]: crate::run::Pending::is_enough

use mlx_safe::{Dtype, zeros};
use onnx_graph::ElementType;

use super::body::{Body, declared_shape, expect_arity, expect_state};
use super::collect::{Rows, evaluated};
use super::scalar::{self, Scalar};
use crate::claim::body_type;
use crate::compile::Compiler;
use crate::lowering::{Lowering, Value};
use crate::op::{AnyOp, BodyOp, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef};

/// Inputs of the node, and of its body, before the states.
const STATES: usize = 2;

pub(crate) struct Loop {
    states: usize,
    number: Scalar,
    condition: Scalar,
    /// The shape of each scan output of an iteration that never ran.
    rows: Vec<Vec<i32>>,
}

/// A loop with its body.
pub(crate) struct Iteration {
    form: Loop,
    body: Body,
}

impl BodyOp for Loop {
    const KEYS: &'static [OpKey] = &[OpKey::onnx("Loop")];
    type Compiled = Iteration;

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        for (i, element) in [(0, ElementType::Int64), (1, ElementType::Bool)] {
            if node.has_input(i) {
                node.expect_type(i, |e| e == element)?;
            }
        }
        let body = node.body("body")?;
        let states = node.input_count().saturating_sub(STATES);
        expect_arity(body, STATES + states, 1 + node.output_count())?;
        if states > node.output_count() {
            return Err(Decline::invalid("there are more states than outputs"));
        }
        if body_type(body, body.outputs()[0])? != ElementType::Bool {
            return Err(Decline::invalid("the body's condition is not a boolean"));
        }
        for i in 0..states {
            expect_state(node, STATES + i, body, STATES + i, 1 + i)?;
        }
        Ok(Self {
            states,
            number: Scalar::of_input(body, 0, ElementType::Int64),
            condition: Scalar::of_input(body, 1, ElementType::Bool),
            rows: (1 + states..body.outputs().len()).map(|i| declared_shape(body, i)).collect(),
        })
    }

    fn compile(self, node: &NodeRef<'_>, compiler: &Compiler) -> Result<Iteration, LowerError> {
        Ok(Iteration { form: self, body: Body::compile(node, "body", compiler)? })
    }
}

impl AnyOp for Iteration {
    fn has_bodies(&self) -> bool {
        true
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("values decide how often the body runs")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let Loop { states: count, number, condition, .. } = self.form;
        let trips = if cx.has_input(0) { scalar::read(cx.input(0)?, "the trip count")? } else { i64::MAX };
        let mut going = !cx.has_input(1) || scalar::read(cx.input(1)?, "the condition")? != 0;
        let mut states: Vec<Value> =
            (0..count).map(|i| cx.input(STATES + i).cloned()).collect::<Result<_, _>>()?;
        let outer = self.body.outer(cx)?;
        let mut rows = vec![Rows::default(); self.form.rows.len()];
        let before = cx.run().pending;
        let mut done = 0;
        while going && done < trips {
            if cx.run().pending.is_enough(before) {
                let mut arrays = evaluated(&states);
                for rows in &mut rows {
                    arrays.extend(rows.gather()?);
                }
                cx.run().settle(&arrays)?;
                cx.run().pending = before;
            }
            let inputs = [number.value(done), condition.value(1)];
            let inputs = inputs.into_iter().chain(states).chain(outer.iter().cloned());
            let mut outputs = self.body.program.call(inputs, cx.run())?;
            for (rows, row) in rows.iter_mut().zip(outputs.drain(1 + count..)) {
                rows.push(row)?;
            }
            states = outputs.split_off(1);
            done += 1;
            // Nobody asks for the condition of the last iteration.
            going = done < trips && scalar::read(&outputs[0], "the body's condition")? != 0;
        }
        for (i, state) in states.into_iter().enumerate() {
            cx.emit_value(i, state)?;
        }
        for (i, rows) in rows.into_iter().enumerate() {
            if cx.wants(count + i) {
                let dtype = cx.output_dtype(count + i)?;
                let all = rows.finish()?.map_or_else(|| self.none(i, dtype), Ok)?;
                cx.emit(count + i, all)?;
            }
        }
        Ok(())
    }
}

impl Iteration {
    /// Scan output `i` of no iteration.
    fn none(&self, i: usize, dtype: Dtype) -> Result<mlx_safe::Array, LowerError> {
        let shape: Vec<i32> = std::iter::once(0).chain(self.form.rows[i].iter().copied()).collect();
        Ok(zeros(&shape, dtype)?)
    }
}
