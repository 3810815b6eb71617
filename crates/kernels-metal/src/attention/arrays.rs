//! Attention over MLX's arrays.

use mlx_safe::{Array, Dtype, custom_vjp};

use super::{Attention, KERNEL, Kernel, Sizes, composed, fused, gpu, host_op};
use crate::arguments::Arguments;
use crate::gpu::Dialect;
use crate::{Error, Result};

const ARGUMENTS: Arguments = Arguments(KERNEL);

/// The inputs of an attention. `q`, `k` and `v` have one type: float32, float16 or bfloat16. Sums are in float32.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Queries (B, Hq, L, E).
    pub q: Array,
    /// Keys (B, Hk, S, E).
    pub k: Array,
    /// Values (B, Hk, S, Ev).
    pub v: Array,
    /// Broadcasts to (B, Hq, L, S): bool, true where a key is seen, or added to scores, of any of the three types. A last
    /// size other than 1 that is below S hides the keys beyond it.
    pub mask: Option<Array>,
}

/// What an attention gives; [`Attention::grad`] takes it back.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// (B, Hq, L, Ev), of the inputs' type.
    pub y: Array,
    /// The rows' log-sum-exp (B, Hq, L), float32. It has no derivative.
    pub lse: Array,
}

/// Derivatives of a loss by the inputs, each of its input's shape and type.
#[derive(Clone, Debug)]
pub struct Grads {
    /// By `q` (B, Hq, L, E).
    pub q: Array,
    /// By `k` (B, Hk, S, E).
    pub k: Array,
    /// By `v` (B, Hk, S, Ev).
    pub v: Array,
}

impl Attention {
    /// The names, in traces, of [`forward`](Self::forward) and of [`grad`](Self::grad) with its results for `inputs` on the
    /// current stream: `attention/host` and `attention_grad/host`, say.
    ///
    /// # Errors
    /// If shapes do not fit or MLX has no current stream.
    pub fn kernels(&self, inputs: &Inputs) -> Result<[String; 2]> {
        let kernel = self.kernel_with_lse(inputs)?;
        Ok([format!("{KERNEL}/{kernel}"), format!("{KERNEL}_grad/{kernel}")])
    }

    /// The kernel of [`forward`](Self::forward), and of [`grad`](Self::grad) with its results, for `inputs` on the current
    /// stream.
    ///
    /// # Errors
    /// If shapes do not fit or MLX has no current stream.
    pub fn kernel_with_lse(&self, inputs: &Inputs) -> Result<Kernel> {
        Kernel::with_lse(inputs)
    }

    /// The kernel of [`apply`](Self::apply), and of [`grad`](Self::grad) without saved results, for `inputs` on the current
    /// stream.
    ///
    /// # Errors
    /// If shapes do not fit or MLX has no current stream.
    pub fn kernel(&self, inputs: &Inputs) -> Result<Kernel> {
        Kernel::without_lse(self, inputs)
    }

