//! The selective scan of Mamba (Gu and Dao 2023, arXiv:2312.00752, section 3.2).
//!
//! Sizes: T steps, B batch, D channels, N states. With h of shape (B, D, N):
//!
//! ```text
//! h[t] = exp(dt[t] A) h[t-1] + (dt[t] x[t]) b[t]        y[t] = sum over n of h[t] c[t]
//! ```
//!
//! Decays are multiplied, never divided by: what underflows becomes 0, and nothing overflows for dt A <= 0.

mod composed;
mod gpu;
pub mod host;
mod host_op;

use mlx_safe::{Array, Dtype, custom_vjp};

use crate::arguments::Arguments;
use crate::{Emitter, Error, Result};

const KERNEL: &str = "selective_scan";
const ARGUMENTS: Arguments = Arguments(KERNEL);

/// The selective scan as one operation. Its derivative is [`grad`](Self::grad), so that it stands inside [`mlx_safe::grad`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SelectiveScan {
    /// Whether steps are taken from the last to the first.
    pub reverse: bool,
}

/// The inputs of a selective scan. `dt`, `x`, `b` and `c` have one type: float32, float16 or bfloat16; `a` and `h0` each any
/// of them. All arithmetic is in float32.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Step sizes (T, B, D).
    pub dt: Array,
    /// Inputs (T, B, D).
    pub x: Array,
    /// Input projections (T, B, N).
    pub b: Array,
    /// Output projections (T, B, N).
    pub c: Array,
    /// State matrix, diagonal (D, N); negative in a stable model.
    pub a: Array,
    /// State before the first step taken (B, D, N); zero if left out.
    pub h0: Option<Array>,
}

/// What a selective scan gives.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// Outputs (T, B, D), of the type of `x`.
    pub y: Array,
    /// State after the last step taken (B, D, N), float32.
    pub h: Array,
}

/// Derivatives of a loss by the inputs, each of its input's shape and type.
#[derive(Clone, Debug)]
pub struct Grads {
    /// By `dt` (T, B, D).
    pub dt: Array,
    /// By `x` (T, B, D).
    pub x: Array,
    /// By `b` (T, B, N).
    pub b: Array,
    /// By `c` (T, B, N).
    pub c: Array,
    /// By `a` (D, N).
    pub a: Array,
    /// By `h0` (B, D, N); float32 if it was left out.
    pub h0: Array,
}

/// The sizes of a selective scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// T.
    pub steps: usize,
    /// B.
    pub batch: usize,
    /// D.
    pub channels: usize,
    /// N.
    pub states: usize,
}

impl SelectiveScan {
    /// The name, in traces, of the kernel that [`forward`](Self::forward) would run on the current stream:
    /// `selective_scan/host`, `selective_scan/metal` or `selective_scan/cuda`. More than 256 states and sizes of 0 go to the
    /// host whatever the stream is.
    ///
    /// # Errors
    /// If MLX has no current stream.
    pub fn kernel(&self) -> Result<String> {
        Ok(format!("{KERNEL}/{}", Emitter::current()?))
    }

