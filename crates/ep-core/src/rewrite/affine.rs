//! The proof that a step is a diagonal linear recurrence: that the next state is decay * state + input, element by element,
//! with neither decay nor input depending on the state.

use onnx_graph::ElementType;
use onnx_graph::pattern::{Place, Scopes};

/// A value that multiplies, or divides where the power is -1.
pub(crate) type Power = (Place, i32);

/// One summand of the input.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) sign: f64,
    pub(crate) factors: Vec<Power>,
}

/// The next state as sign * decay * state + the sum of terms.
#[derive(Clone, Debug)]
pub(crate) struct Affine {
    pub(crate) sign: f64,
    pub(crate) decay: Vec<Power>,
    pub(crate) terms: Vec<Term>,
}

impl Affine {
    /// Follows `value` back to `state`. `depends` says which values depend on the state, and may say so of the state alone.
    /// `None` if anything but sums with, and products by, values free of the state is on the way.
    pub(crate) fn of(
        scopes: &Scopes<'_, '_>,
        state: Place,
        value: Place,
        depends: &dyn Fn(Place) -> bool,
    ) -> Option<Self> {
        if value == state {
            return Some(Self { sign: 1.0, decay: Vec::new(), terms: Vec::new() });
        }
        let maker = scopes.maker(value)?;
        if !matches!(maker.node.domain.as_str(), "" | "ai.onnx") {
            return None;
        }
        let follow = |place| Self::of(scopes, state, place, depends);
        let float = |p| scopes.element(p).is_some_and(ElementType::is_float);
        let (first, second) = (maker.input(0)?, maker.input(1));
        match maker.node.op_type.as_str() {
            "Identity" => follow(first),
            // The scan keeps its state in float32, so that rounding on the way is left out.
            "Cast" if float(first) && float(value) => follow(first),
            "Neg" => Some(follow(first)?.negated()),
            "Add" | "Sub" | "Mul" | "Div" if maker.node.inputs().len() == 2 => {
                let op = maker.node.op_type.as_str();
                match (depends(first), depends(second?)) {
                    (true, false) => follow(first)?.then(op, second?),
                    (false, true) => match op {
                        "Add" | "Mul" => follow(second?)?.then(op, first),
                        "Sub" => follow(second?)?.negated().then("Add", first),
                        _ => None,
                    },
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn negated(mut self) -> Self {
        self.sign = -self.sign;
        self.terms.iter_mut().for_each(|t| t.sign = -t.sign);
        self
    }

    fn then(mut self, op: &str, free: Place) -> Option<Self> {
        let power = if op == "Div" { -1 } else { 1 };
        match op {
            "Add" => self.terms.push(Term { sign: 1.0, factors: vec![(free, 1)] }),
            "Sub" => self.terms.push(Term { sign: -1.0, factors: vec![(free, 1)] }),
            _ => {
                self.decay.push((free, power));
                self.terms.iter_mut().for_each(|t| t.factors.push((free, power)));
            }
        }
        Some(self)
    }
}
