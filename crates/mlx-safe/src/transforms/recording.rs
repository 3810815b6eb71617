//! Recordings: what a function did to its inputs, done again to others without asking the function.

use std::rc::Rc;

use mlx_sys as sys;

use super::compile::compile;
use crate::error::{argument, check, install_handler};
use crate::handle::VectorArray;
use crate::{Array, Closure, Result, Spec};

/// The operations of a function of arrays, without the arrays. Unlike what [`compile`] makes, a recording belongs to whoever
/// holds it: nothing of it is in a cache of MLX's, and all of it goes when it is dropped.
///
/// Not `Send`: operations belong to the streams of the thread that made them.
///
/// ```
/// use mlx_safe::{Array, Dtype, Recording, Spec};
/// let norm = |x: &[Array]| Ok(vec![x[0].square()?.sum(&[0], false)?.sqrt()?]);
/// let norm = Recording::new(&[Spec::new(&[2], Dtype::Float32)], &norm)?;
/// let x = Array::from_slice(&[3.0f32, 4.0], &[2])?;
/// assert_eq!(norm.replay(&[x])?[0].item::<f32>()?, 5.0);
/// # Ok::<(), mlx_safe::Error>(())
/// ```
///
/// `Clone` copies the reference.
#[derive(Clone, Debug)]
pub struct Recording {
    handle: Rc<Handle>,
    inputs: Vec<Spec>,
    /// Whether inputs may have other sizes, except for these.
    fixed: Option<Vec<i32>>,
}

/// One recording of the bridge's.
#[derive(Debug)]
struct Handle(sys::ortmlx_recording);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: we own it, and this is its last use.
        unsafe { sys::ortmlx_recording_free(self.0) };
    }
}

/// Chains of operations beyond this are not fused: MLX walks along them by recursion.
const MOST_DEPTH: usize = 4096;

impl Recording {
    /// Calls `function` once, with inputs of these shapes and types whose values are not there: it must be pure, and cannot
    /// evaluate what depends on them. Arrays that it captures are constants of the recording; what is computed from
    /// constants alone is computed once, where the results are small.
    ///
    /// # Errors
    /// What `function` returns.
    pub fn new(inputs: &[Spec], function: &dyn Fn(&[Array]) -> Result<Vec<Array>>) -> Result<Self> {
        let placeholders = inputs.iter().map(placeholder).collect::<Result<Vec<_>>>()?;
        let outputs = function(&placeholders)?;
        let (from, to) = (VectorArray::from_arrays(&placeholders)?, VectorArray::from_arrays(&outputs)?);
        let mut raw = sys::ortmlx_recording { ctx: std::ptr::null_mut() };
        check("record", || {
            // SAFETY: both vectors are live, and `raw` is empty.
            unsafe { sys::ortmlx_record(&mut raw, from.raw(), to.raw()) }
        })?;
        Ok(Self { handle: Rc::new(Handle(raw)), inputs: inputs.to_vec(), fixed: None })
    }

    /// The same for inputs of other sizes too, of the given ranks and types: shapes are inferred at every replay. Sizes that
    /// are equal in `inputs` stay equal and those that differ stay different; 0, 1 and the sizes of constants stay what they
    /// are. So whatever compares sizes goes the same way.
    ///
    /// The function must not look at sizes but to compare them. With `fuse` as [`Recording::fused`].
    ///
    /// # Errors
    /// As [`Recording::new`]; if MLX cannot infer the shapes of an operation; on a CPU also where there is no `g++`, which MLX
    /// asks for before it lets operations infer shapes. It is not run.
    pub fn shapeless(
        inputs: &[Spec],
        fuse: bool,
        function: &dyn Fn(&[Array]) -> Result<Vec<Array>>,
    ) -> Result<Self> {
        let placeholders = inputs.iter().map(placeholder).collect::<Result<Vec<_>>>()?;
        let from = VectorArray::from_arrays(&placeholders)?;
        let mut raw = sys::ortmlx_recording { ctx: std::ptr::null_mut() };
        Closure::scoped(function, |closure| {
            check("record", || {
                // SAFETY: closure and vector are live, and `raw` is empty.
                unsafe { sys::ortmlx_record_shapeless(&mut raw, closure.raw(), from.raw(), fuse) }
            })
        })?;
        let mut recording = Self { handle: Rc::new(Handle(raw)), inputs: inputs.to_vec(), fixed: None };
        recording.fixed = Some(recording.sizes());
        Ok(recording)
    }

