//! One step of the recurrent operators: their gates, by ONNX's equations.

use kernels_metal::elementwise::Function;
use mlx_safe::{Array, concatenate};

use crate::LowerError;

/// Which operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rnn,
    Gru {
        /// The reset gate scales the product with the recurrent weights, not the state before it.
        linear_before_reset: bool,
    },
    Lstm,
}

impl Kind {
    /// Blocks of rows in the weights.
    pub(super) fn gates(self) -> i32 {
        match self {
            Self::Rnn => 1,
            Self::Gru { .. } => 3,
            Self::Lstm => 4,
        }
    }

    /// The activations of f, g and h.
    pub(super) fn activations(self) -> &'static [Activation] {
        match self {
            Self::Rnn => &[Activation::Tanh],
            Self::Gru { .. } => &[Activation::Sigmoid, Activation::Tanh],
            Self::Lstm => &[Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
        }
    }
}

/// An activation without parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    Relu,
    Sigmoid,
    Tanh,
}

impl Activation {
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "relu" => Some(Self::Relu),
            "sigmoid" => Some(Self::Sigmoid),
            "tanh" => Some(Self::Tanh),
            _ => None,
        }
    }

    fn apply(self, x: &Array) -> mlx_safe::Result<Array> {
        match self {
            Self::Relu => x.maximum(&Array::scalar(0.0f32)),
            Self::Sigmoid => Function::Sigmoid.apply(x),
            Self::Tanh => Function::Tanh.apply(x),
        }
    }
}

/// The float32 weights of one direction. G gates of H rows each; the weights lie transposed.
pub(super) struct Cell<'a> {
    pub(super) kind: Kind,
    pub(super) activations: &'a [Activation],
    pub(super) clip: Option<f32>,
    /// Recurrent weights (H, G H).
    pub(super) recurrent: Array,
    /// Recurrent bias (G H), zeros if there is none. The input's bias is in the input already.
    pub(super) bias: Array,
    /// Peepholes i, o and f, (H) each.
    pub(super) peepholes: Option<Vec<Array>>,
}

/// What a step hands to the next: the hidden state (B, H), and the cell's of an LSTM.
#[derive(Clone)]
pub(super) struct State {
    pub(super) hidden: Array,
    pub(super) cell: Option<Array>,
}

impl Cell<'_> {
    /// One step on `x` (B, G H), which is the input times its weights plus its bias.
    pub(super) fn step(&self, x: &Array, state: &State) -> Result<State, LowerError> {
        match self.kind {
            Kind::Rnn => {
                let hidden = self.activate(0, &x.add(&self.project(&state.hidden)?)?)?;
                Ok(State { hidden, cell: None })
            }
            Kind::Gru { linear_before_reset } => self.gru(linear_before_reset, x, &state.hidden),
            Kind::Lstm => self.lstm(x, state),
        }
    }

    fn gru(&self, linear_before_reset: bool, x: &Array, hidden: &Array) -> Result<State, LowerError> {
        let (x, r, b) = (self.gates(x, 1)?, self.gates(&self.recurrent, 1)?, self.gates(&self.bias, 0)?);
        let project = |h: &Array, gate: usize| h.matmul(&r[gate])?.add(&b[gate]);
        let update = self.activate(0, &x[0].add(&project(hidden, 0)?)?)?;
        let reset = self.activate(0, &x[1].add(&project(hidden, 1)?)?)?;
        let past = match linear_before_reset {
            true => reset.multiply(&project(hidden, 2)?)?,
            false => project(&reset.multiply(hidden)?, 2)?,
        };
        let candidate = self.activate(1, &x[2].add(&past)?)?;
        let kept = update.multiply(hidden)?;
        let hidden = Array::scalar(1.0f32).subtract(&update)?.multiply(&candidate)?.add(&kept)?;
        Ok(State { hidden, cell: None })
    }

    fn lstm(&self, x: &Array, state: &State) -> Result<State, LowerError> {
        let past = state.cell.as_ref().ok_or_else(|| LowerError::Bug("an LSTM without a cell".into()))?;
        let gates = self.gates(&x.add(&self.project(&state.hidden)?)?, 1)?;
        let peep = |gate: usize, cell: &Array| match &self.peepholes {
            Some(p) => gates[gate].add(&p[gate].multiply(cell)?),
            None => Ok(gates[gate].clone()),
        };
        let input = self.activate(0, &peep(0, past)?)?;
        let forget = self.activate(0, &peep(2, past)?)?;
        let candidate = self.activate(1, &gates[3])?;
        let cell = forget.multiply(past)?.add(&input.multiply(&candidate)?)?;
        let output = self.activate(0, &peep(1, &cell)?)?;
        let hidden = output.multiply(&self.activations[2].apply(&cell)?)?;
        Ok(State { hidden, cell: Some(cell) })
    }

    fn project(&self, hidden: &Array) -> mlx_safe::Result<Array> {
        hidden.matmul(&self.recurrent)?.add(&self.bias)
    }

    /// Cuts an axis of size G H into the gates.
    fn gates(&self, x: &Array, axis: i32) -> mlx_safe::Result<Vec<Array>> {
        let (gates, width) = (self.kind.gates(), x.dim(axis)?);
        let cuts: Vec<i32> = (1..gates).map(|g| g * (width / gates)).collect();
        x.split(&cuts, axis)
    }

    /// Activation `which` on `x`, clipped first if the operator asks for that.
    fn activate(&self, which: usize, x: &Array) -> mlx_safe::Result<Array> {
        let activation = self.activations[which];
        match self.clip {
            Some(clip) => activation.apply(&x.minimum(&Array::scalar(clip))?.maximum(&Array::scalar(-clip))?),
            None => activation.apply(x),
        }
    }
}

/// The states of all directions, as (D, B, H).
pub(super) fn gather(states: &[Array]) -> mlx_safe::Result<Array> {
    let rows: Vec<Array> = states.iter().map(|s| s.expand_dims(&[0])).collect::<Result<_, _>>()?;
    concatenate(&rows, 0)
}
