//! The diagonal linear recurrence, elementwise over (M...):
//!
//! ```text
//! h[t] = a[t] h[t-1] + u[t]
//! ```

mod gpu;
pub mod host;
mod host_op;

use mlx_safe::{Array, Dtype, concatenate, custom_vjp, zeros};

use crate::arguments::Arguments;
use crate::{Emitter, Error, Result};

const KERNEL: &str = "linear_scan";
const ARGUMENTS: Arguments = Arguments(KERNEL);

/// The recurrence as one operation; it can be differentiated by all its inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LinearScan {
    /// Whether steps are taken from the last to the first.
    pub reverse: bool,
}

/// The inputs. `a` and `u` have one type: float32, float16 or bfloat16; `h0` any of them. States are float32.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Factors, of a shape that broadcasts to that of `u`. What has 1 (or nothing) in the place of T is kept small.
    pub a: Array,
    /// Summands (T, M...).
    pub u: Array,
    /// State before the first step taken (M...); zero if left out.
    pub h0: Option<Array>,
}

/// What the recurrence gives.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// The states after every step (T, M...), of the type of `u`.
    pub states: Array,
    /// The state after the last step taken (M...), float32.
    pub last: Array,
}

impl LinearScan {
    /// The name, in traces, of the kernel that [`forward`](Self::forward) would run on the current stream:
    /// `linear_scan/host`, `linear_scan/metal` or `linear_scan/cuda`. Sizes of 0 go to the host whatever the stream is.
    ///
    /// # Errors
    /// If MLX has no current stream.
    pub fn kernel(&self) -> Result<String> {
        Ok(format!("{KERNEL}/{}", Emitter::current()?))
    }

    /// Adds the recurrence to the lazy graph. Any size may be 0: without steps the last state is `h0`.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn forward(&self, inputs: &Inputs) -> Result<Outputs> {
        let scan = *self;
        let function = custom_vjp(
            move |primals| Ok(scan.emit(&primals[0], &primals[1], &primals[2])?),
            move |primals, cotangents, outputs| {
                Ok(scan.pullback(&primals[0], &primals[2], cotangents, &outputs[0])?)
            },
        )?;
        let mut outputs = function.apply(&inputs.primals()?)?.into_iter();
        let (Some(states), Some(last)) = (outputs.next(), outputs.next()) else {
            unreachable!("emit gives two")
        };
        Ok(Outputs { states, last })
    }

    /// All states and the last, from a (T or 1, M...), u (T, M...) and h0 (M...).
    fn emit(self, a: &Array, u: &Array, h0: &Array) -> Result<Vec<Array>> {
        match Emitter::current()?.dialect().filter(|_| gpu::takes(u)) {
            Some(dialect) => gpu::forward(self, a, u, h0, &|call| dialect.run(call)),
            None => host_op::forward(self, a, u, h0),
        }
    }

    /// Derivatives by a, u and h0. That by u is the recurrence itself in the other direction, with a one step later.
    fn pullback(self, a: &Array, h0: &Array, by: &[Array], states: &Array) -> Result<Vec<Array>> {
        let (steps, constant) = (states.dim(0)?, a.dim(0)? == 1);
        if steps == 0 {
            return Ok(vec![a.zeros_like()?, states.zeros_like()?, by[1].clone()]);
        }
        // In the order of steps, entries `from..to` of the first axis.
        let part = |x: &Array, from: i32, to: i32| -> Result<Array> {
            let (mut start, mut stop) = (vec![0; x.ndim()], x.shape().to_vec());
            (start[0], stop[0]) = if self.reverse { (steps - to, steps - from) } else { (from, to) };
            Ok(x.slice(&start, &stop, &vec![1; x.ndim()])?)
        };
        let join = |first: Array, second: Array| -> Result<Array> {
            Ok(concatenate(&if self.reverse { [second, first] } else { [first, second] }, 0)?)
        };
        let first_of = |x: &Array| if constant { Ok(x.clone()) } else { part(x, 0, 1) };
        let shifted = if constant { a.clone() } else { join(part(a, 1, steps)?, part(a, 0, 1)?)? };
        // The state after the last step has no next factor: its derivative enters as the one before the first.
        let last = by[0].dtype();
        let ends = join(
            part(&by[0], 0, steps - 1)?,
            part(&by[0], steps - 1, steps)?
                .astype(Dtype::Float32)?
                .add(&by[1].expand_dims(&[0])?)?
                .astype(last)?,
        )?;
        let none = h0.zeros_like()?;
        let by_u = Self { reverse: !self.reverse }.emit(&shifted, &ends, &none)?.swap_remove(0);
        let f32s = |x: &Array| x.astype(Dtype::Float32);
        let before = join(h0.expand_dims(&[0])?, f32s(&part(states, 0, steps - 1)?)?)?;
        let by_a = f32s(&by_u)?.multiply(&before)?;
        let by_a = if constant { by_a.sum(&[0], true)? } else { by_a };
        let by_h0 = f32s(&part(&by_u, 0, 1)?)?.multiply(&f32s(&first_of(a)?)?)?.squeeze(&[0])?;
        Ok(vec![by_a.astype(a.dtype())?, by_u, by_h0])
    }
}

impl Inputs {
    /// a with its M... broadcast and T or 1 in front, u, and h0 in float32.
    fn primals(&self) -> Result<Vec<Array>> {
        let (a, u) = (&self.a, &self.u);
        let Some((_, inner)) = u.shape().split_first() else {
            return Err(Error::Axes { kernel: KERNEL, array: "u", shape: vec![], axes: "(T, M...)" });
        };
        ARGUMENTS.float("u", u)?;
        if a.dtype() != u.dtype() {
            return Err(ARGUMENTS.dtype("a", a, "the type of u"));
        }
        let fits = a.ndim() <= u.ndim()
            && a.shape().iter().rev().zip(u.shape().iter().rev()).all(|(&n, &m)| n == m || n == 1);
        if !fits {
            let (shape, wanted) = (a.shape().into(), u.shape().into());
            return Err(Error::Shape { kernel: KERNEL, array: "a", shape, wanted });
        }
        let steps = if a.ndim() == u.ndim() { a.dim(0)? } else { 1 };
        let shape: Vec<i32> = [steps].iter().chain(inner).copied().collect();
        let a = a.broadcast_to(&shape)?;
        let h0 = match &self.h0 {
            Some(h0) if h0.shape() != inner => {
                let (shape, wanted) = (h0.shape().into(), inner.into());
                return Err(Error::Shape { kernel: KERNEL, array: "h0", shape, wanted });
            }
            Some(h0) => {
                ARGUMENTS.float("h0", h0)?;
                h0.astype(Dtype::Float32)?
            }
            None => zeros(inner, Dtype::Float32)?,
        };
        Ok(vec![a, u.clone(), h0])
    }
}
