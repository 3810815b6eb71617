//! What a lowering sees: its inputs as arrays or host values, and places for its outputs.

use std::cell::OnceCell;
use std::rc::{Rc, Weak};

use mlx_safe::{Array, Dtype};

use crate::executable::origins::Origins;
use crate::host::{HostTensor, shape_i32};
use crate::program::{Label, Slot};
use crate::run::Run;
use crate::{LowerError, dtype};

/// A value of a running program: on the host, on the device, or both. Uploads happen when first asked for.
#[derive(Clone, Default)]
pub(crate) struct Value(Rc<ValueState>);

/// Finds a value again as long as somebody holds it.
pub(crate) struct WeakValue(Weak<ValueState>);

impl WeakValue {
    pub(crate) fn upgrade(&self) -> Option<Value> {
        self.0.upgrade().map(Value)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.strong_count() > 0
    }
}

#[derive(Default)]
struct ValueState {
    array: OnceCell<Array>,
    host: OnceCell<HostTensor>,
    /// In a trace, the inputs that the host's copy comes from.
    origins: Origins,
}

impl Value {
    pub(crate) fn device(array: Array) -> Self {
        Self(Rc::new(ValueState { array: array.into(), ..ValueState::default() }))
    }

    pub(crate) fn host(tensor: HostTensor) -> Self {
        Self(Rc::new(ValueState { host: tensor.into(), ..ValueState::default() }))
    }

    pub(crate) fn both(array: Array, tensor: HostTensor) -> Self {
        Self::traced(array, tensor, Origins::default())
    }

    /// A value of a trace: the array stands for what every replay brings, `tensor` is what this run has there.
    pub(crate) fn traced(array: Array, tensor: HostTensor, origins: Origins) -> Self {
        Self(Rc::new(ValueState { array: array.into(), host: tensor.into(), origins }))
    }

    /// The host's copy, if there is one without waiting for the device, and nothing depends on who looks at it.
    pub(crate) fn known(&self) -> Option<&HostTensor> {
        self.0.host.get().filter(|_| self.0.origins.is_empty())
    }

    /// The host's copy, to compute with it what is [`Value::traced`] with the same origins.
    pub(crate) fn held(&self) -> Option<&HostTensor> {
        self.0.host.get()
    }

    /// In a trace, the inputs that the host's copy comes from.
    pub(crate) fn origins(&self) -> &Origins {
        &self.0.origins
    }

    /// The array, uploaded if need be.
    pub(crate) fn array(&self) -> Result<&Array, LowerError> {
        if let Some(array) = self.0.array.get() {
            return Ok(array);
        }
        let host =
            self.0.host.get().ok_or_else(|| LowerError::Bug("a value was read before it was made".into()))?;
        self.0.origins.read();
        let array = host.upload()?;
        Ok(self.0.array.get_or_init(|| array))
    }

    /// The array, if there is one already.
    pub(crate) fn on_device(&self) -> Option<&Array> {
        self.0.array.get()
    }

    /// A way back to this value that does not hold it.
    pub(crate) fn weak(&self) -> WeakValue {
        WeakValue(Rc::downgrade(&self.0))
    }

    /// The bytes of the array, if there is one already.
    pub(crate) fn device_bytes(&self) -> usize {
        self.on_device().map_or(0, Array::nbytes)
    }

    /// The host's copy, computed and downloaded if need be.
    ///
    /// # Errors
    /// [`LowerError::Values`] in a trace, where the value is computed from inputs.
    pub(crate) fn download(&self) -> Result<&HostTensor, LowerError> {
        if let Some(host) = self.0.host.get() {
            self.0.origins.read();
            return Ok(host);
        }
        let array = self.array()?;
        if !array.has_values() {
            return Err(LowerError::Values);
        }
        let host = HostTensor::download(array)?;
        Ok(self.0.host.get_or_init(|| host))
    }

    pub(crate) fn shape(&self) -> Result<Vec<i32>, LowerError> {
        match (self.0.array.get(), self.0.host.get()) {
            (Some(array), _) => Ok(array.shape().to_vec()),
            (None, Some(host)) => shape_i32(host.dims()),
            (None, None) => Err(LowerError::Bug("a value was read before it was made".into())),
        }
    }
}

/// One lowering in progress.
pub(crate) struct Lowering<'a> {
    inputs: &'a [Option<Value>],
    outputs: Vec<Option<Value>>,
    declared: &'a [Option<Dtype>],
    read: &'a [Option<Slot>],
    label: &'a Rc<Label>,
    run: &'a mut Run,
}

impl<'a> Lowering<'a> {
    /// `declared` has the type of each output that the node names, `read` a slot for each that somebody reads.
    pub(crate) fn new(
        label: &'a Rc<Label>,
        inputs: &'a [Option<Value>],
        declared: &'a [Option<Dtype>],
        read: &'a [Option<Slot>],
        run: &'a mut Run,
    ) -> Self {
        Self { inputs, outputs: vec![None; declared.len()], declared, read, label, run }
    }

    pub(crate) fn finish(self) -> Result<Vec<Option<Value>>, LowerError> {
        for (i, output) in self.outputs.iter().enumerate() {
            if self.wants(i) && output.is_none() {
                return Err(LowerError::Bug(format!("output {i} was not made")));
            }
        }
        Ok(self.outputs)
    }

    /// How many inputs are listed, left-out ones included.
    pub(crate) fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Whether input `i` is given.
    pub(crate) fn has_input(&self, i: usize) -> bool {
        self.inputs.get(i).is_some_and(Option::is_some)
    }