    /// Adds the attention to the lazy graph. Its derivative by q, k and v is [`grad`](Self::grad), so that it stands inside
    /// [`mlx_safe::grad`]; the mask has none. Any size may be 0.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn forward(&self, inputs: &Inputs) -> Result<Outputs> {
        self.forward_by(Kernel::with_lse(inputs)?, inputs)
    }

    /// Y (B, Hq, L, Ev) alone: as [`forward`](Self::forward), and by MLX's own kernels where it has such.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn apply(&self, inputs: &Inputs) -> Result<Array> {
        self.apply_by(Kernel::without_lse(self, inputs)?, inputs)
    }

    /// [`apply`](Self::apply) by the kernel of your choice.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn apply_by(&self, kernel: Kernel, inputs: &Inputs) -> Result<Array> {
        match kernel {
            Kernel::MlxFused => fused::forward(*self, inputs, inputs.sizes()?),
            kernel => Ok(self.forward_by(kernel, inputs)?.y),
        }
    }

    /// [`forward`](Self::forward) by the kernel of your choice.
    ///
    /// # Errors
    /// If shapes or types do not fit; for [`Kernel::MlxFused`], which gives no log-sum-exp.
    pub fn forward_by(&self, kernel: Kernel, inputs: &Inputs) -> Result<Outputs> {
        inputs.sizes()?;
        let attention = *self;
        let function = custom_vjp(
            move |primals| {
                let Outputs { y, lse } = attention.emit(kernel, &Inputs::of(primals))?;
                Ok(vec![y, lse])
            },
            move |primals, cotangents, outputs| {
                let saved = Outputs { y: outputs[0].clone(), lse: outputs[1].clone() };
                let inputs = Inputs::of(primals);
                let grads = attention.emit_grad(kernel, &inputs, &cotangents[0], Some(&saved))?;
                let mut all = vec![grads.q, grads.k, grads.v];
                if let Some(mask) = primals.get(3) {
                    all.push(mask.zeros_like()?);
                }
                Ok(all)
            },
        )?;
        let outputs = function.apply(&inputs.primals())?;
        let [y, lse] = &outputs[..] else { unreachable!("the function gives two") };
        Ok(Outputs { y: y.clone(), lse: lse.stop_gradient()? })
    }

    /// The pullback: from the derivative of a loss by Y, `dy` (B, Hq, L, Ev), those by q, k and v. Probabilities are made
    /// again block by block. Without the `saved` results of [`forward`](Self::forward) that runs again in part; where scores
    /// are huge, results are then more exact than those that a float32 log-sum-exp allows.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn grad(&self, inputs: &Inputs, dy: &Array, saved: Option<&Outputs>) -> Result<Grads> {
        let kernel = match saved {
            Some(_) => Kernel::with_lse(inputs)?,
            None => Kernel::without_lse(self, inputs)?,
        };
        self.grad_by(kernel, inputs, dy, saved)
    }

    /// [`grad`](Self::grad) by the kernel of your choice.
    ///
    /// # Errors
    /// If shapes or types do not fit.
    pub fn grad_by(
        &self,
        kernel: Kernel,
        inputs: &Inputs,
        dy: &Array,
        saved: Option<&Outputs>,
    ) -> Result<Grads> {
        let sizes = inputs.sizes()?;
        let y = [sizes.batch, sizes.heads, sizes.queries, sizes.value_width];
        let of_y = |name, array: &Array| {
            ARGUMENTS.shape(name, array, &y)?;
            inputs.same_type(name, array)
        };
        of_y("dy", dy)?;
        if let Some(saved) = saved {
            of_y("y", &saved.y)?;
            ARGUMENTS.shape("lse", &saved.lse, &y[..3])?;
            if saved.lse.dtype() != Dtype::Float32 {
                return Err(ARGUMENTS.dtype("lse", &saved.lse, "float32"));
            }
        }
        self.emit_grad(kernel, inputs, dy, saved)
    }

    fn emit(&self, kernel: Kernel, inputs: &Inputs) -> Result<Outputs> {
        match kernel {
            Kernel::Host => host_op::forward(*self, inputs),
            Kernel::Metal => gpu::forward(*self, inputs, Dialect::Metal, &|call| Dialect::Metal.run(call)),
            Kernel::Cuda => gpu::forward(*self, inputs, Dialect::Cuda, &|call| Dialect::Cuda.run(call)),
            Kernel::Mlx => composed::forward(*self, inputs, inputs.sizes()?),
            Kernel::MlxFused => Err(Error::Kernel { kernel: "attention/mlx_fused", lacks: "log-sum-exp" }),
        }
    }

    fn emit_grad(
        &self,
        kernel: Kernel,
        inputs: &Inputs,
        dy: &Array,
        saved: Option<&Outputs>,
    ) -> Result<Grads> {
        match kernel {
            Kernel::Host => host_op::grad(*self, inputs, dy, saved),
            Kernel::Metal => {
                gpu::grad(*self, inputs, dy, saved, Dialect::Metal, &|call| Dialect::Metal.run(call))
            }
            Kernel::Cuda => {
                gpu::grad(*self, inputs, dy, saved, Dialect::Cuda, &|call| Dialect::Cuda.run(call))
            }
            Kernel::Mlx => composed::grad(*self, inputs, inputs.sizes()?, dy, saved),
            Kernel::MlxFused => fused::grad(*self, inputs, inputs.sizes()?, dy),
        }
    }
}

impl Inputs {
    /// The sizes, if all shapes and types fit.
    ///
    /// # Errors
    /// If they do not.
    pub fn sizes(&self) -> Result<Sizes> {
        let four = |array: &'static str, shape: &[i32], axes| {
            let found: Result<[i32; 4], _> = shape.try_into();
            found.map_err(|_| Error::Axes { kernel: KERNEL, array, shape: shape.into(), axes })
        };
        let [b, hq, l, e] = four("q", self.q.shape(), "(B, Hq, L, E)")?;
        let [_, hk, s, _] = four("k", self.k.shape(), "(B, Hk, S, E)")?;
        let [_, _, _, ev] = four("v", self.v.shape(), "(B, Hk, S, Ev)")?;
        let [batch, heads, queries, width] = [b, hq, l, e].map(|n| n as usize);
        let [key_heads, keys, value_width] = [hk, s, ev].map(|n| n as usize);
        let sizes = Sizes { batch, heads, key_heads, queries, keys, width, value_width };
        ARGUMENTS.shape("k", &self.k, &[batch, key_heads, keys, width])?;
        ARGUMENTS.shape("v", &self.v, &[batch, key_heads, keys, value_width])?;
        sizes.check()?;
        ARGUMENTS.float("q", &self.q)?;
        self.same_type("k", &self.k)?;
        self.same_type("v", &self.v)?;
        if let Some(mask) = &self.mask {
            if mask.dtype() != Dtype::Bool {
                ARGUMENTS.float("mask", mask)?;
            }
            sizes.mask(mask.shape())?;
        }
        Ok(sizes)
    }

    pub(super) fn primals(&self) -> Vec<Array> {
        [&self.q, &self.k, &self.v].into_iter().chain(&self.mask).cloned().collect()
    }

    fn of(primals: &[Array]) -> Self {
        let [q, k, v] = [0, 1, 2].map(|i| primals[i].clone());
        Self { q, k, v, mask: primals.get(3).cloned() }
    }

    fn same_type(&self, name: &'static str, array: &Array) -> Result<()> {
        if array.dtype() == self.q.dtype() {
            Ok(())
        } else {
            Err(ARGUMENTS.dtype(name, array, "the type of q"))
        }
    }
}
