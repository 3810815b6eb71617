//! Products of matrices, by whatever operator: `MatMul`, `Gemm`, `Einsum`, com.microsoft's `FusedMatMul`.

use onnx_graph::Attribute;
use onnx_graph::pattern::{Maker, Place, Scopes};

use super::matrices::{Axis, Matrices, even, numbered, plain};

/// `alpha` times `left` times `right`, for each of a stack.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    pub(crate) left: Matrices,
    pub(crate) right: Matrices,
    pub(crate) alpha: f64,
    /// Whether both stacks certainly have the same sizes; otherwise one may be broadcast.
    pub(crate) even: bool,
}

impl Product {
    /// The product that `view` is. Its factors' stacks are numbered as the view's.
    pub(crate) fn of(scopes: &Scopes<'_, '_>, view: &Matrices) -> Option<Self> {
        let maker = scopes.maker(view.place)?;
        let (written, result) = written(scopes, &maker)?;
        if result.len() != view.axes.len() {
            return None;
        }
        let role = |axis: &Axis| Some(view.axes[result.iter().position(|r| r == axis)?]);
        let transposed = match (role(&Axis::Row)?, role(&Axis::Col)?) {
            (Axis::Row, Axis::Col) => false,
            (Axis::Col, Axis::Row) => true,
            _ => return None,
        };
        let relabel = |factor: &Matrices| {
            let axes = factor.axes.iter().map(|axis| match axis {
                Axis::Batch(_) => role(axis).filter(|a| matches!(a, Axis::Batch(_) | Axis::One)),
                other => Some(*other),
            });
            Some(Matrices { place: factor.place, axes: numbered(axes.collect::<Option<_>>()?) })
        };
        let (left, right) = (relabel(&written.left)?, relabel(&written.right)?);
        let Self { alpha, even, .. } = written;
        Some(match transposed {
            false => Self { left, right, alpha, even },
            true => Self { left: right.transposed(), right: left.transposed(), alpha, even },
        })
    }
}

/// The axes of a product's result, its matrices as the node has them.
pub(crate) fn result(scopes: &Scopes<'_, '_>, place: Place) -> Option<Matrices> {
    let maker = scopes.maker(place)?;
    let (_, axes) = written(scopes, &maker)?;
    Some(Matrices { place, axes })
}

/// The product as the node has it, and what the axes of its result are.
fn written(scopes: &Scopes<'_, '_>, maker: &Maker<'_, '_>) -> Option<(Product, Vec<Axis>)> {
    let (a, b) = (maker.input(0)?, maker.input(1)?);
    if maker.is("Einsum") {
        return einsum(scopes, maker, a, b);
    }
    let flag = |name: &str| Some(maker.int_or(name, 0)? != 0);
    let (a_turned, b_turned, alpha) = if maker.is("MatMul") {
        (false, false, 1.0)
    } else if maker.is("Gemm") && maker.input(2).is_none() {
        (flag("transA")?, flag("transB")?, alpha(maker)?)
    } else if maker.node.domain == "com.microsoft" && maker.node.op_type == "FusedMatMul" {
        if flag("transBatchA")? || flag("transBatchB")? {
            return None;
        }
        (flag("transA")?, flag("transB")?, alpha(maker)?)
    } else {
        return None;
    };
    let factor = |place, turned| {
        let view = Matrices::plain(scopes, place)?;
        Some(if turned { view.transposed() } else { view })
    };
    let (left, right) = (factor(a, a_turned)?, factor(b, b_turned)?);
    let result = plain(left.axes.len())?;
    let even = even(scopes, &left, &right);
    (left.axes.len() == right.axes.len()).then_some((Product { left, right, alpha, even }, result))
}

fn alpha(maker: &Maker<'_, '_>) -> Option<f64> {
    match maker.node.attributes.get("alpha") {
        None => Some(1.0),
        Some(Attribute::Float(alpha)) => Some(f64::from(*alpha)),
        Some(_) => None,
    }
}

/// An `Einsum` of two that sums over one letter.
fn einsum(
    scopes: &Scopes<'_, '_>,
    maker: &Maker<'_, '_>,
    a: Place,
    b: Place,
) -> Option<(Product, Vec<Axis>)> {
    let (operands, result) = maker.equation()?;
    let [x, y] = &operands[..] else { return None };
    let in_both = |letter: &&char| x.contains(*letter) && y.contains(*letter);
    let batch: Vec<char> = result.iter().filter(in_both).copied().collect();
    let summed: Vec<char> = x.iter().filter(|l| y.contains(l) && !result.contains(l)).copied().collect();
    let own = |letters: &[char]| -> Vec<char> {
        letters.iter().filter(|l| result.contains(l) && !batch.contains(l)).copied().collect()
    };
    let ([k], [row], [col]) = (&summed[..], &own(x)[..], &own(y)[..]) else { return None };
    let number = |letter: &char| batch.iter().position(|l| l == letter).map(Axis::Batch);
    let axes = |letters: &[char], rest: &dyn Fn(char) -> Option<Axis>| {
        letters.iter().map(|l| number(l).or_else(|| rest(*l))).collect::<Option<Vec<_>>>()
    };
    let pick = |r: char, c: char| {
        move |letter: char| match letter {
            l if l == r => Some(Axis::Row),
            l if l == c => Some(Axis::Col),
            _ => None,
        }
    };
    let left = Matrices { place: a, axes: axes(x, &pick(*row, *k))? };
    let right = Matrices { place: b, axes: axes(y, &pick(*k, *col))? };
    let result = axes(&result, &pick(*row, *col))?;
    let fits = |view: &Matrices, letters: usize| {
        scopes.rank(view.place) == Some(letters) && letters == batch.len() + 2
    };
    let even = even(scopes, &left, &right);
    (fits(&left, x.len()) && fits(&right, y.len()))
        .then_some((Product { left, right, alpha: 1.0, even }, result))
}
