//! Runs the parts of a [`ScanPlan`] over the steps of a scan, chunk by chunk.
//!
//! The first step is a chunk of its own: it tells how much a step weighs, and with that how many make a chunk. Then the
//! parts around the loop are vectorised with MLX's `vmap`. A part for which that fails (MLX cannot vectorise an operation, or
//! a lowering reads values of the device) runs step by step from then on.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kernels_metal::linear_scan;
use mlx_safe::{Array, concatenate, vmap};

use super::collect::{Assembly, evaluated};
use super::plan::{Core, Linear, ScanPlan};
use super::track::Track;
use crate::lowering::Value;
use crate::program::{Label, Program, Slot};
use crate::run::Run;
use crate::{Error, LowerError};

/// A scan input with its steps along the first axis.
#[derive(Clone)]
pub(super) struct Sequence {
    pub(super) value: Value,
    /// Whether the last step comes first.
    pub(super) reverse: bool,
}

/// A plan, and what was learnt of it.
pub(super) struct Sweep {
    pub(super) plan: ScanPlan,
    vectorised: [Cell<bool>; 2],
    /// Whether each slot that the loop reads or makes is read after it.
    kept: Vec<bool>,
}

/// The tracks of a chunk, by slot.
type Tracks = Vec<Option<Track>>;

impl Sweep {
    pub(super) fn new(plan: ScanPlan) -> Self {
        let mut kept = vec![false; plan.slots];
        plan.post.inputs().iter().chain(&plan.outputs).for_each(|&slot| kept[slot] = true);
        Self { plan, vectorised: [Cell::new(true), Cell::new(true)], kept }
    }

    /// Runs `length` steps, 1 at least; hands the scan outputs to `outputs` and returns the final states.
    pub(super) fn run(
        &self,
        states: Vec<Value>,
        sequences: &[Sequence],
        outer: &[Value],
        length: usize,
        outputs: &mut [Assembly],
        run: &mut Run,
    ) -> Result<Vec<Value>, LowerError> {
        let mut states = states;
        let base = self.fixed(&states, outer, run)?;
        let before = run.pending;
        let (mut done, mut most) = (0, 1);
        while done < length {
            let count = most.min(length - done);
            let mut tracks = base.clone();
            for (&slot, sequence) in self.plan.sequences.iter().zip(sequences) {
                let first = if sequence.reverse { length - done - count } else { done };
                tracks[slot] = Some(Track::of_sequence(&sequence.value, first, count, sequence.reverse)?);
            }
            self.around(&self.plan.pre, &self.vectorised[0], &mut tracks, count, run)?;
            self.core(&mut states, &mut tracks, count, run)?;
            self.around(&self.plan.post, &self.vectorised[1], &mut tracks, count, run)?;
            for (&slot, output) in self.plan.outputs.iter().zip(outputs.iter_mut()) {
                output.push(track(&tracks, slot)?.repeated(count)?, run)?;
            }
            if done == 0 {
                most = run.pending.iterations(before);
            } else if done + count < length {
                let mut arrays = evaluated(&states);
                arrays.extend(outputs.iter().filter_map(|output| output.array().cloned()));
                run.settle(&arrays)?;
                run.pending = before;
            }
            done += count;
        }
        Ok(states)
    }

    /// What is the same in every step.
    fn fixed(&self, states: &[Value], outer: &[Value], run: &mut Run) -> Result<Tracks, LowerError> {
        let plan = &self.plan;
        let mut tracks: Tracks = vec![None; plan.slots];
        let constants = plan.constants.iter().map(|(slot, value)| (*slot, value));
        let states = plan.states.iter().zip(states).filter(|(state, _)| state.constant);
        let states = states.map(|(state, value)| (state.slot, value));
        for (slot, value) in constants.chain(states).chain(plan.outer.iter().copied().zip(outer)) {
            tracks[slot] = Some(Track::Same(value.clone()));
        }
        let inputs = step_inputs(&plan.fixed, &tracks, 0)?;
        let made = plan.fixed.call(inputs, run)?;
        for (&slot, value) in plan.fixed.outputs().iter().zip(made) {
            tracks[slot] = Some(Track::Same(value));
        }
        Ok(tracks)
    }

