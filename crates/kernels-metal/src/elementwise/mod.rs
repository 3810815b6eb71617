//! Functions of single elements that MLX's CPU back end computes one element at a time, in floating point.

pub mod host;

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use mlx_safe::{Array, Dtype, HostOp, Result, vjp};

use crate::worth::worth_host;

/// A function of floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// e^x.
    Exp,
    /// The error function.
    Erf,
    /// The hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// x sigmoid(alpha x).
    Swish {
        /// The steepness.
        alpha: f32,
    },
    /// x (1 + erf(x / sqrt 2)) / 2.
    Gelu,
    /// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
    GeluTanh,
}

/// sqrt(2 / pi), and that times 0.044715.
fn gelu_tanh_factors() -> [f64; 2] {
    let factor = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
    [factor, factor * 0.044715]
}

impl Function {
    /// The function of every element of `x`, floats, in their type. On a CPU it has a `vjp`, but no `jvp`.
    ///
    /// # Errors
    /// If MLX refuses.
    pub fn apply(self, x: &Array) -> Result<Array> {
        if !worth_host(x)? {
            return self.composed(x);
        }
        let op = HostOp::in_place("elementwise/host", move |_, values| {
            host::apply(self, values.as_mut_slice()?);
            Ok(())
        });
        let op = op.with_vjp(move |primals, cotangents, _| {
            Ok(vjp(|x| Ok(vec![self.composed(&x[0])?]), primals, cotangents)?.1)
        })?;
        op.call(&[&x.astype(Dtype::Float32)?])?.swap_remove(0).astype(x.dtype())
    }

    /// The same in MLX's operations, which defines it.
    fn composed(self, x: &Array) -> Result<Array> {
        let of = |value: f64| Array::scalar_of(value, x.dtype());
        let gate = |s: Array| s.add(&of(1.0)?)?.multiply(&x.multiply(&of(0.5)?)?);
        match self {
            Self::Exp => x.exp(),
            Self::Erf => x.erf(),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => x.sigmoid(),
            Self::Swish { alpha: 1.0 } => x.multiply(&x.sigmoid()?),
            Self::Swish { alpha } => x.multiply(&x.multiply(&of(alpha.into())?)?.sigmoid()?),
            Self::Gelu => gate(x.multiply(&of(FRAC_1_SQRT_2)?)?.erf()?),
            Self::GeluTanh => {
                let [linear, cubic] = gelu_tanh_factors();
                let inner = x.square()?.multiply(&of(cubic)?)?.add(&of(linear)?)?;
                gate(inner.multiply(x)?.tanh()?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mlx_safe::{Device, Stream, eval, grad, vmap};

    use super::*;

    const ALL: [Function; 8] = [
        Function::Exp,
        Function::Erf,
        Function::Tanh,
        Function::Sigmoid,
        Function::Swish { alpha: 1.0 },
        Function::Swish { alpha: 1.7 },
        Function::Gelu,
        Function::GeluTanh,
    ];

    fn on_cpu<T>(work: impl FnOnce() -> T) -> T {
        Stream::default_on(Device::CPU).unwrap().scope(work)
    }

    fn wave(shape: &[i32]) -> Array {
        let count: i32 = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|i| ((i * 37 + 11) % 1009) as f32 / 100.0 - 5.0).collect();
        Array::from_slice(&values, shape).unwrap()
    }

    fn agree(a: &Array, b: &Array, tolerance: f32) {
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()));
        let values = |x: &Array| x.astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap();
        for (a, b) in values(a).into_iter().zip(values(b)) {
            assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{a}, not {b}");
        }
    }

    #[test]
    fn kernels_are_what_is_composed() {
        on_cpu(|| {
            for function in ALL {
                for length in [1024, 1027, 40_000] {
                    let x = wave(&[length]);
                    agree(&function.apply(&x).unwrap(), &function.composed(&x).unwrap(), 1e-6);
                    agree(&x, &wave(&[length]), 0.0);
                }
                let half = wave(&[40, 40]).astype(Dtype::Float16).unwrap();
                agree(&function.apply(&half).unwrap(), &function.composed(&half).unwrap(), 5e-3);
                let across = wave(&[40, 50]).transpose(&[1, 0]).unwrap();
                agree(&function.apply(&across).unwrap(), &function.composed(&across).unwrap(), 1e-6);
            }
        });
    }

    #[test]
    fn memory_is_taken_over_from_what_nobody_reads() {
        on_cpu(|| {
            let x = wave(&[2000]).add(&Array::scalar(0.5f32)).unwrap();
            let (first, second) = (Function::Tanh.apply(&x).unwrap(), Function::Erf.apply(&x).unwrap());
            eval([&first, &second]).unwrap();
            agree(&first, &Function::Tanh.composed(&x).unwrap(), 1e-6);
            agree(&second, &Function::Erf.composed(&x).unwrap(), 1e-6);
            let twice = Function::Tanh.apply(&Function::Erf.apply(&x).unwrap()).unwrap();
            drop(x);
            let x = wave(&[2000]).add(&Array::scalar(0.5f32)).unwrap();
            agree(&twice, &Function::Erf.composed(&x).unwrap().tanh().unwrap(), 1e-6);
        });
    }

    #[test]
    fn derivatives_and_vmap_are_those_of_what_is_composed() {
        on_cpu(|| {
            let x = wave(&[3, 1100]);
            for function in ALL {
                let by = |f: &dyn Fn(&Array) -> Result<Array>| {
                    let total = |x: &[Array]| f(&x[0])?.sum(&[0, 1], false);
                    grad(total, &[0])(std::slice::from_ref(&x)).unwrap().remove(0)
                };
                agree(&by(&|x| function.apply(x)), &by(&|x| function.composed(x)), 1e-6);
                let across = x.transpose(&[1, 0]).unwrap();
                let each = vmap(|x| Ok(vec![function.apply(&x[0])?]), &[across], &[Some(1)]).unwrap();
                agree(&each[0], &function.composed(&x).unwrap(), 1e-6);
            }
        });
    }
}
