//! What one run shares among its lowerings, those inside bodies too: limits, checks, and how much waits for evaluation.

use std::rc::Rc;

use mlx_safe::{Array, Dtype, eval};

use crate::lowering::Value;
use crate::program::Label;
use crate::{Error, LowerError};

/// One run in progress.
pub(crate) struct Run {
    /// The most bytes that one array may take.
    limit: usize,
    /// What was lowered since the last evaluation.
    pub(crate) pending: Pending,
    /// Whether this is a trace: arrays stand for others, and have no values.
    traced: bool,
    checks: Vec<Check>,
}

/// A size of work that waits for evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Steps lowered.
    pub(crate) steps: usize,
    /// Bytes of their outputs on the device.
    pub(crate) bytes: usize,
}

/// How many steps may wait for evaluation inside a loop: enough to hide what starting one costs, few enough that MLX's
/// graph stays small.
pub(crate) const MOST_STEPS: usize = 4096;

/// How many bytes of outputs may wait for evaluation inside a loop. Iterations whose outputs take more are evaluated one by
/// one.
pub(crate) const MOST_BYTES: usize = 16 << 20;

impl Pending {
    /// Whether a loop, before which `before` was pending, should evaluate before it goes on.
    pub(crate) fn is_enough(self, before: Self) -> bool {
        self.steps.saturating_sub(before.steps) >= MOST_STEPS
            || self.bytes.saturating_sub(before.bytes) >= MOST_BYTES
    }

    /// How many iterations may wait for evaluation if each adds as much as this since `before`; 1 at least.
    pub(crate) fn iterations(self, before: Self) -> usize {
        let steps = self.steps.saturating_sub(before.steps).max(1);
        let bytes = self.bytes.saturating_sub(before.bytes).max(1);
        (MOST_STEPS / steps).min(MOST_BYTES / bytes).max(1)
    }
}

/// A condition on values that the device computes; the run fails with `message` where it does not hold.
struct Check {
    /// A scalar, true if all is well.
    holds: Array,
    message: Rc<str>,
    label: Rc<Label>,
}

impl Run {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, pending: Pending::default(), traced: false, checks: Vec::new() }
    }

    /// A run in which arrays have no values: its conditions are to be taken out.
    pub(crate) fn tracing(limit: usize) -> Self {
        Self { traced: true, ..Self::new(limit) }
    }

    /// Adds a step's outputs to what is pending.
    pub(crate) fn count(&mut self, outputs: &[Option<Value>]) {
        let bytes = outputs.iter().flatten().map(Value::device_bytes);
        self.pending.steps += 1;
        self.pending.bytes = bytes.fold(self.pending.bytes, usize::saturating_add);
    }

    /// Adds what a trace lowered.
    pub(crate) fn add(&mut self, pending: Pending) {
        self.pending.steps += pending.steps;
        self.pending.bytes = self.pending.bytes.saturating_add(pending.bytes);
    }

    /// Makes the run fail with `message` at `label` unless `holds` is true.
    pub(crate) fn require(&mut self, holds: Array, message: Rc<str>, label: Rc<Label>) {
        self.checks.push(Check { holds, message, label });
    }

    /// Fails if memory cannot hold an array of `shape`.
    pub(crate) fn afford(&self, shape: &[i32], dtype: Dtype) -> Result<(), LowerError> {
        let bytes = shape.iter().fold(dtype.size(), |n, &d| n.saturating_mul(d.unsigned_abs() as usize));
        if bytes <= self.limit {
            return Ok(());
        }
        Err(LowerError::invalid(format!(
            "an array of shape {shape:?} takes {bytes} bytes, more than the {} that MLX may use",
            self.limit
        )))
    }

    /// Computes `arrays` and every condition so far.
    ///
    /// # Errors
    /// If a condition does not hold, or MLX fails; [`Error::Evaluates`] in a trace.
    pub(crate) fn settle(&mut self, arrays: &[Array]) -> Result<(), Error> {
        if self.traced {
            return Err(Error::Evaluates);
        }
        let checks = std::mem::take(&mut self.checks);
        eval(arrays.iter().chain(checks.iter().map(|check| &check.holds)))?;
        for check in checks {
            if !check.holds.item::<bool>()? {
                return Err(check.label.error(LowerError::Invalid(check.message.to_string())));
            }
        }
        Ok(())
    }

    /// A run inside a trace of this one: its conditions are to be taken out and required here.
    pub(crate) fn inside(&self) -> Self {
        Self::tracing(self.limit)
    }

    /// Whether this is a trace, in which nothing can be evaluated.
    pub(crate) fn is_traced(&self) -> bool {
        self.traced
    }

    /// The conditions so far, taken out: what [`Run::require`] takes.
    pub(crate) fn take_checks(&mut self) -> Vec<(Array, Rc<str>, Rc<Label>)> {
        self.checks.drain(..).map(|check| (check.holds, check.message, check.label)).collect()
    }
}
