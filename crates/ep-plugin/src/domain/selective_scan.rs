//! `SelectiveScan` and `SelectiveScanGrad`: the recurrence of Mamba as one operator, and its derivative.
//!
//! T steps, B batch, D channels, N states; the state is kept in float32 whatever T, the element type, is.

use kernels_metal::sample::Sample;
use kernels_metal::selective_scan::{Sizes, host};

use super::call::{Call, Element};
use super::operator::{Attribute, Formal, Operator, Value, kernels, optional, required};

const SERIES: &[&str] = &["T", "B", "D"];
const ROWS: &[&str] = &["T", "B", "N"];
const STATE: &[&str] = &["B", "D", "N"];

const DT: Formal = required("dt", SERIES);
const X: Formal = required("x", SERIES);
const B: Formal = required("b", ROWS);
const C: Formal = required("c", ROWS);
const A: Formal = required("A", &["D", "N"]);
const H0: Formal = optional("h0", STATE);

const REVERSE: Attribute = Attribute::Int {
    name: c"reverse",
    default: 0,
    allowed: 0..=1,
    meaning: "0 to take the steps from first to last, 1 from last to first",
};

/// y and the last state.
pub const FORWARD: Operator = Operator {
    name: c"SelectiveScan",
    inputs: &[DT, X, B, C, A, H0],
    outputs: &[required("y", SERIES), optional("h", STATE)],
    attributes: &[REVERSE],
    check: |_, _| Ok(()),
    kernels: kernels!(forward),
};

/// Derivatives by the inputs, from those by y and by the last state.
pub const GRADIENT: Operator = Operator {
    name: c"SelectiveScanGrad",
    inputs: &[DT, X, B, C, A, H0, required("dy", SERIES), optional("dh", STATE)],
    outputs: &[
        optional("ddt", SERIES),
        optional("dx", SERIES),
        optional("db", ROWS),
        optional("dc", ROWS),
        optional("dA", &["D", "N"]),
        optional("dh0", STATE),
    ],
    attributes: &[REVERSE],
    check: |_, _| Ok(()),
    kernels: kernels!(gradient),
};

/// What the kernel reads in float32, and in which sizes.
struct State {
    sizes: Sizes,
    a: Vec<f32>,
    h0: Option<Vec<f32>>,
}

impl State {
    fn of<T: Element + Sample>(call: &Call<'_>) -> Result<Self, String> {
        let sizes = Sizes {
            steps: call.size("T")?,
            batch: call.size("B")?,
            channels: call.size("D")?,
            states: call.size("N")?,
        };
        Ok(Self { sizes, a: widened(call.input::<T>(4)?), h0: call.optional_input::<T>(5)?.map(widened) })
    }

    /// The elements of a state (B, D, N).
    fn len(&self) -> usize {
        self.sizes.batch * self.sizes.channels * self.sizes.states
    }

    fn inputs<'a, T: Element + Sample>(&'a self, call: &Call<'a>) -> Result<host::Inputs<'a, T>, String> {
        Ok(host::Inputs {
            dt: call.input(0)?,
            x: call.input(1)?,
            b: call.input(2)?,
            c: call.input(3)?,
            a: &self.a,
            h0: self.h0.as_deref(),
        })
    }
}

fn widened<T: Sample>(from: &[T]) -> Vec<f32> {
    let mut to = vec![0.0; from.len()];
    T::load(from, &mut to);
    to
}

fn reverse(call: &Call<'_>) -> Result<bool, String> {
    Ok(call.attribute(0)? == Value::Int(1))
}

fn forward<T: Element + Sample>(mut call: Call<'_>) -> Result<(), String> {
    let state = State::of::<T>(&call)?;
    let series = state.sizes.steps * state.sizes.batch * state.sizes.channels;
    let (mut y, mut h) = (call.output::<T>(0, series)?, call.output::<T>(1, state.len())?);
    let mut last = vec![0.0; state.len()];
    let outputs = host::Outputs { y: &mut y, h: &mut last };
    host::forward(state.sizes, &state.inputs::<T>(&call)?, outputs, reverse(&call)?)
        .map_err(|error| error.to_string())?;
    T::store(&last, &mut h);
    Ok(())
}

fn gradient<T: Element + Sample>(mut call: Call<'_>) -> Result<(), String> {
    let state = State::of::<T>(&call)?;
    let Sizes { steps, batch, channels, states } = state.sizes;
    let (series, rows) = (steps * batch * channels, steps * batch * states);
    let (mut ddt, mut dx) = (call.output::<T>(0, series)?, call.output::<T>(1, series)?);
    let (mut db, mut dc) = (call.output::<T>(2, rows)?, call.output::<T>(3, rows)?);
    let (mut da, mut dh0) = (call.output::<T>(4, channels * states)?, call.output::<T>(5, state.len())?);
    let (mut wide_da, mut wide_dh0) = (vec![0.0; channels * states], vec![0.0; state.len()]);
    let dh = call.optional_input::<T>(7)?.map(widened);
    let grads =
        host::Grads { dt: &mut ddt, x: &mut dx, b: &mut db, c: &mut dc, a: &mut wide_da, h0: &mut wide_dh0 };
    host::grad(
        state.sizes,
        &state.inputs::<T>(&call)?,
        call.input(6)?,
        dh.as_deref(),
        grads,
        reverse(&call)?,
    )
    .map_err(|error| error.to_string())?;
    T::store(&wide_da, &mut da);
    T::store(&wide_dh0, &mut dh0);
    Ok(())
}
