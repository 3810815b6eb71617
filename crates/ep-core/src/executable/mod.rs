//! How a cluster runs: the one place that decides, and can say why.
//!
//! A program is recorded where it can be, and replayed: *shapeless*, if every operator allows that, or *keyed*. It is *eager*,
//! lowered anew at every run, where a lowering reads what the device computes, where a loop evaluates as it goes, or where the
//! user asks for it.

pub(crate) mod cache;
pub(crate) mod key;
pub(crate) mod mode;
pub(crate) mod origins;
mod trace;

use std::cell::RefCell;

use mlx_safe::{Array, DeviceType, Spec};

use self::cache::Cache;
use self::key::{Call, Contents, Fits};
use self::mode::{Decision, Mode, infers_shapes};
use self::trace::{Form, Replay, Traced, arranged, trace};
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
    cache: Cache<Kept>,
    form: Form,
    /// Why nothing is recorded, if so.
    eager: Option<String>,
    /// Whether the caller knows of it.
    told: bool,
}

/// What is kept for some calls.
struct Kept {
    contents: Contents,
    plan: Plan,
}

enum Plan {
    Replay(Replay),
    /// Runs with these shapes are lowered anew.
    Eager(Vec<Spec>),
}

impl Fits for Kept {
    fn fits(&self, call: &Call<'_>) -> bool {
        let shapes = match &self.plan {
            Plan::Replay(replay) => replay.fits(call),
            Plan::Eager(specs) => *specs == call.specs,
        };
        shapes && self.contents.fits(call)
    }
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
        let shapeless = infers_shapes(device) && program.shape_mode().0 == ShapeMode::Shapeless;
        let form = if shapeless { Form::Shapeless } else { Form::Keyed };
        let state = RefCell::new(State { cache, form, eager, told: false });
        Self { program, device, limit, state }
    }

    /// Records without shapes on a CPU too, if every operator allows it.
    #[cfg(test)]
    pub(crate) fn infer_shapes(&self) {
        if self.program.shape_mode().0 == ShapeMode::Shapeless {
            self.state.borrow_mut().form = Form::Shapeless;
        }
    }

    /// How runs go, as far as is known.
    pub(crate) fn mode(&self) -> Mode {
        let state = self.state.borrow();
        state.eager.clone().map_or_else(|| self.recorded(state.form), Mode::Eager)
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
            let told = std::mem::replace(&mut state.told, true);
            let decision = (!told).then(|| decision(Mode::Eager(why), call, &[]));
            return self.eager(values, run, decision);
        }
        let form = state.form;
        if let Some(kept) = state.cache.find(call) {
            let Plan::Replay(replay) = &kept.plan else { return self.eager(values, run, None) };
            match replay.call(&upload()?, &mut run) {
                Err(error) if form == Form::Shapeless => state.give_up_shapeless(&error),
                outputs => return Ok(Outcome { outputs: outputs?, run, decision: None }),
            }
        } else if !state.cache.is_worthwhile() {
            return self.eager(values, run, None);
        }
        let Traced { replay, read } = self.trace(call, &mut state);
        let contents = Contents::new(call, &read);
        match replay {
            Ok(replay) => {
                let decision = decision(self.recorded(state.form), call, &read);
                tracing::debug!("{} operations recorded, {decision}", replay.operations());
                let outputs = replay.call(&upload()?, &mut run)?;
                state.cache.insert(Kept { contents, plan: Plan::Replay(replay) });
                Ok(Outcome { outputs, run, decision: Some(decision) })
            }
            // Where a run fails too, that is the user's to know, and nothing is learnt.
            Err(error) => {
                let decision = decision(Mode::Eager(error.to_string()), call, &read);
                let outcome = self.eager(values, run, Some(decision.clone()))?;
                tracing::debug!("not recorded, {decision}");
                if reads_values(&error) {
                    (state.eager, state.told) = (Some(error.to_string()), true);
                } else {
                    state.cache.insert(Kept { contents, plan: Plan::Eager(call.specs.clone()) });
                }
                Ok(outcome)
            }
        }
    }

    fn trace(&self, call: &Call<'_>, state: &mut State) -> Traced {
        let trace = |form| trace(&self.program, call, self.limit, self.device, form);
        match (state.form, trace(state.form)) {
            (Form::Shapeless, Traced { replay: Err(error), .. }) => {
                state.give_up_shapeless(&error);
                trace(Form::Keyed)
            }
            (_, traced) => traced,
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

    fn recorded(&self, form: Form) -> Mode {
        if form == Form::Shapeless {
            return Mode::Shapeless("no operator looks at sizes".to_owned());
        }
        Mode::Keyed(match self.program.shape_mode() {
            (ShapeMode::Keyed(why), Some(label)) => format!("{} node {}: {why}", label.op_type, label.node),
            _ => "MLX records the sizes".to_owned(),
        })
    }
}

impl State {
    fn give_up_shapeless(&mut self, error: &Error) {
        tracing::debug!("recorded for each shape from now on: {error}");
        self.form = Form::Keyed;
        self.cache.clear();
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