    /// A part before or after the loop.
    fn around(
        &self,
        part: &Program,
        vectorised: &Cell<bool>,
        tracks: &mut Tracks,
        count: usize,
        run: &mut Run,
    ) -> Result<(), LowerError> {
        if part.steps().is_empty() {
            return Ok(());
        }
        if count > 1 && vectorised.get() {
            match all_at_once(part, tracks, run) {
                Ok(made) => {
                    for (&slot, made) in part.outputs().iter().zip(made) {
                        tracks[slot] = Some(made);
                    }
                    return Ok(());
                }
                // What fails inside a trace of a scan around this one may work outside of it.
                Err(_) if run.is_traced() => {}
                Err(error) => {
                    tracing::debug!("a part of a scan's body runs step by step: {error}");
                    vectorised.set(false);
                }
            }
        }
        let mut made: Vec<Vec<Value>> = vec![Vec::with_capacity(count); part.outputs().len()];
        for k in 0..count {
            let values = part.call(step_inputs(part, tracks, k)?, run)?;
            made.iter_mut().zip(values).for_each(|(made, value)| made.push(value));
        }
        for (&slot, made) in part.outputs().iter().zip(made) {
            tracks[slot] = Some(Track::Steps(made.into()));
        }
        Ok(())
    }

    /// The loop over the states; leaves the next ones in `states`.
    fn core(
        &self,
        states: &mut [Value],
        tracks: &mut Tracks,
        count: usize,
        run: &mut Run,
    ) -> Result<(), LowerError> {
        let part = match &self.plan.core {
            Core::Loop(part) => part,
            Core::Linear(recurrences) => return self.linear(recurrences, states, tracks, count),
        };
        let moving = || self.plan.states.iter().enumerate().filter(|(_, state)| !state.constant);
        let of_states: Vec<Slot> = moving().map(|(_, state)| state.slot).collect();
        let kept: Vec<Slot> =
            of_states.iter().chain(part.outputs()).copied().filter(|&s| self.kept[s]).collect();
        let mut steps: Vec<Vec<Value>> = vec![Vec::with_capacity(count); kept.len()];
        for k in 0..count {
            for (i, state) in moving() {
                tracks[state.slot] = Some(Track::Same(states[i].clone()));
            }
            let made = part.call(step_inputs(part, tracks, k)?, run)?;
            for (&slot, value) in part.outputs().iter().zip(made) {
                tracks[slot] = Some(Track::Same(value));
            }
            for (&slot, steps) in kept.iter().zip(&mut steps) {
                steps.push(track(tracks, slot)?.at(k)?);
            }
            for (i, state) in moving() {
                states[i] = track(tracks, state.next)?.at(k)?;
            }
        }
        for (slot, steps) in kept.into_iter().zip(steps) {
            tracks[slot] = Some(Track::Steps(steps.into()));
        }
        Ok(())
    }
}

impl Sweep {
    /// The states of a chunk in one go; leaves the last ones in `states`.
    fn linear(
        &self,
        recurrences: &[Linear],
        states: &mut [Value],
        tracks: &mut Tracks,
        count: usize,
    ) -> Result<(), LowerError> {
        for Linear { state, decay, input, next } in recurrences {
            let first = states[*state].array()?.clone();
            let (decay, input) = (track(tracks, *decay)?, track(tracks, *input)?);
            let made = chunk(&first, over_steps(decay, &first)?, over_steps(input, &first)?, count)?;
            if self.kept[self.plan.states[*state].slot] {
                let before = concatenate(&[first.expand_dims(&[0])?, made.states.clone()], 0)?;
                let before = before.slice_axis(0, ..count as i32)?;
                tracks[self.plan.states[*state].slot] = Some(Track::rows(before));
            }
            tracks[*next] = Some(Track::rows(made.states));
            states[*state] = Value::device(made.last.astype(first.dtype())?);
        }
        Ok(())
    }
}

