//! `Gelu`, exact (by erf) or approximate (by tanh), and `Swish` with any alpha: SiLU, QuickGELU.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use onnx_graph::pattern::{Place, Scopes};
use onnx_graph::{Attribute, ElementType, Graph, NodeId};

use crate::rewrite::sketch::{Replacement, Sketch, Wire};
use crate::rewrite::spelled::operands::operands;
use crate::rewrite::spelled::polynomial::{Algebra, Polynomial};
use crate::rewrite::spelled::roots::roots;
use crate::rewrite::view::outermost;

/// Looks from an `Erf`, `Tanh` or `Sigmoid`.
pub(super) fn rule<'a>(graph: &Graph<'a>, id: NodeId) -> Option<Replacement<'a>> {
    let scopes = Scopes::new(graph);
    let node = graph.node(id);
    let (argument, curve) =
        (node.inputs().first().copied().flatten()?, node.outputs().first().copied().flatten()?);
    let tolerance = tolerance(scopes.element(outermost(curve))?)?;
    operands(&scopes, outermost(argument)).into_iter().find_map(|x| {
        let known = |place| (place == x).then(|| Polynomial::of(x));
        let algebra = Algebra { scopes: &scopes, known: &known };
        let inside = algebra.read(outermost(argument));
        let kind = Kind::of(&node.op_type, &inside, x, tolerance)?;
        let whole = kind.whole(x, outermost(curve));
        let means = |value| {
            let read = algebra.read(outermost(value));
            let stays = read.rank.max(inside.rank) == 0
                || scopes.rank(x).is_some_and(|rank| read.rank.max(inside.rank) <= rank);
            stays && read.is_near(&whole, tolerance)
        };
        let found = roots(graph, curve, &means)?;
        let mut sketch = Sketch::new(graph);
        let mut outputs = Vec::with_capacity(found.len());
        for value in found {
            let ty = sketch.ty(Wire::Old(value))?;
            let x = sketch.cast(Wire::Old(x.value), ty.element)?;
            let (op, attribute) = kind.node();
            outputs.push((value, sketch.op(op, &[x], &[attribute], ty)));
        }
        Some(sketch.replace(kind.name(), outputs)?.downward())
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

/// Which function is spelled.
enum Kind {
    Erf,
    Tanh,
    Swish { alpha: f64 },
}

impl Kind {
    /// The function in which `op` is taken of `inside`.
    fn of(op: &str, inside: &Polynomial, x: Place, tolerance: f64) -> Option<Self> {
        let x = Polynomial::of(x);
        match op {
            "Erf" => inside.is_near(&x.scaled(FRAC_1_SQRT_2), tolerance).then_some(Self::Erf),
            "Tanh" => {
                let cubic = x.times(&x).times(&x).scaled(0.044715).plus(&x);
                inside.is_near(&cubic.scaled(FRAC_2_SQRT_PI * FRAC_1_SQRT_2), tolerance).then_some(Self::Tanh)
            }
            _ => {
                let (_, alpha) = inside.terms().next()?;
                inside.is_near(&x.scaled(alpha), tolerance).then_some(Self::Swish { alpha })
            }
        }
    }

    /// All of it, of x and the curve.
    fn whole(&self, x: Place, curve: Place) -> Polynomial {
        let (x, curve) = (Polynomial::of(x), Polynomial::of(curve));
        match self {
            Self::Erf | Self::Tanh => curve.plus(&Polynomial::number(1.0)).times(&x).scaled(0.5),
            Self::Swish { .. } => x.times(&curve),
        }
    }

    fn node(&self) -> (&'static str, (&'static str, Attribute<'static>)) {
        let approximate = |name: &str| ("approximate", Attribute::String(name.into()));
        match self {
            Self::Erf => ("Gelu", approximate("none")),
            Self::Tanh => ("Gelu", approximate("tanh")),
            Self::Swish { alpha } => ("Swish", ("alpha", Attribute::Float(*alpha as f32))),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Erf => "gelu",
            Self::Tanh => "gelu_tanh",
            Self::Swish { .. } => "swish",
        }
    }
}
