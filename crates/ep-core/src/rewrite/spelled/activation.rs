//! `Gelu`, exact (by erf) or approximate (by tanh), `Swish` with any alpha (SiLU, QuickGELU), `Mish` and `HardSwish`: x times
//! a curve.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use onnx_graph::pattern::{Maker, Place, Scopes};
use onnx_graph::{Attribute, ElementType, Graph, NodeId, TensorType};

use crate::rewrite::sketch::{Replacement, Sketch, Wire};
use crate::rewrite::spelled::operands::operands;
use crate::rewrite::spelled::polynomial::{Algebra, Polynomial, near, settled};
use crate::rewrite::spelled::roots::{Role, roots};
use crate::rewrite::view::outermost;

/// Looks from what makes the curve.
pub(super) fn rule<'a>(graph: &Graph<'a>, id: NodeId) -> Option<Replacement<'a>> {
    let scopes = Scopes::new(graph);
    let maker = Maker { depth: 0, id, node: graph.node(id), output: 0 };
    let output = maker.node.outputs().first().copied().flatten()?;
    let tolerance = tolerance(scopes.element(outermost(output))?)?;
    let (curve, argument) = Curve::of(&scopes, &maker, tolerance)?;
    operands(&scopes, argument).into_iter().find_map(|x| {
        let known = |place| (place == x).then(|| Polynomial::of(x));
        let algebra = Algebra { scopes: &scopes, known: &known };
        let inside = algebra.read(argument);
        let (activation, whole) = curve.activation(&inside, x, outermost(output), tolerance)?;
        let means = |value| {
            let read = algebra.read(outermost(value));
            let stays = read.marks.and(inside.marks).fit(&scopes, x, outermost(value));
            (stays && read.is_near(&whole, tolerance)).then_some(Role::Whole)
        };
        let found = roots(graph, output, &means)?;
        let mut sketch = Sketch::new(graph);
        let mut outputs = Vec::with_capacity(found.len());
        for value in found {
            let ty = sketch.ty(Wire::Old(value))?;
            let mut x = Wire::Old(x.value);
            // Neither x nor the result is rounded before the end.
            if ty.element == ElementType::Float {
                x = sketch.cast(x, ty.element)?;
            }
            let made = TensorType { element: sketch.element(x)?, ..ty };
            let (op, attribute) = activation.node();
            outputs.push((value, sketch.op(op, &[x], attribute.as_slice(), made)));
        }
        Some(sketch.replace(activation.name(), outputs)?.downward())
    })
}

/// How far constants may be from what they stand for, in the type in which a model writes them.
fn tolerance(element: ElementType) -> Option<f64> {
    match element {
        ElementType::Float => Some(2e-5),
        ElementType::Float16 => Some(1e-3),
        ElementType::Bfloat16 => Some(8e-3),
        _ => None,
    }
}

/// A function that activations multiply x by, of its argument.
#[derive(Clone, Copy)]
enum Curve {
    Erf,
    Tanh,
    Sigmoid,
    /// tanh(log(1 + exp(a)))
    Soft,
    /// min(max(a, 0), 6)
    ClippedAtSix,
    /// min(max(a / 6 + 1/2, 0), 1)
    SixthAndHalf,
}

impl Curve {
    /// The curve that a node ends, and its argument.
    fn of(scopes: &Scopes<'_, '_>, maker: &Maker<'_, '_>, tolerance: f64) -> Option<(Self, Place)> {
        let argument = maker.input(0)?;
        let number = |name: &str, default: f64| match maker.node.attributes.get(name) {
            None => Some(default),
            Some(Attribute::Float(number)) => Some(f64::from(*number)),
            Some(_) => None,
        };
        let bound = |input: usize, name: &str| match maker.input(input) {
            Some(place) => scopes.scalar(place),
            None => number(name, f64::NAN),
        };
        Some(match maker.node.op_type.as_str() {
            "Erf" => (Self::Erf, argument),
            "Sigmoid" => (Self::Sigmoid, argument),
            "Tanh" => match scopes.made_by(settled(scopes, argument), "Softplus") {
                Some(inner) => (Self::Soft, inner.input(0)?),
                None => (Self::Tanh, argument),
            },
            "Clip" if bound(1, "min")? == 0.0 && bound(2, "max")? == 6.0 => (Self::ClippedAtSix, argument),
            "HardSigmoid"
                if near(number("alpha", 0.2)?, 1.0 / 6.0, tolerance) && number("beta", 0.5)? == 0.5 =>
            {
                (Self::SixthAndHalf, argument)
            }
            _ => return None,
        })
    }

    /// The activation of x that the curve of `inside` may belong to, and what it is of x and of the `curve`.
    fn activation(
        self,
        inside: &Polynomial,
        x: Place,
        curve: Place,
        tolerance: f64,
    ) -> Option<(Activation, Polynomial)> {
        let (x, curve) = (Polynomial::of(x), Polynomial::of(curve));
        let is = |wanted: &Polynomial| inside.is_near(wanted, tolerance);
        let weighted = x.times(&curve);
        // Erf and tanh are odd functions: some write 1 - erf(-a).
        let gelu = |approximate, argument: Polynomial| {
            let sign = [1.0, -1.0].into_iter().find(|sign| is(&argument.clone().scaled(*sign)))?;
            Some((Activation::Gelu { approximate }, weighted.clone().scaled(sign).plus(&x).scaled(0.5)))
        };
        let cubic = || {
            let cube = x.times(&x).times(&x);
            cube.scaled(0.044715).plus(&x).scaled(FRAC_2_SQRT_PI * FRAC_1_SQRT_2)
        };
        match self {
            Self::Erf => gelu("none", x.clone().scaled(FRAC_1_SQRT_2)),
            Self::Tanh => gelu("tanh", cubic()),
            // The sigmoid of twice as much is half of the tanh and 1.
            Self::Sigmoid if is(&cubic().scaled(2.0)) => {
                Some((Activation::Gelu { approximate: "tanh" }, weighted))
            }
            Self::Sigmoid => {
                let (_, alpha) = inside.terms().next()?;
                is(&x.scaled(alpha)).then_some((Activation::Swish { alpha }, weighted))
            }
            Self::Soft => is(&x).then_some((Activation::Mish, weighted)),
            Self::ClippedAtSix => {
                let moved = x.plus(&Polynomial::number(3.0));
                is(&moved).then(|| (Activation::HardSwish, weighted.scaled(1.0 / 6.0)))
            }
            Self::SixthAndHalf => is(&x).then_some((Activation::HardSwish, weighted)),
        }
    }
}

/// Which function is spelled.
enum Activation {
    Gelu { approximate: &'static str },
    Swish { alpha: f64 },
    Mish,
    HardSwish,
}

impl Activation {
    /// The operator and its attribute.
    fn node(&self) -> (&'static str, Option<(&'static str, Attribute<'static>)>) {
        match self {
            Self::Gelu { approximate } => {
                ("Gelu", Some(("approximate", Attribute::String((*approximate).into()))))
            }
            Self::Swish { alpha } => ("Swish", Some(("alpha", Attribute::Float(*alpha as f32)))),
            Self::Mish => ("Mish", None),
            Self::HardSwish => ("HardSwish", None),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Gelu { approximate: "tanh" } => "gelu_tanh",
            Self::Gelu { .. } => "gelu",
            Self::Swish { .. } => "swish",
            Self::Mish => "mish",
            Self::HardSwish => "hard_swish",
        }
    }
}