    /// Input `i` as it is held; those after the listed ones are what the node's bodies read from outside.
    pub(crate) fn input(&self, i: usize) -> Result<&'a Value, LowerError> {
        let input = self.inputs.get(i).and_then(Option::as_ref);
        input.ok_or_else(|| LowerError::Bug(format!("input {i} is missing, which the claim let pass")))
    }

    /// Input `i` as an array.
    pub(crate) fn array(&self, i: usize) -> Result<Array, LowerError> {
        Ok(self.input(i)?.array()?.clone())
    }

    /// Input `i` as an array, if it is given.
    pub(crate) fn optional_array(&self, i: usize) -> Result<Option<Array>, LowerError> {
        if self.has_input(i) { self.array(i).map(Some) } else { Ok(None) }
    }

    /// All given inputs as arrays, in order.
    pub(crate) fn arrays(&self) -> Result<Vec<Array>, LowerError> {
        (0..self.input_count()).filter(|&i| self.has_input(i)).map(|i| self.array(i)).collect()
    }

    /// The shape of input `i`; its values are not touched.
    pub(crate) fn shape(&self, i: usize) -> Result<Vec<i32>, LowerError> {
        self.input(i)?.shape()
    }

    /// The host's copy of input `i`, if it is known without waiting for the device: for a lowering that can do without.
    pub(crate) fn known(&self, i: usize) -> Option<&'a HostTensor> {
        self.inputs.get(i)?.as_ref()?.known()
    }

    /// Input `i` on the host. Waits for the device where the values are not known. In a trace the values become part of the
    /// key, or, where they are computed, the program runs eagerly.
    pub(crate) fn host(&self, i: usize) -> Result<&'a HostTensor, LowerError> {
        self.input(i)?.download()
    }

    /// The integers of input `i`, in order; see [`Lowering::host`].
    pub(crate) fn ints(&self, i: usize) -> Result<Vec<i64>, LowerError> {
        let host = self.host(i)?;
        host.to_ints()
            .ok_or_else(|| LowerError::invalid(format!("input {i} is {}, not integers", host.element())))
    }

    /// The integers of input `i`, if it is given; see [`Lowering::host`].
    pub(crate) fn optional_ints(&self, i: usize) -> Result<Option<Vec<i64>>, LowerError> {
        if self.has_input(i) { self.ints(i).map(Some) } else { Ok(None) }
    }

    /// The floats of input `i`, in order; see [`Lowering::host`].
    pub(crate) fn floats(&self, i: usize) -> Result<Vec<f64>, LowerError> {
        Ok(self.host(i)?.to_floats())
    }

    /// Whether output `i` is asked for: the node names it, and somebody reads it.
    pub(crate) fn wants(&self, i: usize) -> bool {
        self.read.get(i).is_some_and(Option::is_some)
    }

    /// The declared type of output `i`, which the node names.
    pub(crate) fn output_dtype(&self, i: usize) -> Result<Dtype, LowerError> {
        let dtype = self.declared.get(i).copied().flatten();
        dtype.ok_or_else(|| LowerError::Bug(format!("the node has no output {i}")))
    }

    /// Fails if memory cannot hold an array of `shape`. A lowering that works out tables on the host, as long as sizes that
    /// values decide, asks first.
    pub(crate) fn afford(&self, shape: &[i32], dtype: Dtype) -> Result<(), LowerError> {
        self.run.afford(shape, dtype)
    }

    /// Hands over output `i`; one that nobody asked for is dropped.
    ///
    /// # Errors
    /// [`LowerError::Bug`] if its type is not the declared one, [`LowerError::Invalid`] if memory cannot hold it: MLX's
    /// CPU back end does not survive an allocation that fails.
    pub(crate) fn emit(&mut self, i: usize, array: Array) -> Result<(), LowerError> {
        if !self.wants(i) {
            return Ok(());
        }
        self.afford(array.shape(), array.dtype())?;
        let wanted = self.output_dtype(i)?;
        if array.dtype() != wanted {
            return Err(LowerError::Bug(format!(
                "output {i} is {:?} where {wanted:?} is declared",
                array.dtype()
            )));
        }
        self.outputs[i] = Some(Value::device(array));
        Ok(())
    }

    /// Hands over output `i` as a body made it.
    ///
    /// # Errors
    /// [`LowerError::Bug`] if its type is not the declared one.
    pub(crate) fn emit_value(&mut self, i: usize, value: Value) -> Result<(), LowerError> {
        if !self.wants(i) {
            return Ok(());
        }
        let wanted = self.output_dtype(i)?;
        let dtype = match (value.known(), value.on_device()) {
            (Some(host), _) => dtype::to_mlx(host.element()),
            (None, array) => array.map(Array::dtype),
        };
        if dtype != Some(wanted) {
            return Err(LowerError::Bug(format!("output {i} is {dtype:?} where {wanted:?} is declared")));
        }
        self.outputs[i] = Some(value);
        Ok(())
    }

    /// The run that this lowering is part of, for the bodies that it runs.
    pub(crate) fn run(&mut self) -> &mut Run {
        self.run
    }

    /// Hands over output `i` as a value known on the host.
    pub(crate) fn emit_host(&mut self, i: usize, tensor: HostTensor) {
        if self.wants(i) {
            self.outputs[i] = Some(Value::host(tensor));
        }
    }

    /// Passes input `i` on as output `o`, whether it is on the host or the device.
    pub(crate) fn forward(&mut self, i: usize, o: usize) -> Result<(), LowerError> {
        let value = self.input(i)?.clone();
        if self.wants(o) {
            self.outputs[o] = Some(value);
        }
        Ok(())
    }

    /// Makes the run fail with `message` unless `holds` (a boolean scalar) is true. Checked after the run, so the lowering
    /// must be safe where it does not hold.
    pub(crate) fn require(&mut self, holds: Array, message: impl Into<String>) {
        self.run.require(holds, message.into().into(), self.label.clone());
    }
}
