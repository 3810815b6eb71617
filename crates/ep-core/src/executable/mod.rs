//! How a cluster runs: the one place that decides, and can say why.
//!
//! A program is *keyed* where it can be: lowered once for a [`key::Key`], recorded, and replayed. It is *eager*, lowered anew
//! at every run, where a lowering reads what the device computes, where a loop evaluates as it goes, or where the user asks
//! for it.

pub(crate) mod cache;
pub(crate) mod key;
pub(crate) mod mode;
pub(crate) mod origins;
mod trace;

use std::cell::RefCell;

use mlx_safe::{Array, DeviceType};

use self::cache::Cache;
use self::key::{Call, Key};
use self::mode::{Decision, Mode};
use self::trace::{Replay, arranged, trace};
use crate::lowering::Value;
use crate::program::Program;
use crate::run::Run;
use crate::{Error, LowerError, ShapeMode};

/// A program, and what was recorded of it. It stays on the worker's thread that made it.
pub(crate) struct Executor {
    program: Program,
    device: DeviceType,
    /// The most bytes that one array may take.
    limit: usize,
    state: RefCell<State>,
}

struct State {
    cache: Cache<Entry>,
    /// Why nothing is recorded, if so.
    eager: Option<String>,
    /// Whether the caller knows of it.
    told: bool,
}

enum Entry {
    Replay(Replay),
    /// Runs with this key are lowered anew.
    Eager,
}

/// What one run gives: arrays that wait for evaluation, with the run that checks them.
pub(crate) struct Outcome {
    pub(crate) outputs: Vec<Array>,
    pub(crate) run: Run,
    pub(crate) decision: Option<Decision>,
}

impl Executor {
    /// `room` says for how many keys `program` is recorded; `None` that it never is.
    pub(crate) fn new(program: Program, device: DeviceType, limit: usize, room: Option<usize>) -> Self {
        let eager = room.is_none().then(|| "option compile is off".to_owned());
        let cache = Cache::new(room.unwrap_or_default());
        let state = RefCell::new(State { cache, eager, told: false });
        Self { program, device, limit, state }
    }

    /// How runs go, as far as is known.
    pub(crate) fn mode(&self) -> Mode {
        let eager = self.state.borrow().eager.clone();
        eager.map_or_else(|| self.keyed(), Mode::Eager)
    }

    /// Builds the outputs of one run. `upload` makes an array of each input, `values` values as a lowering wants them.
    pub(crate) fn call(
        &self,
        call: &Call<'_>,
        upload: &dyn Fn() -> Result<Vec<Array>, Error>,
        values: &dyn Fn() -> Result<Vec<Value>, Error>,
    ) -> Result<Outcome, Error> {
        let mut state = self.state.borrow_mut();
        let mut run = Run::new(self.limit);
        if let Some(why) = state.eager.clone() {
            let decision =
                (!std::mem::replace(&mut state.told, true)).then(|| decision(Mode::Eager(why), call, &[]));
            return self.eager(values, run, decision);
        }
        if let Some(entry) = state.cache.find(call) {
            let Entry::Replay(replay) = entry else { return self.eager(values, run, None) };
            let outputs = replay.call(&upload()?, &mut run)?;
            return Ok(Outcome { outputs, run, decision: None });
        }
        if !state.cache.is_worthwhile() {
            return self.eager(values, run, None);
        }
        let traced = trace(&self.program, call, self.limit, self.device);
        let key = Key::new(call, &traced.read);
        match traced.replay {
            Ok(replay) => {
                let decision = decision(self.keyed(), call, &traced.read);
                tracing::debug!("{} operations recorded, {decision}", replay.operations());
                let outputs = replay.call(&upload()?, &mut run)?;
                state.cache.insert(key, Entry::Replay(replay));
                Ok(Outcome { outputs, run, decision: Some(decision) })
            }
            // Where a run fails too, that is the user's to know, and nothing is learnt.
            Err(error) => {
                let decision = decision(Mode::Eager(error.to_string()), call, &traced.read);
                let outcome = self.eager(values, run, Some(decision.clone()))?;
                tracing::debug!("not recorded, {decision}");
                if reads_values(&error) {
                    (state.eager, state.told) = (Some(error.to_string()), true);
                } else {
                    state.cache.insert(key, Entry::Eager);
                }
                Ok(outcome)
            }
        }
    }

    fn eager(
        &self,
        values: &dyn Fn() -> Result<Vec<Value>, Error>,
        mut run: Run,
        decision: Option<Decision>,
    ) -> Result<Outcome, Error> {
        let outputs = arranged(&self.program.call(values()?, &mut run)?, self.device)?;
        Ok(Outcome { outputs, run, decision })
    }

    fn keyed(&self) -> Mode {
        Mode::Keyed(match self.program.shape_mode() {
            (ShapeMode::Keyed(why), Some(label)) => format!("{} node {}: {why}", label.op_type, label.node),
            _ => "MLX records the sizes".to_owned(),
        })
    }
}

fn decision(mode: Mode, call: &Call<'_>, read: &[usize]) -> Decision {
    let shapes = call.specs.iter().map(|spec| spec.shape.clone()).collect();
    Decision { mode, shapes, read: read.to_vec() }
}

/// Whether a trace failed for what the program is, and not for this key alone.
fn reads_values(error: &Error) -> bool {
    match error {
        Error::Node { source: LowerError::Values, .. } => true,
        Error::Node { source: LowerError::Body(inner), .. } => reads_values(inner),
        _ => false,
    }
}
