//! A program's lowerings, recorded.

use std::cell::RefCell;
use std::rc::Rc;

use mlx_safe::{Array, DeviceType, Recording};

use super::key::Call;
use super::mode::fuses;
use super::origins::{Mark, Origins};
use crate::host::HostTensor;
use crate::lowering::Value;
use crate::program::{Label, Program};
use crate::run::Run;
use crate::{Error, LowerError};

/// What a program does for one key. Holds constants, but nothing that a run computes.
pub(crate) struct Replay {
    recording: Recording,
    /// Messages and places of the conditions, which the recording gives after the outputs.
    checks: Vec<(Rc<str>, Rc<Label>)>,
}

/// For what a program is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// For all sizes that compare like those of the call.
    Shapeless,
    /// For the shapes of the call.
    Keyed,
}

/// A trace that was tried.
pub(crate) struct Traced {
    pub(crate) replay: Result<Replay, Error>,
    /// The inputs whose contents it read.
    pub(crate) read: Vec<usize>,
}

/// Lowers `program` for the shapes of `call`. Inputs have no values; what is small has a host's copy, whose readers are found
/// out.
pub(crate) fn trace(
    program: &Program,
    call: &Call<'_>,
    limit: usize,
    device: DeviceType,
    form: Form,
) -> Traced {
    let marks: Vec<Mark> = call.views.iter().map(|_| Mark::default()).collect();
    let replay = record(program, call, &marks, limit, device, form);
    let read = (0..marks.len()).filter(|&i| marks[i].is_read()).collect();
    Traced { replay, read }
}

fn record(
    program: &Program,
    call: &Call<'_>,
    marks: &[Mark],
    limit: usize,
    device: DeviceType,
    form: Form,
) -> Result<Replay, Error> {
    let failed: RefCell<Option<Error>> = RefCell::new(None);
    let checks: RefCell<Vec<(Rc<str>, Rc<Label>)>> = RefCell::default();
    let lower = |arrays: &[Array]| -> Result<Vec<Array>, Error> {
        let mut run = Run::tracing(limit);
        let inputs =
            arrays.iter().zip(call.views).zip(marks).map(
                |((array, view), mark)| match HostTensor::from_bytes(view.element, view.shape, view.data) {
                    Some(host) => Value::traced(array.clone(), host, Origins::of(mark)),
                    None => Value::device(array.clone()),
                },
            );
        let mut outputs = arranged(&program.call(inputs, &mut run)?, device)?;
        for (holds, message, label) in run.take_checks() {
            outputs.push(holds);
            checks.borrow_mut().push((message, label));
        }
        Ok(outputs)
    };
    let function = |arrays: &[Array]| {
        lower(arrays).map_err(|error| {
            let text = mlx_safe::Error::Closure(error.to_string());
            *failed.borrow_mut() = Some(error);
            text
        })
    };
    let recording = match form {
        Form::Shapeless => Recording::shapeless(&call.specs, fuses(device), &function),
        Form::Keyed => Recording::new(&call.specs, &function),
    };
    let recording = match failed.take() {
        Some(error) => return Err(error),
        None => recording?,
    };
    let fuse = form == Form::Keyed && fuses(device);
    let recording = if fuse { recording.fused() } else { recording };
    Ok(Replay { recording, checks: checks.take() })
}

impl Replay {
    /// The outputs for other inputs; its conditions are added to `run`.
    pub(crate) fn call(&self, inputs: &[Array], run: &mut Run) -> Result<Vec<Array>, Error> {
        let mut outputs = self.recording.replay(inputs)?;
        let holds = outputs.split_off(outputs.len().saturating_sub(self.checks.len()));
        for (holds, (message, label)) in holds.into_iter().zip(&self.checks) {
            run.require(holds, message.clone(), label.clone());
        }
        Ok(outputs)
    }

    /// Whether shapes and types are those that it was recorded for.
    pub(crate) fn fits(&self, call: &Call<'_>) -> bool {
        self.recording.fits(&call.specs)
    }

    /// How many operations of MLX's a run is.
    pub(crate) fn operations(&self) -> usize {
        self.recording.operations()
    }
}

/// Outputs as arrays. A GPU lays them out row by row while it computes; on a CPU the copy to the caller does so on its way.
pub(crate) fn arranged(values: &[Value], device: DeviceType) -> Result<Vec<Array>, Error> {
    let array = |value: &Value| -> Result<Array, LowerError> {
        let array = value.array()?;
        Ok(if device == DeviceType::Gpu { array.contiguous()? } else { array.clone() })
    };
    values.iter().map(|value| array(value).map_err(|e| Error::Bug(e.to_string()))).collect()
}