    /// The sizes of constants, and 0 and 1, which broadcasting looks at.
    fn sizes(&self) -> Vec<i32> {
        // SAFETY: the recording is live; nothing is written.
        let count = unsafe { sys::ortmlx_recording_sizes(self.handle.0, std::ptr::null_mut(), 0) };
        let mut sizes = vec![0; count];
        // SAFETY: the recording is live, and there is room for `count` sizes.
        unsafe { sys::ortmlx_recording_sizes(self.handle.0, sizes.as_mut_ptr(), count) };
        sizes.extend([0, 1]);
        sizes
    }

    /// Whether the recording is right for inputs of these shapes and types.
    pub fn fits(&self, inputs: &[Spec]) -> bool {
        let Some(fixed) = &self.fixed else { return self.inputs == inputs };
        let same_kind = |(a, b): (&Spec, &Spec)| a.dtype == b.dtype && a.shape.len() == b.shape.len();
        if self.inputs.len() != inputs.len() || !self.inputs.iter().zip(inputs).all(same_kind) {
            return false;
        }
        let sizes = |specs: &[Spec]| specs.iter().flat_map(|spec| spec.shape.clone()).collect::<Vec<i32>>();
        let mut pairs: Vec<(i32, i32)> = Vec::new();
        sizes(&self.inputs).into_iter().zip(sizes(inputs)).all(|(recorded, given)| {
            if fixed.contains(&recorded) || fixed.contains(&given) {
                return recorded == given;
            }
            match pairs.iter().find(|(a, b)| *a == recorded || *b == given) {
                Some(pair) => *pair == (recorded, given),
                None => {
                    pairs.push((recorded, given));
                    true
                }
            }
        })
    }

    /// The same with equal operations merged and chains of elementwise ones fused into kernels, which MLX makes at run time:
    /// for GPUs. On a CPU it would run the system's `g++` for each. What MLX cannot fuse stays as it is, and so does a
    /// recording of very long chains.
    #[must_use]
    pub fn fused(self) -> Self {
        // SAFETY: the recording is live.
        if unsafe { sys::ortmlx_recording_depth(self.handle.0) } > MOST_DEPTH {
            return self;
        }
        let unfused = self.clone();
        let fused = compile(move |x| unfused.replay(x));
        fused.and_then(|fused| Self::new(&self.inputs, &|x| fused.apply(x))).unwrap_or(self)
    }

    /// What the function gives for `inputs`.
    ///
    /// # Errors
    /// If the recording does not fit them.
    pub fn replay(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        if self.fixed.is_some() && !self.fits(&inputs.iter().map(Spec::from).collect::<Vec<_>>()) {
            return argument(
                "replay",
                format!("the inputs {inputs:?} are not like the recorded {:?}", self.inputs),
            );
        }
        let inputs = VectorArray::from_arrays(inputs)?;
        VectorArray::from_op("replay", |out| {
            // SAFETY: the recording and the vector are live; `out` is empty.
            unsafe { sys::ortmlx_recording_replay(out, self.handle.0, inputs.raw()) }
        })
    }

    /// The number of operations.
    pub fn operations(&self) -> usize {
        // SAFETY: the recording is live.
        unsafe { sys::ortmlx_recording_size(self.handle.0) }
    }
}