    /// Adds the scan to the lazy graph. Any size may be 0: without steps `h` is `h0`.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn forward(&self, inputs: &Inputs) -> Result<Outputs> {
        inputs.sizes()?;
        let scan = *self;
        let function = custom_vjp(
            move |primals| Ok(scan.emit(primals)?),
            move |primals, cotangents, _| {
                let mut grads = scan.emit_grad(primals, &cotangents[0], Some(&cotangents[1]))?;
                grads.truncate(primals.len());
                Ok(grads)
            },
        )?;
        let mut outputs = function.apply(&inputs.primals()?)?.into_iter();
        let (Some(y), Some(h)) = (outputs.next(), outputs.next()) else { unreachable!("emit gives two") };
        Ok(Outputs { y, h })
    }

    /// The derivative: from that of a loss by `y`, `dy` (T, B, D), and by the last state, `dh` (B, D, N; zero if left out),
    /// those by the inputs. States are computed again, not stored.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn grad(&self, inputs: &Inputs, dy: &Array, dh: Option<&Array>) -> Result<Grads> {
        let sizes = inputs.sizes()?;
        ARGUMENTS.shape("dy", dy, &[sizes.steps, sizes.batch, sizes.channels])?;
        if let Some(dh) = dh {
            ARGUMENTS.shape("dh", dh, &[sizes.batch, sizes.channels, sizes.states])?;
        }
        let dh = dh.map(|dh| dh.astype(Dtype::Float32)).transpose()?;
        let dy = dy.astype(inputs.x.dtype())?;
        let mut grads = self.emit_grad(&inputs.primals()?, &dy, dh.as_ref())?.into_iter();
        let mut next = || grads.next().unwrap_or_else(|| unreachable!("emit_grad gives six"));
        let (dt, x, b, c, a, h0) = (next(), next(), next(), next(), next(), next());
        let state = inputs.h0.as_ref().map_or(Dtype::Float32, Array::dtype);
        Ok(Grads { dt, x, b, c, a: a.astype(inputs.a.dtype())?, h0: h0.astype(state)? })
    }

    /// The same values by MLX's own operations, one step after another: the definition. Slow.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn composed(&self, inputs: &Inputs) -> Result<Outputs> {
        composed::forward(*self, inputs)
    }

    /// y and h from dt, x, b, c, a and perhaps h0.
    fn emit(self, primals: &[Array]) -> Result<Vec<Array>> {
        let sizes = sizes(primals)?;
        match Emitter::current()?.dialect().filter(|_| gpu::takes(sizes)) {
            Some(dialect) => gpu::forward(self, sizes, primals, &|call| dialect.run(call)),
            None => host_op::forward(self, primals),
        }
    }

    /// Derivatives by dt, x, b, c, a, h0.
    fn emit_grad(self, primals: &[Array], dy: &Array, dh: Option<&Array>) -> Result<Vec<Array>> {
        let sizes = sizes(primals)?;
        match Emitter::current()?.dialect().filter(|_| gpu::takes(sizes)) {
            Some(dialect) => gpu::grad(self, sizes, primals, dy, dh, dialect, &|call| dialect.run(call)),
            None => match dh {
                Some(dh) => host_op::grad(self, primals, dy, dh),
                None => {
                    host_op::grad(self, primals, dy, &mlx_safe::zeros(&state_shape(sizes), Dtype::Float32)?)
                }
            },
        }
    }
}

impl Inputs {
    /// The sizes, if all shapes and types fit.
    ///
    /// # Errors
    /// If they do not.
    pub fn sizes(&self) -> Result<Sizes> {
        let axes =
            |array, shape: &[i32], axes| Error::Axes { kernel: KERNEL, array, shape: shape.into(), axes };
        let [steps, batch, channels] = *self.x.shape() else {
            return Err(axes("x", self.x.shape(), "(T, B, D)"));
        };
        let [_, states] = *self.a.shape() else { return Err(axes("a", self.a.shape(), "(D, N)")) };
        let [steps, batch, channels, states] = [steps, batch, channels, states].map(|n| n as usize);
        ARGUMENTS.shape("dt", &self.dt, &[steps, batch, channels])?;
        ARGUMENTS.shape("b", &self.b, &[steps, batch, states])?;
        ARGUMENTS.shape("c", &self.c, &[steps, batch, states])?;
        ARGUMENTS.shape("a", &self.a, &[channels, states])?;
        for (name, array) in [("x", &self.x), ("a", &self.a)] {
            ARGUMENTS.float(name, array)?;
        }
        if let Some(h0) = &self.h0 {
            ARGUMENTS.shape("h0", h0, &[batch, channels, states])?;
            ARGUMENTS.float("h0", h0)?;
        }
        for (name, array) in [("dt", &self.dt), ("b", &self.b), ("c", &self.c)] {
            if array.dtype() != self.x.dtype() {
                return Err(ARGUMENTS.dtype(name, array, "the type of x"));
            }
        }
        Ok(Sizes { steps, batch, channels, states })
    }

    fn state_shape(&self) -> Result<[i32; 3]> {
        Ok([self.x.dim(1)?, self.x.dim(2)?, self.a.dim(1)?])
    }

    /// What emitters take: dt, x, b, c as they are, a and perhaps h0 in float32.
    fn primals(&self) -> Result<Vec<Array>> {
        let mut primals = vec![self.dt.clone(), self.x.clone(), self.b.clone(), self.c.clone()];
        primals.push(self.a.astype(Dtype::Float32)?);
        if let Some(h0) = &self.h0 {
            primals.push(h0.astype(Dtype::Float32)?);
        }
        Ok(primals)
    }
}

fn state_shape(sizes: Sizes) -> [i32; 3] {
    [sizes.batch, sizes.channels, sizes.states].map(|n| n as i32)
}

/// Sizes of primals, whose shapes were checked before.
fn sizes(primals: &[Array]) -> Result<Sizes> {
    let (x, a) = (&primals[1], &primals[4]);
    let [steps, batch, channels, states] = [x.dim(0)?, x.dim(1)?, x.dim(2)?, a.dim(1)?].map(|n| n as usize);
    Ok(Sizes { steps, batch, channels, states })
}
