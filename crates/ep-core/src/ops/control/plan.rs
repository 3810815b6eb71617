//! How the body of a `Scan` is taken apart. What does not depend on the states is computed for many steps at once, before
//! the loop or, where only outputs depend on it, after it; what does not depend on the step is computed once.

use std::collections::HashMap;

use super::body::Body;
use crate::lowering::Value;
use crate::program::{Program, Slot, Step};

/// A body as parts that run in this order. Slots are numbered as in the body.
pub(super) struct ScanPlan {
    /// What is the same in every step: computed once.
    pub(super) fixed: Program,
    /// What depends on the step but on no state: computed for a chunk of steps before the loop.
    pub(super) pre: Program,
    /// What the next states depend on: the loop.
    pub(super) core: Core,
    /// What depends on the states and no state depends on: computed for a chunk of steps after the loop.
    pub(super) post: Program,
    pub(super) states: Vec<State>,
    /// The slots of the scan inputs.
    pub(super) sequences: Vec<Slot>,
    /// The slots of the outer-scope values.
    pub(super) outer: Vec<Slot>,
    /// The slots of the scan outputs.
    pub(super) outputs: Vec<Slot>,
    pub(super) constants: Vec<(Slot, Value)>,
    pub(super) slots: usize,
}

/// How the states of a chunk come about.
pub(super) enum Core {
    /// Step by step.
    Loop(Program),
    /// In one go: every state that moves is a linear recurrence of what is known for the whole chunk.
    Linear(Vec<Linear>),
}

/// The slots of next = decay * state + input.
pub(super) struct Linear {
    /// Which of the plan's states.
    pub(super) state: usize,
    pub(super) decay: Slot,
    pub(super) input: Slot,
    /// The next state.
    pub(super) next: Slot,
}

pub(super) struct State {
    pub(super) slot: Slot,
    /// The slot of the next state.
    pub(super) next: Slot,
    /// Whether the body hands it on as it is: then it is the same in every step.
    pub(super) constant: bool,
}

const FIXED: usize = 0;
const PRE: usize = 1;
const CORE: usize = 2;
const POST: usize = 3;

impl ScanPlan {
    /// Takes apart a body that has `states` states before its other inputs and outputs, and then `sequences` scan inputs.
    pub(super) fn new(body: Body, states: usize, sequences: usize) -> Self {
        let program = body.program;
        let (inputs, outputs) = (program.inputs().to_vec(), program.outputs().to_vec());
        let makers = makers(&program);
        let states: Vec<State> = inputs[..states]
            .iter()
            .zip(&outputs)
            .map(|(&slot, &next)| State { slot, next, constant: origin(&program, &makers, next) == slot })
            .collect();
        let sequences = inputs[states.len()..][..sequences].to_vec();
        let part_of = assign(&program, &makers, &states, &sequences);
        let outer = inputs[states.len() + sequences.len()..].to_vec();
        let outputs = outputs[states.len()..].to_vec();
        let (constants, slots) = (program.constants().to_vec(), program.slots());
        let [fixed, pre, core, post] = program.split(&part_of);
        let core = linear(&core, &states).map_or(Core::Loop(core), Core::Linear);
        Self { fixed, pre, core, post, states, sequences, outer, outputs, constants, slots }
    }
}

/// The loop as linear recurrences, if it is nothing else.
fn linear(core: &Program, states: &[State]) -> Option<Vec<Linear>> {
    let step = |step: &Step| match (step.label.op_type.as_str(), &step.inputs[..], &step.outputs[..]) {
        ("LinearStep", &[Some(decay), Some(input), Some(slot)], &[Some(next)]) => {
            let own = |s: &State| !s.constant && s.slot == slot && s.next == next;
            Some(Linear { state: states.iter().position(own)?, decay, input, next })
        }
        _ => None,
    };
    let all: Vec<Linear> = core.steps().iter().map(step).collect::<Option<_>>()?;
    // What is made in the loop is not there for the whole chunk.
    let made_here = |slot: Slot| all.iter().any(|l| l.next == slot || states[l.state].slot == slot);
    let known = all.iter().all(|l| !made_here(l.decay) && !made_here(l.input));
    (known && all.len() == states.iter().filter(|s| !s.constant).count()).then_some(all)
}

/// The step that makes each slot.
fn makers(program: &Program) -> HashMap<Slot, usize> {
    let steps = program.steps().iter().enumerate();
    steps.flat_map(|(i, step)| step.outputs.iter().flatten().map(move |&slot| (slot, i))).collect()
}

/// Where a value comes from, looking through steps that change nothing.
fn origin(program: &Program, makers: &HashMap<Slot, usize>, mut slot: Slot) -> Slot {
    while let Some(step) = makers.get(&slot).map(|&i| &program.steps()[i]) {
        match (step.label.op_type.as_str(), step.inputs.as_slice()) {
            ("Identity", [Some(input)]) => slot = *input,
            _ => break,
        }
    }
    slot
}

/// The part of each step.
fn assign(
    program: &Program,
    makers: &HashMap<Slot, usize>,
    states: &[State],
    sequences: &[Slot],
) -> Vec<usize> {
    let moving = states.iter().filter(|state| !state.constant);
    let mut earliest: HashMap<Slot, usize> = sequences.iter().map(|&slot| (slot, PRE)).collect();
    earliest.extend(moving.clone().map(|state| (state.slot, POST)));
    let mut part_of = Vec::with_capacity(program.steps().len());
    for step in program.steps() {
        let inputs = step.inputs.iter().flatten().filter_map(|slot| earliest.get(slot));
        let part = inputs.copied().max().unwrap_or(FIXED);
        part_of.push(part);
        earliest.extend(step.outputs.iter().flatten().map(|&slot| (slot, part)));
    }
    // Of what depends on states, the next states' ancestors cannot wait for the end of the loop.
    let mut needed: Vec<Slot> = moving.map(|state| state.next).collect();
    while let Some(slot) = needed.pop() {
        if let Some(&i) = makers.get(&slot)
            && part_of[i] == POST
        {
            part_of[i] = CORE;
            needed.extend(program.steps()[i].inputs.iter().flatten());
        }
    }
    part_of
}