/// All states of `count` steps after `first`.
fn chunk(first: &Array, a: Array, u: Array, count: usize) -> Result<linear_scan::Outputs, LowerError> {
    let shape: Vec<i32> = std::iter::once(count as i32).chain(first.shape().iter().copied()).collect();
    let inputs = linear_scan::Inputs { a, u: u.broadcast_to(&shape)?, h0: Some(first.clone()) };
    Ok(linear_scan::LinearScan::default().forward(&inputs)?)
}

/// A track as an array beside the states of a chunk, of which `state` is one: steps first, or 1 where all are the same.
fn over_steps(track: &Track, state: &Array) -> Result<Array, LowerError> {
    let array = match track.array()? {
        Some(array) => array,
        None => track.at(0)?.array()?.expand_dims(&[0])?,
    };
    let missing = (state.ndim() + 1).saturating_sub(array.ndim()) as i32;
    Ok(array.expand_dims(&(1..=missing).collect::<Vec<_>>())?)
}

fn track(tracks: &Tracks, slot: Slot) -> Result<&Track, LowerError> {
    tracks[slot].as_ref().ok_or_else(|| LowerError::Bug("a scan reads what was not made".into()))
}

/// The inputs of `part` in step `k`.
fn step_inputs(part: &Program, tracks: &Tracks, k: usize) -> Result<Vec<Value>, LowerError> {
    part.inputs().iter().map(|&slot| track(tracks, slot)?.at(k)).collect()
}

/// Runs `part` for every step of a chunk in one go.
fn all_at_once(part: &Program, tracks: &Tracks, run: &mut Run) -> Result<Vec<Track>, LowerError> {
    /// What the trace hands out beside arrays.
    struct Traced {
        /// A value that is the same for every step; `None` for the next array.
        outputs: Vec<Option<Value>>,
        checks: Vec<(Rc<str>, Rc<Label>)>,
        run: Run,
    }
    let mut arrays = Vec::new();
    let mut same: Vec<Option<Value>> = Vec::new();
    for &slot in part.inputs() {
        let track = track(tracks, slot)?;
        match track.array()? {
            Some(array) => {
                arrays.push(array);
                same.push(None);
            }
            None => same.push(Some(track.at(0)?)),
        }
    }
    let traced: RefCell<Option<Traced>> = RefCell::new(None);
    let failed: RefCell<Option<Error>> = RefCell::new(None);
    let trace = |items: &[Array]| {
        let mut inner = run.inside();
        let mut items = items.iter().cloned().map(Value::device);
        let inputs = same.iter().map(|same| same.clone().or_else(|| items.next()).unwrap_or_default());
        let values = part.call(inputs, &mut inner).map_err(|error| {
            let text = mlx_safe::Error::Closure(error.to_string());
            *failed.borrow_mut() = Some(error);
            text
        })?;
        let mut results: Vec<Array> = Vec::new();
        let mut outputs = Vec::with_capacity(values.len());
        for value in values {
            match (value.known(), value.on_device()) {
                (None, Some(array)) => {
                    results.push(array.clone());
                    outputs.push(None);
                }
                _ => outputs.push(Some(value)),
            }
        }
        let (holds, checks): (Vec<Array>, Vec<_>) =
            inner.take_checks().into_iter().map(|(holds, message, label)| (holds, (message, label))).unzip();
        results.extend(holds);
        *traced.borrow_mut() = Some(Traced { outputs, checks, run: inner });
        Ok(results)
    };
    let results = vmap(trace, &arrays, &vec![Some(0); arrays.len()]);
    if let Some(error) = failed.take() {
        return Err(error.into());
    }
    let mut results = results?.into_iter();
    let traced = traced.take().ok_or_else(|| LowerError::Bug("a trace that never ran".into()))?;
    let mut next = || results.next().ok_or_else(|| LowerError::Bug("a trace lost an array".into()));
    let mut made = Vec::with_capacity(traced.outputs.len());
    for output in traced.outputs {
        made.push(match output {
            Some(value) => Track::Same(value),
            None => Track::rows(next()?),
        });
    }
    for (message, label) in traced.checks {
        run.require(next()?.all(.., false)?, message, label);
    }
    run.add(traced.run.pending);
    Ok(made)
}