fn placeholder(spec: &Spec) -> Result<Array> {
    install_handler();
    Array::from_op("placeholder", |out| {
        // SAFETY: `out` is empty; the shape has as many entries as it is said to have.
        unsafe { sys::ortmlx_placeholder(out, spec.shape.as_ptr(), spec.shape.len(), spec.dtype.raw()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, Error};

    fn floats(values: &[f32]) -> Array {
        Array::from_slice(values, &[values.len() as i32]).unwrap()
    }

    fn spec(size: i32) -> Spec {
        Spec::new(&[size], Dtype::Float32)
    }

    #[test]
    fn replays_with_other_values_and_keeps_constants() {
        let weight = floats(&[2.0, 3.0]);
        let function = move |x: &[Array]| {
            let parts = x[0].multiply(&weight)?.split(&[1], 0)?;
            Ok(vec![parts[1].clone(), parts[0].clone(), x[1].clone(), weight.clone()])
        };
        let recording = Recording::new(&[spec(2), spec(1)], &function).unwrap();
        drop(function);
        assert_eq!(recording.operations(), 2);
        for values in [[1.0f32, 1.0], [-4.0, 0.5]] {
            let outputs = recording.replay(&[floats(&values), floats(&[9.0])]).unwrap();
            let outputs: Vec<Vec<f32>> = outputs.iter().map(|y| y.to_vec().unwrap()).collect();
            assert_eq!(outputs, [vec![3.0 * values[1]], vec![2.0 * values[0]], vec![9.0], vec![2.0, 3.0]]);
        }
    }

    #[test]
    fn what_inputs_do_not_change_is_computed_once() {
        let function = |x: &[Array]| {
            let table = crate::arange(0.0, 3.0, 1.0, Dtype::Float32)?.exp()?;
            let (first, second) = (table.add(&Array::scalar(1.0f32))?, table.negative()?);
            let large = crate::zeros(&[2048, 1024], Dtype::Float32)?.add(&Array::scalar(2.0f32))?;
            let corner = large.slice_axis(0, ..1)?.slice_axis(1, ..3)?;
            Ok(vec![x[0].add(&first)?, second, x[0].multiply(&corner)?, large])
        };
        let recording = Recording::new(&[spec(3)], &function).unwrap();
        let outputs = recording.replay(&[floats(&[1.0, 2.0, 3.0])]).unwrap();
        let values: Vec<Vec<f32>> = outputs[..3].iter().map(|y| y.to_vec().unwrap()).collect();
        for (i, x) in [1.0f64, 2.0, 3.0].into_iter().enumerate() {
            let e = (i as f64).exp();
            assert!((f64::from(values[0][i]) - (x + e + 1.0)).abs() < 1e-5);
            assert!((f64::from(values[1][i]) + e).abs() < 1e-5);
            assert_eq!(f64::from(values[2][i]), 2.0 * x);
        }
        assert_eq!((outputs[3].shape(), outputs[3].size()), (&[2048, 1024][..], 1 << 21));
        // The sum, the product with what is as large as may be, that and its slices: not the table.
        let alone = Recording::new(&[spec(3)], &|x| Ok(vec![function(x)?[0].clone()])).unwrap();
        assert_eq!(alone.operations(), 1);
        assert!(recording.operations() > 2, "8 MiB are not kept");
    }

    #[test]
    fn other_shapes_and_types_are_refused() {
        let recording = Recording::new(&[spec(2)], &|x| Ok(vec![x[0].exp()?])).unwrap();
        for wrong in [vec![floats(&[1.0])], vec![], vec![Array::from_slice(&[1i32, 2], &[2]).unwrap()]] {
            let error = recording.replay(&wrong).unwrap_err().to_string();
            assert!(error.starts_with("replay: ") && error.contains("float32(2)"), "{error}");
        }
    }

    #[test]
    fn without_shapes_they_are_inferred() {
        let weight = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
        let function = move |x: &[Array]| {
            let y = x[0].matmul(&weight)?.add(&x[1])?;
            Ok(vec![crate::concatenate(&[y.tanh()?.abs()?, y], 0)?])
        };
        let specs = [Spec::new(&[3, 2], Dtype::Float32), spec(2)];
        let recording = Recording::shapeless(&specs, false, &function).unwrap();
        let bias = floats(&[10.0, 20.0]);
        for rows in [4, 3, 5] {
            let values: Vec<f32> = (0..2 * rows).map(|i| i as f32 / 8.0).collect();
            let x = Array::from_slice(&values, &[rows, 2]).unwrap();
            let y = recording.replay(&[x, bias.clone()]).unwrap();
            let wanted: Vec<f32> = (values.chunks(2))
                .flat_map(|x| [x[0] + 3.0 * x[1] + 10.0, 2.0 * x[0] + 4.0 * x[1] + 20.0])
                .collect();
            assert_eq!(y[0].shape(), [2 * rows, 2]);
            assert_eq!(y[0].to_vec::<f32>().unwrap()[wanted.len()..], wanted);
        }
        let error = recording.replay(&[floats(&[1.0]), floats(&[1.0])]).unwrap_err().to_string();
        assert!(error.contains("are not like the recorded"), "{error}");
    }

    #[test]
    fn sizes_that_were_equal_stay_equal() {
        let weight = floats(&[1.0; 8]);
        let specs = |shapes: [[i32; 2]; 2]| shapes.map(|shape| Spec::new(&shape, Dtype::Float32));
        let function = move |x: &[Array]| Ok(vec![x[0].add(&x[1])?.add(&weight)?]);
        let recording = Recording::shapeless(&specs([[3, 8], [1, 8]]), false, &function).unwrap();
        let fits = |shapes| recording.fits(&specs(shapes));
        assert!(fits([[3, 8], [1, 8]]) && fits([[5, 8], [1, 8]]));
        assert!(!fits([[5, 8], [5, 8]]), "1 stays 1");
        assert!(!fits([[1, 8], [1, 8]]) && !fits([[0, 8], [1, 8]]) && !fits([[8, 8], [1, 8]]));
        assert!(!fits([[3, 9], [1, 9]]), "the size of a constant");
        let recording =
            Recording::shapeless(&specs([[3, 4], [4, 3]]), false, &|x| Ok(vec![x[0].matmul(&x[1])?]));
        let recording = recording.unwrap();
        let fits = |shapes| recording.fits(&specs(shapes));
        assert!(fits([[4, 3], [3, 4]]) && fits([[7, 9], [9, 7]]));
        assert!(!fits([[5, 5], [5, 5]]) && !fits([[3, 4], [5, 3]]) && !fits([[3, 4], [4, 6]]));
    }

    #[test]
    fn a_product_of_sizes_that_do_not_fit_is_an_error() {
        let function =
            |x: &[Array]| Ok(vec![crate::concatenate(&[x[0].clone(), x[1].clone()], 1)?.matmul(&x[2])?]);
        let of = |a, b, c| [[1, a], [1, b], [c, 2]].map(|shape| Spec::new(&shape, Dtype::Float32));
        let recording = Recording::shapeless(&of(3, 4, 7), false, &function).unwrap();
        let inputs = of(5, 6, 8).map(|spec| crate::zeros(&spec.shape, spec.dtype).unwrap());
        let evaluated = recording.replay(&inputs).and_then(|y| y[0].eval());
        assert!(evaluated.is_err());
    }

    #[test]
    fn operations_that_cannot_infer_shapes_are_refused() {
        let function = |x: &[Array]| Ok(vec![x[0].reshape(&[3, 1])?.slice_axis(0, 1..3)?]);
        match Recording::shapeless(&[spec(3)], false, &function) {
            Err(error) => assert!(error.to_string().starts_with("record: "), "{error}"),
            Ok(recording) => assert!(recording.replay(&[floats(&[1.0; 4])]).is_err()),
        }
    }

    #[test]
    fn what_is_recorded_has_no_values() {
        let seen = std::cell::Cell::new(0);
        let function = |x: &[Array]| {
            let constant = floats(&[1.0, 2.0]).add(&Array::scalar(1.0f32))?;
            assert!(constant.has_values() && !x[0].has_values());
            assert_eq!(constant.to_vec::<f32>()?, [2.0, 3.0]);
            let sum = x[0].add(&constant)?;
            assert!(!sum.has_values() && sum.eval().is_err());
            seen.set(seen.get() + 1);
            Ok(vec![sum])
        };
        let recording = Recording::new(&[spec(2)], &function).unwrap();
        assert_eq!(recording.replay(&[floats(&[1.0, 1.0])]).unwrap()[0].to_vec::<f32>().unwrap(), [3.0, 4.0]);
        assert_eq!(seen.get(), 1);
        let error = Recording::new(&[spec(2)], &|_| Err(Error::Closure("on purpose".into()))).unwrap_err();
        assert!(error.to_string().contains("on purpose"));
    }

    #[test]
    fn transpositions_meet_behind_elements_and_cancel() -> Result<()> {
        // Two steps on four axes, the work of each with the second axis last.
        let step = |x: &Array, w: &Array| -> Result<Array> {
            x.transpose(&[0, 2, 3, 1])?.multiply(w)?.transpose(&[0, 3, 1, 2])
        };
        let w = floats(&[2.0, -3.0, 0.5]);
        let per_channel = floats(&[1.0, -2.0, 4.0]).reshape(&[1, 3, 1, 1])?;
        let function = |x: &[Array]| {
            let y = step(&x[0], &w)?.maximum(&Array::scalar(0.25f32))?;
            let z = step(&y.add(&per_channel)?, &w)?.add(&step(&x[0], &w)?)?;
            Ok(vec![step(&z.slice(&[0, 1, 0, 1], &[2, 3, 4, 5], &[1, 1, 2, 3])?, &floats(&[3.0, 5.0]))?])
        };
        let specs = [Spec::new(&[2, 3, 4, 5], Dtype::Float32)];
        let values: Vec<f32> = (0..120).map(|i| ((i * 37) % 101) as f32 / 10.0 - 5.0).collect();
        let x = Array::from_slice(&values, &[2, 3, 4, 5])?;
        let wanted = function(std::slice::from_ref(&x))?.remove(0);
        let recording = Recording::new(&specs, &function)?;
        let found = recording.replay(&[x])?.remove(0);
        assert_eq!(found.shape(), wanted.shape());
        assert_eq!(found.to_vec::<f32>()?, wanted.to_vec::<f32>()?);
        // Of eight transpositions two of x and the result's are left, beside what is computed.
        assert_eq!(recording.operations(), 11);
        Ok(())
    }

    #[test]
    fn a_bias_is_added_by_its_product() -> Result<()> {
        let w = Array::from_slice(&(0..12).map(|i| i as f32 - 5.0).collect::<Vec<_>>(), &[3, 4])?;
        let bias = floats(&[0.5, -1.5, 2.0, 8.0]);
        let column = floats(&[1.0, 2.0]).reshape(&[2, 1])?;
        let operations = |function: &dyn Fn(&Array) -> Result<Vec<Array>>, shape: &[i32]| -> Result<usize> {
            let count: i32 = shape.iter().product();
            let x = Array::from_slice(&(0..count).map(|i| i as f32 * 0.25 - 1.0).collect::<Vec<_>>(), shape)?;
            let recording = Recording::new(&[Spec::from(&x)], &|x| function(&x[0]))?;
            for (found, wanted) in recording.replay(std::slice::from_ref(&x))?.iter().zip(function(&x)?) {
                assert_eq!(found.shape(), wanted.shape());
                assert_eq!(found.to_vec::<f32>()?, wanted.to_vec::<f32>()?);
            }
            Ok(recording.operations())
        };
        let plain = operations(&|x| Ok(vec![x.matmul(&w)?]), &[2, 3])?;
        assert_eq!(operations(&|x| Ok(vec![x.matmul(&w)?.add(&bias)?]), &[2, 3])?, plain);
        assert_eq!(operations(&|x| Ok(vec![bias.add(&x.matmul(&w)?)?]), &[2, 3])?, plain);
        let batch = operations(&|x| Ok(vec![x.matmul(&w)?]), &[2, 2, 3])?;
        assert_eq!(operations(&|x| Ok(vec![x.matmul(&w)?.add(&bias)?]), &[2, 2, 3])?, batch);
        // Not for one row, not what is no row, not where the product is wanted too.
        assert_eq!(operations(&|x| Ok(vec![x.matmul(&w)?.add(&bias)?]), &[1, 3])?, plain + 1);
        assert_eq!(operations(&|x| Ok(vec![x.matmul(&w)?.add(&column)?]), &[2, 3])?, plain + 1);
        let both = |x: &Array| {
            let y = x.matmul(&w)?;
            Ok(vec![y.add(&bias)?, y])
        };
        assert_eq!(operations(&both, &[2, 3])?, plain + 1);
        Ok(())
    }

    #[test]
    fn long_chains_are_recorded() {
        let chain = |x: &[Array]| {
            let mut y = x[0].clone();
            for _ in 0..50_000 {
                y = y.add(&x[0])?;
            }
            Ok(vec![y])
        };
        let recording = Recording::new(&[spec(1)], &chain).unwrap().fused();
        assert_eq!(recording.operations(), 50_000);
        assert_eq!(recording.replay(&[floats(&[1.0])]).unwrap()[0].to_vec::<f32>().unwrap(), [50_001.0]);
    }

    #[test]
    fn fusing_merges_what_is_equal() {
        let function = |x: &[Array]| {
            let (a, b) = (x[0].matmul(&x[0])?, x[0].matmul(&x[0])?);
            Ok(vec![a.sum(&[0], false)?, b.sum(&[1], false)?])
        };
        let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
        let recording = Recording::new(&[Spec::from(&x)], &function).unwrap().fused();
        let y = recording.replay(&[x]).unwrap();
        assert_eq!(y[0].to_vec::<f32>().unwrap(), [22.0, 32.0]);
        assert_eq!(y[1].to_vec::<f32>().unwrap(), [17.0, 37.0]);
    }
}
